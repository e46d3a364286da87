"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch

import octavo as ov
from bench.common.interleave import in_turns
from bench.common.memory import copy_of
from bench.common.workers import worker_arguments
from bench.policy.cases import CASES, VALUES, Case

SHAPE = (2048, 4096)
TURNS = 7
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def side(values: torch.Tensor, scaling: ov.Scaling, threads: int) -> Callable[[], object]:
    weights = torch.rand(values.shape[1]) + 0.5 if scaling.policy == "wmse" else None
    out = ov.quantize(values, scaling, column_weights=weights)
    return lambda: ov.quantize(values, scaling, out=out, threads=threads, column_weights=weights)


def searching(plain: ov.Scaling, policy: str) -> ov.Scaling:
    if policy == "modelopt_sweep":  # with its own arith; it makes no NaN
        return ov.Scaling(plain.format, plain.tile, scale=plain.scale, policy=policy, nan="zero")
    return plain.replace(policy=policy)


def run(case: Case, dtype: str, values: torch.Tensor, threads: int, turns: int) -> dict:
    plain = ov.preset(case.preset)
    if case.tile_cols:
        plain = plain.replace(tile=(1, case.tile_cols))
    sides = {
        "max": side(values, plain, threads),
        "search": side(values, searching(plain, case.policy), threads),
    }
    # CPU seconds of all threads: other processes do not count.
    seconds = in_turns(sides, turns, time.process_time)
    ratio = seconds["search"] / seconds["max"]
    row: dict[str, object] = {
        "case": f"{dtype} -> {case.name}",
        "max_ns": 1e9 * seconds["max"] / values.numel(),
        "ns": 1e9 * seconds["search"] / values.numel(),
        "ratio": ratio,
        "at_most": case.at_most,
    }
    if case.at_most is not None:
        row["holds"] = ratio <= case.at_most
    return row


def main() -> None:
    arguments = worker_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    normal = torch.randn(SHAPE[0] // (8 if arguments.quick else 1), SHAPE[1])
    for name in VALUES:
        values = copy_of(normal, DTYPES[name])
        for case in CASES:
            row = run(case, name, values, arguments.threads, 3 if arguments.quick else TURNS)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
