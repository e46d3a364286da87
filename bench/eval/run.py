"""How fast is a model evaluated beside transformers? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
WINDOW = 2048

PEER = """
import sys, time, json, torch
from transformers import AutoModelForCausalLM
folder, ids_file, dtype, threads, window = sys.argv[1:]
torch.set_num_threads(int(threads))
ids = torch.tensor(json.load(open(ids_file)))
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
total, count, seconds = 0.0, 0, 0.0
with torch.no_grad():
    model(ids[None, :64])
    start, cpu = time.perf_counter(), time.process_time()
    for piece in ids.split(int(window)):
        logits = model(piece[None]).logits[0, :-1].float()
        total += torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum").item()
        count += len(piece) - 1
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "loss": total / count}))
"""

TOKENIZE = """
import json, sys
from transformers import AutoTokenizer
text = open(sys.argv[2], encoding="utf-8").read()
print(json.dumps(AutoTokenizer.from_pretrained(sys.argv[1])(text).input_ids[: int(sys.argv[3])]))
"""


def last_json(command: list[str], threads: int) -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TRANSFORMERS_VERBOSITY="error")
    before = cpu_of_children()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    out = json.loads(done.stdout[done.stdout.index("{") :])
    return {"cpu_seconds": cpu_of_children() - before, **out}


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def version(python: str, package: str) -> str:
    words = [python, "-c", f"import {package}; print({package}.__version__)"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def octavo(model: str, ids: pathlib.Path, threads: int) -> dict:
    words = [str(OCTAVO), "eval", model, "--ids", str(ids), "--window", str(WINDOW), "--json"]
    seen = last_json([*words, "--threads", str(threads)], threads)
    loss = seen["models"][0]["total"]["log_loss"]["value"]
    return {"seconds": seen["seconds"], "cpu_seconds": seen["cpu_seconds"], "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", default=str(PEERS), help="a Python that has transformers")
    parser.add_argument("--folder", default=".", help="where the ids of the tokens are put")
    parser.add_argument("--json", help="write the result to this file")
    given = parser.parse_args()
    tokens = [given.peers, "-c", TOKENIZE, given.model, given.text, str(given.tokens)]
    ids = pathlib.Path(given.folder) / "bench-eval-ids.json"
    ids.write_text(subprocess.run(tokens, check=True, capture_output=True, text=True).stdout)
    seconds: dict[str, list[float]] = {"octavo": [], "float32": [], "bfloat16": []}
    cpu_seconds: dict[str, list[float]] = {side: [] for side in seconds}
    losses: dict[str, float] = {}
    for _ in range(given.runs):
        for side in seconds:
            words = [given.peers, "-c", PEER, given.model, str(ids), side]
            words += [str(given.threads), str(WINDOW)]
            if side == "octavo":
                seen = octavo(given.model, ids, given.threads)
            else:
                seen = last_json(words, given.threads)
            seconds[side].append(seen["seconds"])
            cpu_seconds[side].append(seen["cpu_seconds"])
            losses[side] = seen["loss"]
    ids.unlink()
    median = {side: statistics.median(runs) for side, runs in seconds.items()}
    best = min(median["float32"], median["bfloat16"])
    for side, value in median.items():
        rate = given.tokens / value
        cpu = statistics.median(cpu_seconds[side])
        print(f"{side:10} {value:8.2f} s ({cpu:.2f} s of CPU)  {rate:8.1f} tokens/s", end="")
        print(f"  loss {losses[side]:.6f}")
    print(f"octavo is {best / median['octavo']:.2f} x the faster of the others; asked for: 1.0")
    result = {
        "model": pathlib.Path(given.model).name,
        "tokens": given.tokens,
        "window": WINDOW,
        "threads": given.threads,
        "load": os.getloadavg()[0],
        "transformers": version(given.peers, "transformers"),
        "torch": version(given.peers, "torch"),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "losses": losses,
    }
    print(json.dumps(result))
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    if best < median["octavo"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
