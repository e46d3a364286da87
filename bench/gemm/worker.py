"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

import octavo as ov
from bench.common.interleave import in_turns
from bench.common.memory import copy_of, empty
from bench.common.peaks import begin_beside_torch
from bench.gemm import rivals
from bench.gemm.cases import OUTPUTS, QUICK_SHAPES, RIVALS, SHAPES, Case, cases_of

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def operand(values: torch.Tensor, kind: str) -> object:
    return copy_of(values, DTYPES[kind]) if kind in DTYPES else ov.quantize(values, kind)


def octavo_side(
    case: Case, x: torch.Tensor, w: torch.Tensor, out: str, threads: int
) -> Callable[[], object]:
    a, b = operand(x, case.a), operand(w, case.b)
    if case.packed:
        b = ov.pack(b, threads=threads)
    result = empty((x.shape[0], w.shape[0]), DTYPES[out])
    return lambda: ov.gemm(a, b, out=result, threads=threads)


def turns_of(shape: tuple[int, int, int], quick: bool) -> int:
    m, n, k = shape
    return 2 if quick else 3 if m * n * k > 2**31 else 7


def rows(
    shape: tuple[int, int, int], threads: int, peaks: dict[str, float], quick: bool
) -> list[dict[str, object]]:
    m, n, k = shape
    x, w = torch.randn(m, k), torch.randn(n, k)
    functions = rivals.sides(x, w)
    ours = [(case, out, f"{case.name} -> {out}") for case in cases_of(shape) for out in OUTPUTS]
    for case, out, name in ours:
        functions[name] = octavo_side(case, x, w, out, threads)
    seconds = in_turns(functions, turns_of(shape, quick))
    speed = {name: 2e-9 * m * n * k / taken for name, taken in seconds.items()}
    made: list[dict[str, object]] = []
    for case, out, name in ours:
        ratios = {rival: speed[name] / speed[rival] for rival in RIVALS}
        asked = case.asked(shape)
        peak = next((one for one in case.peaks if one in peaks), None)
        row: dict[str, object] = {
            "case": case.name,
            "out": out,
            "shape": list(shape),
            "gflops": speed[name],
            "rivals": {rival: speed[rival] for rival in RIVALS},
            "ratios": ratios,
            "at_least": asked,
            "peak": peak,
            "of_peak": None if peak is None else speed[name] / (threads * peaks[peak]),
        }
        if not quick:  # small shapes on a busy machine say nothing
            row["holds"] = all(ratios[rival] >= least for rival, least in asked.items())
        made.append(row)
    return made


def main() -> None:
    threads, quick, peaks = begin_beside_torch()
    for shape in QUICK_SHAPES if quick else SHAPES:
        for row in rows(shape, threads, peaks, quick):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
