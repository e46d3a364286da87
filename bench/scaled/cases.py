"""Casts with a factor that are timed, and the targets: how many times eager torch's speed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    way: str  # "encode", "decode", or "fp8_decode": of what fp8_quantize returns
    values: str  # the value dtype
    format: str
    factor: str  # "3.0", "0.3" (no f32), "rows", "columns", "power_of_two", "value", "quantize"
    by: str = "inv_scale"  # or "scale": decodes multiply
    at_least: float = 3.0

    @property
    def name(self) -> str:
        ends = (self.values, self.format) if self.way == "encode" else (self.format, self.values)
        by = "" if self.by == "inv_scale" else f", {self.by}"
        return f"{ends[0]} -> {ends[1]}, {self.factor}{by}"


def of(ways: str, values: str, formats: str, factors: str, by: str = "inv_scale") -> list[Case]:
    """Every combination of words."""
    return [
        Case(way, value, name, factor, by)
        for way in ways.split()
        for value in values.split()
        for name in formats.split()
        for factor in factors.split()
    ]


CASES = [
    *of(
        "encode", "bfloat16 float32", "e4m3fn e5m2 e3m4", "3.0 0.3 rows columns power_of_two value"
    ),
    *of("decode", "bfloat16 float32", "e4m3fn e5m2 e3m4", "3.0 0.3 rows columns"),
    *of("decode", "bfloat16 float32", "e4m3fn e5m2", "3.0 0.3 rows", by="scale"),
    *of("encode decode", "float16", "e4m3fn e5m2", "3.0 rows"),
    # Fixed point (sign and magnitude), and a format without a sign.
    *of("encode", "bfloat16 float32", "e0m7 e4m4fnu", "3.0 value"),
    *of("decode", "bfloat16 float32", "e0m7 e4m4fnu", "3.0"),
    *of("fp8_decode", "bfloat16 float32", "e4m3fn e5m2", "quantize", by="scale"),
]
