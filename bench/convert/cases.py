"""Conversions that are timed, and their targets: at_least times a rival's speed, or a rate."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    way: str  # "encode" or "decode"
    values: str  # the value dtype
    format: str
    rival: str  # "torch", "ml_dtypes", "nearest_even" (ours) or "" (an absolute rate)
    at_least: float  # a ratio; without a rival a rate in Gel/s
    options: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        ends = (self.values, self.format) if self.way == "encode" else (self.format, self.values)
        extra = "".join(f" {value}" for _, value in self.options)
        return f"{ends[0]} -> {ends[1]}{extra}"

    @property
    def value_bytes(self) -> int:
        return {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}[self.values]


def _torch() -> list[Case]:
    bars = {
        ("encode", "float32", "e4m3fn"): 2.1,
        ("encode", "bfloat16", "e4m3fn"): 3.3,
        ("decode", "float32", "e4m3fn"): 5.0,
        ("decode", "bfloat16", "e4m3fn"): 8.0,
        ("encode", "float32", "e5m2"): 2.0,
        ("decode", "float32", "e5m2"): 2.0,
        ("encode", "bfloat16", "e5m2"): 2.0,
        ("decode", "bfloat16", "e5m2"): 2.0,
        ("encode", "float16", "e4m3fn"): 1.0,
        ("decode", "float16", "e4m3fn"): 1.0,
    }
    return [Case(way, values, name, "torch", bar) for (way, values, name), bar in bars.items()]


def _ml_dtypes() -> list[Case]:
    # ml_dtypes maps NaN to zero in the small formats; so do we here, instead of searching for it.
    nan = (("nan", "zero"),)
    cases = []
    for name in ("e2m1fn", "e3m2fn", "e2m3fn"):
        cases.append(Case("encode", "float32", name, "ml_dtypes", 10.0, nan))
        cases.append(Case("decode", "float32", name, "ml_dtypes", 10.0))
    cases.append(Case("encode", "float32", "e8m0fnu", "ml_dtypes", 10.0))
    cases.append(Case("decode", "float32", "e8m0fnu", "ml_dtypes", 10.0))
    return cases


def _modes() -> list[Case]:
    roundings = ("nearest_away", "toward_zero", "up", "down", "to_odd", "stochastic")
    overflows = ("propagate", "saturate_finite", "ieee")
    cases = []
    for name in ("e4m3fn", "e5m2"):
        cases += [
            Case("encode", "float32", name, "nearest_even", 0.7, (("rounding", r),))
            for r in roundings
        ]
        cases += [
            Case("encode", "float32", name, "nearest_even", 0.7, (("overflow", o),))
            for o in overflows
        ]
    return cases


CASES = [
    *_torch(),
    *_ml_dtypes(),
    Case("encode", "float32", "e3m3", "", 1.0),
    Case("decode", "float32", "e3m3", "", 1.0),
    *_modes(),
]
