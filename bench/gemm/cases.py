"""The GEMM cases that are timed, and the speed that each must reach."""

from __future__ import annotations

import dataclasses

# M, N, K.
SHAPES = [(n, n, n) for n in (1024, 2048, 4096)] + [(16, 4096, 4096), (1, 4096, 4096)]
QUICK_SHAPES = [(128, 128, 128), (16, 256, 256), (1, 256, 256)]
RIVALS = ("torch f32", "torch bf16", "torch._scaled_mm")
FEW_ROWS = 16  # up to which weights are timed packed, too


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    a: str  # a dtype of values, or a preset
    b: str
    at_least: dict[str, float]  # times a rival's speed, of large products
    # The microkernels' instructions, fastest first: fractions are of the first that the CPU has.
    peaks: tuple[str, ...]
    by_one_row: float = 1.0  # times torch bf16
    packed: bool = False  # the weights are, beforehand

    def asked(self, shape: tuple[int, int, int]) -> dict[str, float]:
        if shape[0] > FEW_ROWS or self.name == "f32":
            return self.at_least
        few = 1.3 if self.packed else max(1.0, self.at_least["torch bf16"])
        asked = {"torch bf16": self.by_one_row if shape[0] == 1 else few}
        if "torch._scaled_mm" in self.at_least:
            # GEMV: a rival that decodes all weights first is much slower, so more is asked.
            asked["torch._scaled_mm"] = 10.0 if shape[0] == 1 else 3.2
        return asked


_FP8 = {"torch bf16": 1.0, "torch._scaled_mm": 3.2}
_WIDE = ("bfmmla", "fmla_f32")
_INTEGER = ("smmla", "sdot", "fmla_f32")
CASES = [
    Case("f32", "float32", "float32", {"torch f32": 1.0}, ("fmla_f32",)),
    Case("bf16", "bfloat16", "bfloat16", {"torch bf16": 1.05}, _WIDE),
    Case("e4m3 per tensor", "fp8", "fp8", _FP8, _WIDE, 2.5),
    Case("e4m3 per row", "fp8-channel", "fp8-channel", _FP8, _WIDE, 2.5),
    Case("e4m3 1x128 x 128x128", "fp8-1x128", "fp8-block", {"torch bf16": 1.0}, _WIDE, 2.5),
    Case("mxfp8", "mxfp8", "mxfp8", {"torch bf16": 0.97}, _WIDE, 2.5),
    Case("mxfp4", "mxfp4", "mxfp4", {"torch bf16": 1.1}, _INTEGER, 3.0),
    Case("nvfp4", "nvfp4", "nvfp4", {"torch bf16": 0.95}, _WIDE, 3.0),
]
OUTPUTS = ("float32", "bfloat16")


def cases_of(shape: tuple[int, int, int]) -> list[Case]:
    if shape[0] > FEW_ROWS:
        return CASES
    packed = [
        dataclasses.replace(case, name=f"{case.name}, packed", packed=True)
        for case in CASES
        if case.name != "f32"
    ]
    return CASES + packed
