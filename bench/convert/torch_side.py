"""torch's side of a case: copy_ between tensors of the two dtypes.

None where torch has no such dtype.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.common.memory import copy_of, empty
from bench.convert.cases import Case


def prepare(case: Case, values: torch.Tensor) -> Callable[[], object] | None:
    dtype = getattr(torch, f"float8_{case.format}", None)
    if dtype is None or case.options:
        return None
    codes = copy_of(values, dtype)
    if case.way == "encode":
        return lambda: codes.copy_(values)
    out = empty(tuple(values.shape), values.dtype)
    return lambda: out.copy_(codes)
