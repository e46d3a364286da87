"""ml_dtypes' side of a case: numpy.copyto between arrays of the two dtypes. It uses one core."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch

import octavo as ov
from bench.common.memory import empty
from bench.convert.cases import Case


def prepare(case: Case, values: torch.Tensor) -> Callable[[], object] | None:
    bits = ov.format(case.format).bits
    dtype = getattr(ml_dtypes, f"float{bits}_{case.format}", None)
    if dtype is None or case.values != "float32":
        return None
    source = values.numpy()
    codes = empty(tuple(values.shape), torch.uint8).numpy().view(dtype)
    np.copyto(codes, source, casting="unsafe")
    if case.way == "encode":
        return lambda: np.copyto(codes, source, casting="unsafe")
    out = empty(tuple(values.shape), values.dtype).numpy()
    return lambda: np.copyto(out, codes, casting="unsafe")
