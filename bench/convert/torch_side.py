"""torch's side of a case: copy_ between tensors of the two dtypes. None where torch has no such dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cases import Case


def prepare(case: Case, values: torch.Tensor) -> Callable[[], object] | None:
    dtype = getattr(torch, f"float8_{case.format}", None)
    if dtype is None or case.options:
        return None
    codes = values.to(dtype)
    if case.way == "encode":
        return lambda: codes.copy_(values)
    out = torch.empty_like(values)
    return lambda: out.copy_(codes)
