"""Arrays in huge pages, for all sides of a case: no side is timed for walking page tables."""

from __future__ import annotations

import math
import mmap

import torch

_HUGE_PAGE = 2 << 20


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(shape)
    size = count * torch.empty((), dtype=dtype).element_size()
    memory = mmap.mmap(-1, -(-size // _HUGE_PAGE) * _HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)


def copy_of(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = empty(tuple(values.shape), dtype)
    out.copy_(values)
    return out
