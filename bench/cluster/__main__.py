"""Plans and simulates models of a trillion parameters; see README.md."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cluster.published import MODELS, write

ROOT = Path(__file__).resolve().parents[2]
WORLDS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
MOST_SECONDS, MOST_BYTES = 10.0, 300e6
# What a core of ours quantizes to NVFP4, by bytes of a bf16 source (bench/checkpoint).
RATE = 0.45e9


def run(program: Path, *words: object) -> tuple[str, float, float]:
    """Its output, seconds, and the peak of its memory in bytes."""
    start = time.monotonic()
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    # The largest of all children so far: the models are planned from small to large.
    return done.stdout, seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024.0


def bound(files: int, world: int) -> float:
    each = files / world
    return 1.05 if each >= 20 else 1 + 1 / each


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/octavo")
    parser.add_argument("--folder", type=Path, help="where the sparse files are put")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is missed")
    arguments = parser.parse_args()
    missed = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        for model in MODELS:
            folder = Path(made) / model.name
            total = write(model, folder)
            plan = folder.with_suffix(".json")
            words = ("plan", folder, "--recipe", "nvfp4", "-o", plan)
            said, seconds, memory = run(arguments.program, *words)
            count = sum(1 for _ in model.tensors())
            print(
                f"{model.name}: {count} tensors, {total / 1e12:.2f} TB; planned in {seconds:.1f} s "
                f"and {memory / 1e6:.0f} MB; the plan has {plan.stat().st_size / 1e6:.0f} MB"
            )
            print("  " + said.splitlines()[0])
            if seconds > MOST_SECONDS or memory > MOST_BYTES:
                missed.append(f"{model.name}: {seconds:.1f} s, {memory / 1e6:.0f} MB")
            for size in (None, "2G"):
                if size is not None:
                    run(arguments.program, *words[:-1], plan, "--shard-size", size)
                worlds = ",".join(map(str, WORLDS))
                said, _, _ = run(arguments.program, "plan", plan, "--simulate", worlds, "--json")
                print(f"  shards: {'as the source has them' if size is None else size}")
                print("  processes  files of each  TB of the slowest  slowest/mean  bound", end="")
                print("  minutes at 16 cores each  GB/s of storage")
                for one in json.loads(said)["simulated"]:
                    limit = bound(one["files"], one["world"])
                    seconds = one["most_bytes"] / (16 * RATE)
                    files = f"{one['fewest_files']}-{one['most_files']}"
                    print(
                        f"  {one['world']:9}  {files:>13}  {one['most_bytes'] / 1e12:17.3f}"
                        f"  {one['balance']:12.3f}  {limit:5.2f}  {seconds / 60:24.1f}"
                        f"  {one['bytes'] / seconds / 1e9:15.1f}"
                    )
                    if one["balance"] > limit:
                        missed.append(f"{model.name}, {one['world']}: {one['balance']:.3f}")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
