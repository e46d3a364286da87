"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

import octavo as ov
from bench.common.interleave import in_turns
from bench.common.memory import copy_of
from bench.common.workers import worker_threads
from bench.quantize import rivals
from bench.quantize.cases import CASES, Case

SHAPE = (4096, 4096)
TURNS = 7
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def octavo_side(values: torch.Tensor, scaling: ov.Scaling, threads: int) -> Callable[[], object]:
    out = ov.quantize(values, scaling)
    return lambda: ov.quantize(values, scaling, out=out, threads=threads)


def rival_of(case: Case, values: torch.Tensor, threads: int) -> Callable[[], object] | None:
    plain = ov.preset(case.preset)
    if case.rival == "torchao":
        return rivals.torchao(case, values)
    if case.rival == "torch":
        return lambda: rivals.torch_eager(values)
    if case.rival == "rows alone":
        return octavo_side(values, plain, threads)
    if case.rival == "two passes":
        rows = octavo_side(values, plain, threads)
        columns = octavo_side(values, plain.replace(rowwise=False, columnwise=True), threads)
        return lambda: (rows(), columns())
    return None


def run(case: Case, values: torch.Tensor, threads: int) -> dict[str, object]:
    scaling = ov.preset(case.preset).replace(columnwise=case.columnwise)
    functions = {"octavo": octavo_side(values, scaling, threads)}
    rival = rival_of(case, values, threads)
    if rival is not None:
        functions["rival"] = rival
    seconds = in_turns(functions, 3 if case.rival == "torchao" else TURNS)
    elements = values.numel()
    rate = elements / seconds["octavo"] / 1e9
    row: dict[str, object] = {
        "case": case.name,
        "gel_per_s": rate,
        "rival": case.rival,
        "at_least": case.at_least,
    }
    if rival is None:
        row["holds"] = rate / threads >= case.at_least
    else:
        row["rival_gel_per_s"] = elements / seconds["rival"] / 1e9
        row["ratio"] = seconds["rival"] / seconds["octavo"]
        row["holds"] = row["ratio"] >= case.at_least
    return row


def cost_of_mx(values: torch.Tensor, threads: int) -> dict[str, object]:
    """What block scales cost beside one scale for the tensor, in time and in bytes."""
    sides = {name: octavo_side(values, ov.preset(name), threads) for name in ("mxfp8", "fp8")}
    seconds = in_turns(sides, TURNS)
    sizes = {name: ov.quantize(values, name).nbytes for name in sides}
    return {
        "case": "mxfp8 beside per tensor",
        "time_percent": 100 * (seconds["mxfp8"] / seconds["fp8"] - 1),
        "bytes_percent": 100 * (sizes["mxfp8"] / sizes["fp8"] - 1),
    }


def main() -> None:
    threads = worker_threads()
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    normal = torch.randn(SHAPE)
    values = {name: copy_of(normal, dtype) for name, dtype in DTYPES.items()}
    for case in CASES:
        print(json.dumps(run(case, values[case.values], threads)), flush=True)
    print(json.dumps(cost_of_mx(values["float32"], threads)), flush=True)


if __name__ == "__main__":
    main()
