"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from bench.common.interleave import in_turns
from bench.common.memory import copy_of, empty
from bench.common.workers import worker_threads
from bench.convert import ml_dtypes_side, octavo_side, torch_side
from bench.convert.cases import CASES, Case

ELEMENTS = 1 << 24
TURNS = 9


def run(case: Case, values: torch.Tensor, threads: int) -> dict[str, object]:
    copy = empty(tuple(values.shape), values.dtype)
    functions: dict[str, Callable[[], object]] = {
        "octavo": octavo_side.prepare(case, values, threads),
        "copy": lambda: copy.copy_(values),
    }
    if case.rival == "torch":
        functions["torch"] = torch_side.prepare(case, values)
    if case.rival == "ml_dtypes":
        functions["ml_dtypes"] = ml_dtypes_side.prepare(case, values)
    if case.rival == "nearest_even":
        plain = Case(case.way, case.values, case.format, "", 0.0)
        functions["nearest_even"] = octavo_side.prepare(plain, values, threads)
    seconds = in_turns(functions, 3 if case.rival == "ml_dtypes" else TURNS)
    bytes_moved = ELEMENTS * (case.value_bytes + 1)
    copy_rate = 2 * ELEMENTS * case.value_bytes / seconds["copy"]
    rate = ELEMENTS / seconds["octavo"] / 1e9
    result: dict[str, object] = {
        "case": case.name,
        "way": case.way,
        "gel_per_s": rate,
        "of_copy": bytes_moved / seconds["octavo"] / copy_rate,
        "rival": case.rival,
        "at_least": case.at_least,
    }
    if case.rival:
        result["rival_gel_per_s"] = ELEMENTS / seconds[case.rival] / 1e9
        result["ratio"] = seconds[case.rival] / seconds["octavo"]
        result["holds"] = result["ratio"] >= case.at_least
    else:
        result["holds"] = rate / threads >= case.at_least
    return result


def main() -> None:
    threads = worker_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    normal = torch.randn(ELEMENTS)
    values = {name: copy_of(normal, dtype) for name, dtype in octavo_side.TORCH_DTYPES.items()}
    for case in CASES:
        print(json.dumps(run(case, values[case.values], threads)), flush=True)


if __name__ == "__main__":
    main()
