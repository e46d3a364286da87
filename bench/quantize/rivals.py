"""The other libraries' calls of a case: functions that quantize once."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from bench.quantize.cases import Case

E4M3_MAX = 448.0


def torch_eager(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Per-tensor current scaling as a plain torch expression."""
    scale = values.abs().amax().float() / E4M3_MAX
    scaled = (values.float() / scale).clamp(-E4M3_MAX, E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn), scale


def torchao(case: Case, values: torch.Tensor) -> Callable[[], object]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.prototype.mx_formats.config import ScaleCalculationMode
        from torchao.prototype.mx_formats.mx_tensor import to_mx
        from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize
    if case.preset == "nvfp4":
        # The tensor's scale is part of the job on both sides.
        return lambda: nvfp4_quantize(values, 16, values.abs().amax().float() / (E4M3_MAX * 6.0))
    element = torch.float8_e4m3fn if case.preset == "mxfp8" else torch.float4_e2m1fn_x2
    return lambda: to_mx(values, element, 32, ScaleCalculationMode.RCEIL)
