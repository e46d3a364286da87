"""Types of elements by Transformer Engine's names."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from octavo._dtypes import as_format
from octavo._octavo import Format

VALUES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


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
