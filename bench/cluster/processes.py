"""What several processes gain on one machine, and what a plan costs."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from pathlib import Path

from bench.checkpoint.model import SHAPES, write_model
from bench.cluster.running import run, together

ROUNDS, TURNS = 3, 9
LEAST_GAIN, MOST_OVERHEAD = 1.8, 0.03


def processes(program: Path, made: Path) -> tuple[dict, list[str]]:
    model, out, plan = made / "model", made / "out", made / "model.json"
    size = write_model(model, SHAPES["1.1b"])
    cores = sorted(os.sched_getaffinity(0))[:2]
    # Search: the scale of each block is the best of several (NVFP4, policy mse).
    search = ("--recipe", "nvfp4", "--scale-policy", "mse")
    other = made / "other"

    def words(rank: int, world: int, to: Path = out) -> list[object]:
        named = ("quantize", "--plan", plan, "-o", to, "--threads", 1)
        return [*named, "--rank", rank, "--world", world]

    def cleared() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(other, ignore_errors=True)
        os.sync()

    on = [{core} for core in cores]
    turns = {
        "one": lambda: together(program, [words(0, 1)], on[:1]),
        "two": lambda: together(program, [words(0, 2), words(1, 2)], on),
        # What two cores give two processes that share nothing.
        "apart": lambda: together(program, [words(0, 1), words(0, 1, other)], on),
    }
    run(program, "plan", model, "-o", plan, *search, "--shard-size", "25M")
    times: dict[str, list[float]] = {name: [] for name in turns}
    cpu: dict[str, list[list[float]]] = {name: [] for name in turns}
    for _ in range(ROUNDS):
        for name, work in turns.items():
            cleared()
            seconds, of_each = work()
            times[name].append(seconds)
            cpu[name].append(of_each)
    best = {name: min(seconds) for name, seconds in times.items()}
    gain, most = best["one"] / best["two"], 2 * best["one"] / best["apart"]
    # What two cores of their own would give, from the CPU time of the one that has more: a busy
    # machine does not change it, and waiting for each other is not in it.
    by_cpu = min(cpu["one"])[0] / min(max(of_each) for of_each in cpu["two"])
    print(
        f"NVFP4 with search, {size / 1e9:.1f} GB: one process on one core {best['one']:.1f} s, two "
        f"on two {best['two']:.1f} s: {gain:.2f} times as fast; two that share nothing do "
        f"{most:.2f} times as much in a second; by CPU time alone {by_cpu:.2f} times as fast"
    )
    # What the plan adds to plain quantizing, on all cores.
    took: dict[str, list[float]] = {"plain": [], "plan": [], "planned": []}
    for _ in range(TURNS):
        cleared()
        took["plain"].append(
            run(program, "quantize", model, "-o", out, "--recipe", "nvfp4").seconds
        )
        cleared()
        took["plan"].append(run(program, "plan", model, "-o", plan, "--recipe", "nvfp4").seconds)
        took["planned"].append(run(program, "quantize", "--plan", plan, "-o", out).seconds)
    cleared()
    said = run(program, "plan", plan, "--simulate", 1, "--json").out
    moved = json.loads(said)["simulated"][0]["bytes"]
    middle = {name: statistics.median(seconds) for name, seconds in took.items()}
    overhead = (middle["plan"] + middle["planned"]) / middle["plain"] - 1
    print(
        f"NVFP4, {size / 1e9:.1f} GB: plain {middle['plain']:.2f} s; a plan {middle['plan']:.3f} s "
        f"and by the plan {middle['planned']:.2f} s: {100 * overhead:+.1f} %"
    )
    rate = moved / middle["plain"] / (os.cpu_count() or 1)
    print(f"a core reads, reads again and writes {rate / 1e9:.2f} GB/s, NVFP4 without search")
    missed = []
    if gain < LEAST_GAIN:
        missed.append(f"two processes: {gain:.2f} times one")
    if overhead > MOST_OVERHEAD:
        missed.append(f"overhead of planning: {100 * overhead:.1f} %")
    rows = {
        "bytes": size,
        "search_seconds": times,
        "search_cpu_seconds": cpu,
        "gain": gain,
        "gain_by_cpu_time": by_cpu,
        "gain_of_two_apart": most,
        "plain_and_planned_seconds": took,
        "overhead": overhead,
        "plan_share": middle["plan"] / middle["plain"],
        "bytes_of_a_core_second": rate,
    }
    return rows, missed
