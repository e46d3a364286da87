"""How long a plan takes, and how evenly processes share it."""

from __future__ import annotations

import json
from pathlib import Path

from bench.cluster.published import MODELS, write
from bench.cluster.running import run

WORLDS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
# Of planning 2 TB. A model of fewer bytes may have more tensors, which is what memory goes with.
LARGE, MOST_SECONDS, MOST_BYTES = 2e12, 10.0, 300e6
CORES = 16  # of each machine that is simulated


def bound(files: int, world: int) -> float:
    each = files / world
    return 1.05 if each >= 20 else 1 + 1 / each


def simulated(program: Path, plan: Path, rate: float) -> list[dict[str, float]]:
    worlds = ",".join(map(str, WORLDS))
    said = run(program, "plan", plan, "--simulate", worlds, "--json")
    print("  processes  files of each  TB of the slowest  slowest/mean  bound", end="")
    print(f"  seconds at {CORES} cores each  GB/s of storage")
    rows = json.loads(said.out)["simulated"]
    for one in rows:
        one["bound"] = bound(one["files"], one["world"])
        one["seconds"] = seconds = one["most_bytes"] / (CORES * rate)
        one["gigabytes_per_second"] = one["bytes"] / seconds / 1e9
        files = f"{one['fewest_files']}-{one['most_files']}"
        print(
            f"  {one['world']:9}  {files:>13}  {one['most_bytes'] / 1e12:17.3f}"
            f"  {one['balance']:12.3f}  {one['bound']:5.2f}  {seconds:24.1f}"
            f"  {one['gigabytes_per_second']:15.1f}"
        )
    return rows


def planned(program: Path, made: Path, rate: float) -> tuple[list[dict], list[str]]:
    """`rate`: bytes that a core reads, reads again and writes in a second (processes.py)."""
    rows, missed = [], []
    for model in MODELS:
        folder = made / model.name
        total = write(model, folder)
        plan = folder.with_suffix(".json")
        words = ("plan", folder, "--recipe", "nvfp4", "-o", plan)
        took = run(program, *words)
        count = sum(1 for _ in model.tensors())
        print(
            f"{model.name}: {count} tensors, {total / 1e12:.2f} TB; planned in "
            f"{took.seconds:.1f} s ({took.cpu_seconds:.1f} s of CPU) and "
            f"{took.bytes / 1e6:.0f} MB; the plan has {plan.stat().st_size / 1e6:.0f} MB"
        )
        print("  " + took.out.splitlines()[0])
        if total >= LARGE and (took.seconds > MOST_SECONDS or took.bytes > MOST_BYTES):
            missed.append(f"{model.name}: {took.seconds:.1f} s, {took.bytes / 1e6:.0f} MB")
        row = {
            "model": model.name,
            "tensors": count,
            "bytes": total,
            "seconds": took.seconds,
            "cpu_seconds": took.cpu_seconds,
            "peak_bytes": took.bytes,
            "plan_bytes": plan.stat().st_size,
        }
        for size in (None, "2G"):
            if size is not None:
                run(program, *words, "--shard-size", size)
            print(f"  shards: {'as the source has them' if size is None else size}")
            shared = simulated(program, plan, rate)
            row["simulated" if size is None else f"simulated_{size}"] = shared
            missed += [
                f"{model.name}, {one['world']}: {one['balance']:.3f}"
                for one in shared
                if one["balance"] > one["bound"]
            ]
        rows.append(row)
    return rows, missed
