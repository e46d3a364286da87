"""Models that run: evaluation beside transformers."""

from __future__ import annotations

import statistics

from .results import Result, section, table, times


def evaluation(result: Result) -> str:
    data = result.data
    wall = {side: statistics.median(runs) for side, runs in data["seconds"].items()}
    cpu = {side: statistics.median(runs) for side, runs in data["cpu_seconds"].items()}
    names = {
        "octavo": "`octavo eval`, bfloat16 weights",
        "float32": "transformers, float32",
        "bfloat16": "transformers, bfloat16",
    }
    sides = [side for side in names if side in wall]
    rivals = [side for side in sides if side != "octavo"]
    rows = [
        [
            names[side],
            f"{wall[side]:.2f} s",
            f"{cpu[side]:.2f} s",
            f"{data['tokens'] / wall[side]:.0f}",
            f"{data['losses'][side]:.6f}",
        ]
        for side in sides
    ]
    best = {kind: min(of[side] for side in rivals) for kind, of in (("wall", wall), ("cpu", cpu))}
    return section(
        f"### Evaluating a model, {result.machine_name}",
        f"{data['model']}, {data['tokens']} tokens in windows of {data['window']}, "
        f"{data['threads']} thread{'s' * (data['threads'] != 1)}, load {data['load']:.1f} from "
        f"other processes (transformers {data['transformers']}, torch {data['torch']}). octavo "
        "reads its files layer by layer within that time; the CPU time is that of its process.",
        table(["", "time", "CPU time", "tokens/s", "loss"], rows),
        f"octavo has {times(best['wall'] / wall['octavo'])} the speed of the faster rival, by CPU "
        f"time {times(best['cpu'] / cpu['octavo'])}; the bar is 1.",
        result.measured("python -m bench.eval.run"),
    )
