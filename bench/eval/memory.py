"""In how much memory is a model of 7 GB evaluated? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"
MOST_BYTES = 1.2e9
SHAPES = {  # hidden, layers, heads, heads of K and V, intermediate, vocabulary
    "7GB": (3072, 27, 24, 8, 8192, 128000),
    "quick": (256, 3, 4, 2, 512, 4096),
}


def tensors(shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    hidden, layers, heads, kv_heads, intermediate, vocabulary = shape
    head = hidden // heads
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for i in range(layers):
        at = f"model.layers.{i}."
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            out[f"{at}self_attn.{name}_proj.weight"] = (rows * head, hidden)
        out[f"{at}self_attn.o_proj.weight"] = (hidden, heads * head)
        for name in ("gate", "up"):
            out[f"{at}mlp.{name}_proj.weight"] = (intermediate, hidden)
        out[f"{at}mlp.down_proj.weight"] = (hidden, intermediate)
        out[f"{at}input_layernorm.weight"] = (hidden,)
        out[f"{at}post_attention_layernorm.weight"] = (hidden,)
    out["model.norm.weight"] = (hidden,)
    out["lm_head.weight"] = (vocabulary, hidden)
    return out


def write_model(folder: pathlib.Path, shape: tuple[int, ...]) -> int:
    hidden, layers, heads, kv_heads, intermediate, vocabulary = shape
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, sizes in tensors(shape).items():
        size = 2 * int(np.prod(sizes))
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = np.random.default_rng(0).standard_normal(1 << 22, np.float32) * np.float32(0.02)
    block = (values.view("<u4") >> 16).astype("<u2").tobytes()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for left in range(at, 0, -len(block)):
            file.write(block[: min(left, len(block))])
    return at


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--max-memory", default="1GiB")
    parser.add_argument("--json", help="write the result to this file")
    given = parser.parse_args()
    shape = SHAPES["quick" if given.quick else "7GB"]
    work = pathlib.Path(tempfile.mkdtemp(prefix="bench-eval-", dir=given.folder))
    try:
        size = write_model(work / "model", shape)
        ids = np.random.default_rng(1).integers(0, shape[-1], given.tokens)
        (work / "ids.json").write_text(json.dumps(ids.tolist()))
        words = [
            str(OCTAVO),
            "eval",
            str(work / "model"),
            "--ids",
            str(work / "ids.json"),
            "--json",
        ]
        words += ["--max-memory", given.max_memory, "--temporary", str(work)]
        start = time.perf_counter()
        done = subprocess.run(words, stdout=subprocess.PIPE)
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            sys.exit(done.returncode)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    finally:
        shutil.rmtree(work)
    seen = json.loads(done.stdout)
    loss = seen["models"][0]["total"]["log_loss"]["value"]
    print(
        f"{size / 1e9:.2f} GB of weights, {given.tokens} tokens: {seconds:.1f} s, loss {loss:.4f}"
    )
    print(f"peak RSS {peak / 1e9:.3f} GB; at most {MOST_BYTES / 1e9} GB ({os.cpu_count()} CPUs)")
    if given.json:
        result = {
            "bytes": size,
            "vocabulary": shape[-1],
            "tokens": given.tokens,
            "max_memory": given.max_memory,
            "peak_bytes": peak,
            "most_bytes": MOST_BYTES,
            "loss": loss,
        }
        pathlib.Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    if peak > MOST_BYTES:
        sys.exit(1)


if __name__ == "__main__":
    main()
