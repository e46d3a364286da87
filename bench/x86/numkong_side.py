"""NumKong's calls of a case, where it is installed: functions that run once, or None."""

from __future__ import annotations

from collections.abc import Callable

import torch

try:
    import numkong
except ImportError:
    numkong = None

NAMES = {"float32": "float32", "bfloat16": "bfloat16", "e4m3fn": "e4m3", "e5m2": "e5m2",
         "e2m3fn": "e2m3", "e3m2fn": "e3m2"}  # fmt: skip


def cast(values: torch.Tensor, way: str, dtype: str, name: str) -> Callable[[], object] | None:
    """Of an array of float32, brought to the source type beforehand."""
    if numkong is None or name not in NAMES:
        return None
    ends = (dtype, name) if way == "encode" else (name, dtype)
    source, target = (NAMES[end] for end in ends)
    wide = values.numpy()
    given = wide if source == "float32" else numkong.astype(wide, source)
    out = numkong.zeros(tuple(values.shape), dtype=target)
    return lambda: numkong.astype(given, target, out=out)


def products(x: torch.Tensor, w: torch.Tensor, threads: int) -> dict[str, Callable[[], object]]:
    """Codes without scales by codes without scales: it has no others."""
    made: dict[str, Callable[[], object]] = {}
    if numkong is None:
        return made
    for name, dtype in (("numkong e4m3", "e4m3"), ("numkong bf16", "bfloat16")):
        a, b = numkong.astype(x.numpy(), dtype), numkong.astype(w.numpy(), dtype)
        packed = numkong.dots_pack(b, dtype=dtype)
        made[name] = lambda a=a, packed=packed: numkong.dots_packed(a, packed, threads=threads)
    return made
