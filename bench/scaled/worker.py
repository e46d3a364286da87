"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch

import octavo as ov
from bench.common.interleave import in_turns
from bench.common.memory import copy_of, empty
from bench.common.workers import worker_arguments
from bench.scaled.cases import CASES, Case

SHAPE = (2048, 2048)
TURNS = 9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

Function = Callable[[], object]


def factor_of(case: Case, rows: int, cols: int) -> Any:
    if case.factor == "rows":
        return torch.linspace(0.5, 3, rows)[:, None]
    if case.factor == "columns":
        return torch.linspace(0.5, 3, cols)
    if case.factor == "quantize":  # as fp8_quantize returns it
        return torch.tensor(0.0123)
    return case.factor if case.factor in ("power_of_two", "value") else float(case.factor)


def own(case: Case, values: torch.Tensor, factor: Any, threads: int) -> Function:
    codes = empty(tuple(values.shape), torch.uint8)
    if case.way == "encode":
        return lambda: ov.encode_scaled(values, case.format, factor, out=codes, threads=threads)
    ov.encode_scaled(values, case.format, 1.0, out=codes)
    out = empty(tuple(values.shape), values.dtype)
    if case.way == "fp8_decode":
        return lambda: ov.fp8_decode(
            codes, format=case.format, scale=factor, out=out, threads=threads
        )
    by = {case.by: factor}
    return lambda: ov.decode_scaled(codes, format=case.format, out=out, threads=threads, **by)


def torch_factor(case: Case, values: torch.Tensor, factor: Any, largest: float) -> Any:
    if not isinstance(factor, str):
        return factor
    quotient = largest / values.abs().amax().float()
    return torch.exp2(torch.floor(torch.log2(quotient))) if factor != "value" else quotient


def rounded(x: torch.Tensor, f: ov.Format) -> torch.Tensor:
    """To a format that torch has not, with its own functions: values on the format's grid as f32,
    and their codes."""
    sign = torch.signbit(x).to(torch.int32) << f.bits - 1 if f.min < 0 else 0
    if f.exponent_bits == 0:
        steps = torch.round(x.abs() / f.smallest_subnormal).to(torch.int32)
        return (steps | sign).to(torch.uint8)
    exponent = torch.frexp(x)[1].clamp(min=1 - f.bias + 1)
    steps = torch.round(torch.ldexp(x.abs(), f.mantissa_bits + 1 - exponent)).to(torch.int32)
    field = steps + ((exponent + f.bias - 2) << f.mantissa_bits)
    return (field | sign).to(torch.uint8)


def torch_side(case: Case, values: torch.Tensor, factor: Any) -> Function:
    f = ov.format(case.format)
    dtype = getattr(torch, f"float8_{case.format}", None)
    if case.way == "encode":

        def encode() -> torch.Tensor:
            by = torch_factor(case, values, factor, f.max)
            product = (values.float() * by).clamp(f.min, f.max)
            return rounded(product, f) if dtype is None else product.to(dtype)

        return encode
    codes = ov.encode_scaled(values, case.format, 1.0)
    if dtype is None:
        table, raw = torch.from_numpy(f.values()).float(), codes.view(torch.uint8)
        return lambda: (table[raw.to(torch.int32)] / factor).to(values.dtype)
    if case.by == "scale":
        return lambda: (codes.float() * factor).to(values.dtype)
    return lambda: (codes.float() / factor).to(values.dtype)


def compiled(function: Function) -> Function | None:
    """None where torch cannot compile it here."""
    try:
        made: Function = torch.compile(function)
        made()
    except Exception:  # noqa: BLE001  # whatever its compiler raises
        return None
    return made


def run(case: Case, values: torch.Tensor, threads: int, turns: int, compiles: bool) -> dict:
    factor = factor_of(case, *values.shape)
    eager = torch_side(case, values, factor)
    sides = {"own": own(case, values, factor, threads), "eager": eager}
    made = compiled(eager) if compiles else None
    if made is not None:
        sides["compiled"] = made
    # CPU seconds of all threads: other processes do not count.
    seconds = in_turns(sides, turns, time.process_time)
    ratio = seconds["eager"] / seconds["own"]
    return {
        "case": case.name,
        "ms": 1e3 * seconds["own"],
        "eager_ms": 1e3 * seconds["eager"],
        "compiled_ms": 1e3 * seconds["compiled"] if made is not None else None,
        "ratio": ratio,
        "at_least": case.at_least,
        "holds": ratio >= case.at_least,
    }


def main() -> None:
    arguments = worker_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    normal = torch.randn(SHAPE[0] // (8 if arguments.quick else 1), SHAPE[1])
    for case in CASES:
        # Of magnitudes where the format has no sign.
        source = normal if ov.format(case.format).min < 0 else normal.abs()
        values = copy_of(source, DTYPES[case.values])
        turns = 3 if arguments.quick else TURNS
        row = run(case, values, arguments.threads, turns, not arguments.quick)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
