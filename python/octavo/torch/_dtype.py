"""Types of elements by Transformer Engine's names."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from octavo._dtypes import as_format
from octavo._octavo import Format

VALUES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def under_autocast(x: torch.Tensor) -> torch.Tensor:
    """What an operation that torch.autocast lowers gets: of its type, but for float64."""
    kind = x.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return x
    lowers = x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype(kind)) if lowers else x


def check_same_dtype(op: str, **tensors: torch.Tensor) -> None:
    """TypeError where they differ, as torch has it: none is converted in silence."""
    if len({x.dtype for x in tensors.values()}) > 1:
        got = ", ".join(f"{name} of {x.dtype}" for name, x in tensors.items())
        raise TypeError(f"[{op}] got {got}; expected one dtype; convert them with .to(dtype)")


class DType(Enum):
    """The value is octavo's name."""

    kFloat32 = "float32"
    kFloat16 = "float16"
    kBFloat16 = "bfloat16"
    kFloat8E4M3 = "e4m3fn"
    kFloat8E5M2 = "e5m2"
    kFloat8E8M0 = "e8m0fnu"
    kFloat4E2M1 = "e2m1fn"


def element_format(dtype: Any, op: str) -> Format:
    """The format of a DType, or of what octavo takes elsewhere."""
    return as_format(dtype.value if isinstance(dtype, DType) else dtype, op)


def dtype_of(format: Format) -> DType:
    """The other way."""
    for dtype in DType:
        if dtype.value == format.name:
            return dtype
    raise ValueError(
        f"[DType] {format.name} has no name of Transformer Engine's; it has "
        f"{', '.join(dtype.value for dtype in DType)}"
    )
