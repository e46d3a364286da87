"""octavo's side of a case: a function that converts once into an output that exists already."""

from __future__ import annotations

from collections.abc import Callable

import torch

import octavo as ov
from bench.common.memory import empty
from bench.convert.cases import Case

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def prepare(case: Case, values: torch.Tensor, threads: int) -> Callable[[], object]:
    codes = empty(tuple(values.shape), torch.uint8)
    if case.way == "encode":
        options = dict(case.options)
        return lambda: ov.encode(values, case.format, out=codes, threads=threads, **options)
    ov.encode(values, case.format, out=codes)
    out = empty(tuple(values.shape), values.dtype)
    return lambda: ov.decode(codes, case.values, format=case.format, out=out, threads=threads)
