"""How fast is a model evaluated beside transformers? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
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
    start = time.perf_counter()
    for piece in ids.split(int(window)):
        logits = model(piece[None]).logits[0, :-1].float()
        total += torch.nn.functional.cross_entropy(logits, piece[1:], reduction="sum").item()
        count += len(piece) - 1
    seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "loss": total / count}))
"""

TOKENIZE = """
import json, sys
from transformers import AutoTokenizer
text = open(sys.argv[2], encoding="utf-8").read()
print(json.dumps(AutoTokenizer.from_pretrained(sys.argv[1])(text).input_ids[: int(sys.argv[3])]))
"""


def last_json(command: list[str], threads: int) -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TRANSFORMERS_VERBOSITY="error")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{") :])


def octavo(model: str, ids: pathlib.Path, threads: int) -> dict:
    words = [str(OCTAVO), "eval", model, "--ids", str(ids), "--window", str(WINDOW), "--json"]
    seen = last_json([*words, "--threads", str(threads)], threads)
    return {"seconds": seen["seconds"], "loss": seen["models"][0]["total"]["log_loss"]["value"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", default=str(PEERS), help="a Python that has transformers")
    parser.add_argument("--folder", default=".", help="where the ids of the tokens are put")
    given = parser.parse_args()
    tokens = [given.peers, "-c", TOKENIZE, given.model, given.text, str(given.tokens)]
    ids = pathlib.Path(given.folder) / "bench-eval-ids.json"
    ids.write_text(subprocess.run(tokens, check=True, capture_output=True, text=True).stdout)
    seconds: dict[str, list[float]] = {"octavo": [], "float32": [], "bfloat16": []}
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
            losses[side] = seen["loss"]
    ids.unlink()
    median = {side: statistics.median(runs) for side, runs in seconds.items()}
    best = min(median["float32"], median["bfloat16"])
    for side, value in median.items():
        rate = given.tokens / value
        print(f"{side:10} {value:8.2f} s  {rate:8.1f} tokens/s  loss {losses[side]:.6f}")
    print(f"octavo is {best / median['octavo']:.2f} x the faster of the others; asked for: 1.0")
    print(json.dumps({"seconds": seconds, "losses": losses, "threads": given.threads}))
    if best < median["octavo"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
