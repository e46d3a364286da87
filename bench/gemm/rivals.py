"""torch's GEMM calls: functions that compute one product."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.common.memory import copy_of, empty


def sides(x: torch.Tensor, w: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Of x [M, K] and w [N, K], into existing results where torch allows it."""
    made: dict[str, Callable[[], object]] = {}
    for name, dtype in (("torch f32", torch.float32), ("torch bf16", torch.bfloat16)):
        a, b = copy_of(x, dtype), copy_of(w, dtype)
        out = empty((x.shape[0], w.shape[0]), dtype)
        made[name] = lambda a=a, b=b, out=out: torch.mm(a, b.t(), out=out)
    a, b = copy_of(x, torch.float8_e4m3fn), copy_of(w, torch.float8_e4m3fn)
    one = torch.tensor(1.0)
    made["torch._scaled_mm"] = lambda: torch._scaled_mm(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32
    )
    return made
