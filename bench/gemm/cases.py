"""The GEMM cases that are timed, and the speed that each must reach."""

from __future__ import annotations

import dataclasses

# M, N, K.
SHAPES = [(1024, 1024, 1024), (2048, 2048, 2048), (16, 4096, 4096), (1, 4096, 4096)]
QUICK_SHAPES = [(128, 128, 128), (16, 256, 256), (1, 256, 256)]
RIVALS = ("torch f32", "torch bf16", "torch._scaled_mm")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    a: str  # a dtype of values, or a preset
    b: str
    at_least: dict[str, float]  # times a rival's speed
    # The microkernels' instructions, fastest first: fractions are of the first that the CPU has.
    peaks: tuple[str, ...]

    def asked(self, shape: tuple[int, int, int]) -> dict[str, float]:
        """GEMV: a rival that decodes all weights first is much slower, so more is asked."""
        if shape[0] == 1 and "torch._scaled_mm" in self.at_least:
            return self.at_least | {"torch._scaled_mm": 10.0}
        return self.at_least


_FP8 = {"torch bf16": 0.92, "torch._scaled_mm": 3.2}
_WIDE = ("bfmmla", "fmla_f32")
_INTEGER = ("smmla", "sdot", "fmla_f32")
CASES = [
    Case("f32", "float32", "float32", {"torch f32": 1.0}, ("fmla_f32",)),
    Case("bf16", "bfloat16", "bfloat16", {"torch bf16": 1.0}, _WIDE),
    Case("e4m3 per tensor", "fp8", "fp8", _FP8, _WIDE),
    Case("e4m3 per row", "fp8-channel", "fp8-channel", _FP8, _WIDE),
    Case("e4m3 1x128 x 128x128", "fp8-1x128", "fp8-block", {"torch bf16": 0.85}, _WIDE),
    Case("mxfp8", "mxfp8", "mxfp8", {"torch bf16": 0.85}, _WIDE),
    Case("mxfp4", "mxfp4", "mxfp4", {"torch bf16": 1.1}, _INTEGER),
    Case("nvfp4", "nvfp4", "nvfp4", {"torch bf16": 0.9}, _INTEGER),
]
OUTPUTS = ("float32", "bfloat16")
