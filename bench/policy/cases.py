"""The searches that are timed, and how many times the CPU seconds of policy max each may take."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    preset: str
    policy: str
    at_most: float | None  # times the CPU time of max; None: only shown
    tile_cols: int | None = None  # instead of the preset's

    @property
    def name(self) -> str:
        tile = f" 1x{self.tile_cols}" if self.tile_cols else ""
        return f"{self.preset}{tile} {self.policy}"


VALUES = ("float32", "bfloat16")
CASES = [
    Case("nvfp4", "mse", 6.0),
    Case("nvfp4", "4over6", 3.0),
    Case("nvfp4", "wmse", 12.0),
    Case("nvfp4", "modelopt_sweep", None),  # all 126 codes, for its bytes
    Case("mxfp4", "mse", 6.0),
    Case("mxfp4", "wmse", None),
    *(
        Case(preset, f"percentile:{percent}", 4.0, cols)
        for preset, cols in (
            ("nvfp4", None),  # tiles of 16
            ("mxfp4", None),  # of 32
            ("mxfp8", None),
            ("fp8-1x128", 64),
            ("fp8-1x128", None),
        )
        for percent in (90, 99)
    ),
    Case("mxfp8", "mse", None),
    Case("fp8-1x128", "mse", None),
    Case("fp8-block", "mse", None),
]
