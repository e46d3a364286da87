"""Casts with a factor that are timed, and the targets: how many times eager torch's speed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    way: str  # "encode" or "decode"
    values: str  # the value dtype
    format: str
    factor: str  # "3.0", "0.3" (no f32), "rows", "columns", "power_of_two", "value"
    at_least: float = 3.0

    @property
    def name(self) -> str:
        ends = (self.values, self.format) if self.way == "encode" else (self.format, self.values)
        return f"{ends[0]} -> {ends[1]}, {self.factor}"


CASES = [
    Case(way, values, name, factor)
    for way in ("encode", "decode")
    for values in ("bfloat16", "float32")
    for name in ("e4m3fn", "e5m2", "e3m4")
    for factor in ("3.0", "0.3", "rows", "columns", "power_of_two", "value")
    if way == "encode" or factor in ("3.0", "0.3", "rows", "columns")
]
