"""The quantizations that are timed, and the speed that each must reach."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    preset: str
    values: str  # the value dtype
    rival: (
        str  # "torchao", "torch" (an eager expression), "two passes" (ours), "" (an absolute rate)
    )
    at_least: float  # a ratio; without a rival a rate in Gel/s a core
    columnwise: bool = False

    @property
    def name(self) -> str:
        both = " rows and columns" if self.columnwise else ""
        return f"{self.values} -> {self.preset}{both}"


CASES = [
    Case("mxfp8", "float32", "torchao", 3.5),
    Case("mxfp8", "bfloat16", "torchao", 3.5),
    Case("mxfp4", "float32", "torchao", 15.0),
    Case("mxfp4", "bfloat16", "torchao", 15.0),
    Case("nvfp4", "float32", "torchao", 15.0),
    Case("nvfp4", "bfloat16", "torchao", 15.0),
    Case("fp8", "float32", "torch", 4.0),
    Case("fp8", "bfloat16", "torch", 4.0),
    Case("mxfp8", "float32", "", 1.8),
    Case("mxfp8", "bfloat16", "", 2.4),
    Case("mxfp8", "float32", "two passes", 1.15, columnwise=True),
    Case("mxfp8", "bfloat16", "two passes", 1.15, columnwise=True),
    Case("mxfp8", "float32", "rows alone", 0.45, columnwise=True),
    Case("mxfp8", "bfloat16", "rows alone", 0.45, columnwise=True),
]
