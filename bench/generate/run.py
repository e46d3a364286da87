"""How fast is text generated beside transformers? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from bench.eval.memory import write_model
from bench.eval.run import OCTAVO, PEERS, last_json, version

# hidden, layers, heads, heads of K and V, intermediate, vocabulary: TinyLlama's
RANDOM = "random weights, 1.1 billion"
RANDOM_SHAPE = (2048, 22, 32, 4, 5632, 32000)
BAR = 1.5

PEER = """
import sys, time, json, torch
from transformers import AutoModelForCausalLM
folder, ids, count, dtype, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
ids, count, out = torch.tensor([json.loads(ids)]), int(count), []
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
with torch.inference_mode():
    model(ids, use_cache=True)
    start = time.perf_counter()
    step = model(ids, use_cache=True)
    out.append(step.logits[0, -1].argmax().item())
    prompt = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(count - 1):
        step = model(torch.tensor([out[-1:]]), past_key_values=step.past_key_values, use_cache=True)
        out.append(step.logits[0, -1].argmax().item())
    seconds = time.perf_counter() - start
rate = (count - 1) / seconds
print(json.dumps({"tokens_per_second": rate, "prompt_seconds": prompt, "ids": out}))
"""


def has_bf16() -> bool:
    """Does the CPU multiply bfloat16? By the flags that Linux lists, of x86 and of ARM."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(flags))


def of_octavo(model: pathlib.Path, given: argparse.Namespace, ids: list[int], words: list) -> dict:
    """The first token's time is the prompt's, as on the other side: N tokens are N - 1 steps."""
    command = [str(OCTAVO), "generate", str(model), "--ids", ",".join(map(str, ids)), "--json"]
    command += ["--max-tokens", str(given.tokens), "--threads", str(given.threads), *words]
    seen = last_json(command, given.threads)
    if len(seen["ids"]) != given.tokens:
        sys.exit(f"the model ended its text after {len(seen['ids'])} tokens; try another --seed")
    rate = (given.tokens - 1) / seen["seconds"]
    return {"tokens_per_second": rate, **{key: seen[key] for key in ("prompt_seconds", "ids")}}


def of_peer(dtype: str, model: pathlib.Path, given: argparse.Namespace, ids: list[int]) -> dict:
    words = [given.peers, "-c", PEER, str(model), json.dumps(ids), str(given.tokens), dtype]
    return last_json([*words, str(given.threads)], given.threads)


def sides_of(model: pathlib.Path, four: pathlib.Path, given, ids: list[int]) -> dict:
    rounded = ["--activations", "bfloat16"]
    sides = {
        "octavo bfloat16": lambda: of_octavo(model, given, ids, []),
        "octavo bfloat16, rounded": lambda: of_octavo(model, given, ids, rounded),
        "octavo mxfp4": lambda: of_octavo(four, given, ids, []),
        "octavo mxfp4, rounded": lambda: of_octavo(four, given, ids, rounded),
    }
    if pathlib.Path(given.peers).exists():
        sides["transformers bfloat16"] = lambda: of_peer("bfloat16", model, given, ids)
        sides["transformers float32"] = lambda: of_peer("float32", model, given, ids)
    else:
        print(f"transformers: skipped, there is no {given.peers} (make peers)")
    return sides


def measured(given: argparse.Namespace, model: pathlib.Path, work: pathlib.Path) -> dict:
    config = json.loads((model / "config.json").read_text())
    four = work / f"{model.name}, mxfp4"
    random = np.random.default_rng(given.seed)
    ids = random.integers(3, config["vocab_size"], given.prompt).tolist()
    words = [str(OCTAVO), "quantize", str(model), "-o", str(four), "--recipe", "mxfp4"]
    made = subprocess.run(words, capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(made.stderr)
    load = os.getloadavg()[0]
    rates: dict[str, list[float]] = {}
    prompts: dict[str, list[float]] = {}
    tokens: dict[str, list[int]] = {}
    for _ in range(given.runs):
        for side, run in sides_of(model, four, given, ids).items():
            seen = run()
            rates.setdefault(side, []).append(seen["tokens_per_second"])
            prompts.setdefault(side, []).append(given.prompt / seen["prompt_seconds"])
            tokens[side] = seen["ids"]
    out = {
        "model": model.name,
        "prompt": given.prompt,
        "tokens": given.tokens,
        "threads": given.threads,
        "load": load,
        "has_bf16": has_bf16(),
        "tokens_per_second": rates,
        "prompt_tokens_per_second": prompts,
        "same_text_as_float32": {
            side: ids == tokens.get("transformers float32") for side, ids in tokens.items()
        },
    }
    if "transformers bfloat16" in rates:
        out |= {name: version(given.peers, name) for name in ("transformers", "torch")}
    return out


def reaches_bar(result: dict) -> bool:
    """Prints the medians of a model."""
    print(f"{result['model']}:")
    medians = {s: statistics.median(runs) for s, runs in result["tokens_per_second"].items()}
    for side, rate in medians.items():
        prompt = statistics.median(result["prompt_tokens_per_second"][side])
        print(f"  {side:28} {rate:8.1f} tokens/s, prompt {prompt:8.1f} tokens/s")
    if "transformers bfloat16" not in medians:
        return True
    ours = max(rate for side, rate in medians.items() if side.startswith("octavo mxfp4"))
    ratio = ours / medians["transformers bfloat16"]
    asked = f"asked for: {BAR}" if result["has_bf16"] else "no bar, the CPU has no bf16"
    print(f"octavo with MXFP4 is {ratio:.2f} x transformers in bfloat16; {asked}")
    return not result["has_bf16"] or ratio >= BAR


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--random", action="store_true", help="a model of random weights, too")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0, help="of the prompt's ids")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", default=str(PEERS), help="a Python that has transformers")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where models are put")
    parser.add_argument("--json", help="write the result to this file")
    given = parser.parse_args()
    if not given.models and not given.random:
        parser.error("expected a folder with a model, or --random")
    results = []
    with tempfile.TemporaryDirectory(prefix="bench-generate-", dir=given.folder) as folder:
        if given.random:
            write_model(pathlib.Path(folder) / RANDOM, RANDOM_SHAPE)
            given.models.append(pathlib.Path(folder) / RANDOM)
        for model in given.models:
            results.append(measured(given, model, pathlib.Path(folder)))
    reached = [reaches_bar(one) for one in results]
    result = {"models": results}
    print(json.dumps(result))
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(int(not all(reached)))


if __name__ == "__main__":
    main()
