"""ml_dtypes' side of a case: numpy.copyto between arrays of the two dtypes. It uses one core."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import octavo as ov
import torch
from cases import Case


def prepare(case: Case, values: torch.Tensor) -> Callable[[], object] | None:
    bits = ov.format(case.format).bits
    dtype = getattr(ml_dtypes, f"float{bits}_{case.format}", None)
    if dtype is None or case.values != "float32":
        return None
    source = values.numpy()
    codes = source.astype(dtype)
    if case.way == "encode":
        return lambda: np.copyto(codes, source, casting="unsafe")
    out = np.empty_like(source)
    return lambda: np.copyto(out, codes, casting="unsafe")
