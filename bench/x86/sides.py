"""The calls of a case: for octavo and each rival a function that runs it once."""

from __future__ import annotations

from collections.abc import Callable

import torch

import octavo as ov
from bench.common.memory import copy_of, empty
from bench.convert import ml_dtypes_side, octavo_side, torch_side
from bench.convert.cases import Case as Cast
from bench.x86 import numkong_side
from bench.x86.cases import DECODE_HEADS, DECODE_KV_HEADS, DECODE_SIZE, HEADS, Case

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
INT8_ROWS = ov.Scaling("mxint8", "row", scale="f32")
Sides = dict[str, Callable[[], object]]


def of_cast(case: Case, values: torch.Tensor, threads: int) -> Sides:
    """values: float32, of which each side makes what it starts from."""
    way, dtype, name = case.details
    # ml_dtypes maps NaN to zero in formats without one; so do we here, instead of searching for it.
    how = (("nan", "zero"),) if way == "encode" and case.rival == "ml_dtypes" else ()
    cast = Cast(way, dtype, name, case.rival, case.at_least, how)
    source = copy_of(values, DTYPES[dtype])
    sides = {"octavo": octavo_side.prepare(cast, source, threads)}
    rival = ml_dtypes_side if case.rival == "ml_dtypes" else torch_side
    sides[case.rival] = rival.prepare(cast, source)
    if threads == 1:
        sides["numkong"] = numkong_side.cast(values, way, dtype, name)
    there = empty(tuple(source.shape), source.dtype)
    sides["copy"] = lambda: there.copy_(source)
    return {side: call for side, call in sides.items() if call is not None}


def of_quantize(case: Case, values: torch.Tensor, threads: int) -> Sides:
    (name,) = case.details
    scaling = ov.preset(name)
    out = ov.quantize(values, scaling)
    return {"octavo": lambda: ov.quantize(values, scaling, out=out, threads=threads)}


def operand(values: torch.Tensor, kind: str) -> object:
    if kind in DTYPES:
        return copy_of(values, DTYPES[kind])
    return ov.quantize(values, INT8_ROWS if kind == "int8" else kind)


def of_product(case: Case, x: torch.Tensor, w: torch.Tensor, threads: int) -> Callable[[], object]:
    left, right, packed = case.details
    a, b = operand(x, left), operand(w, right)
    if packed:
        b = ov.pack(b, threads=threads)
    out = empty((x.shape[0], w.shape[0]), torch.float32 if case.name == "f32" else torch.bfloat16)
    return lambda: ov.gemm(a, b, out=out, threads=threads)


def product_rivals(x: torch.Tensor, w: torch.Tensor, threads: int) -> Sides:
    """Of x [M, K] and w [N, K]."""
    made: Sides = {}
    for name, dtype in (("torch f32", torch.float32), ("torch bf16", torch.bfloat16)):
        a, b = copy_of(x, dtype), copy_of(w, dtype)
        out = empty((x.shape[0], w.shape[0]), dtype)
        made[name] = lambda a=a, b=b, out=out: torch.mm(a, b.t(), out=out)
    ints = [torch.randint(-127, 128, tuple(t.shape), dtype=torch.int8) for t in (x, w)]
    made["torch int8"] = lambda: torch._int_mm(ints[0], ints[1].t())
    return made | numkong_side.products(x, w, threads)


def of_attention(cases: list[Case], tokens: int, size: int, threads: int) -> Sides:
    tensors = [torch.randn(1, HEADS.get(tokens, 2), tokens, size) for _ in range(3)]
    made: Sides = {}
    for name, dtype in (("torch f32", torch.float32), ("torch bf16", torch.bfloat16)):
        q, k, v = (x.to(dtype) for x in tensors)
        made[name] = lambda q=q, k=k, v=v: torch.nn.functional.scaled_dot_product_attention(q, k, v)
    for case in cases:
        (kind,) = case.details
        q, k, v = (x.to(DTYPES[kind]) if kind in DTYPES else ov.quantize(x, kind) for x in tensors)
        out = torch.empty_like(tensors[0])
        made[case.name] = lambda q=q, k=k, v=v, out=out, rung=case.name: ov.attention(
            q, k, v, precision=rung, out=out, threads=threads
        )
    return made


def of_decode(keys: int, threads: int) -> Sides:
    q = torch.randn(1, DECODE_HEADS, 1, DECODE_SIZE).bfloat16()
    k, v = (torch.randn(1, DECODE_KV_HEADS, keys, DECODE_SIZE) for _ in range(2))
    coded = [ov.quantize(x, "fp8-channel") for x in (k, v)]
    wide = [x.bfloat16() for x in (k, v)]
    out = torch.empty_like(q)

    def ours(cache: list) -> Callable[[], object]:
        return lambda: ov.attention(q, *cache, precision="bf16", out=out, threads=threads)

    return {
        "torch bf16": lambda: torch.nn.functional.scaled_dot_product_attention(
            q, *wide, enable_gqa=True
        ),
        "octavo bf16": ours(wide),
        "octavo": ours(coded),
    }
