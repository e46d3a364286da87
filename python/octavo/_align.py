"""Exponent alignment of MX tensors: one scale per row or per 128 elements, for Hopper's FP8
GEMM."""

from __future__ import annotations

from typing import Any, NamedTuple

from octavo import _octavo
from octavo._arrays import describe
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import _checked, as_scaling, check_family, new_quantized, value_kind
from octavo._quantized import QuantizedTensor


class Aligned(NamedTuple):
    """Result of align_exponents and quantize_aligned: a tensor, and the number of its elements
    whose value differs from the MX tensor. 0: all values are the same; None: not counted."""

    tensor: QuantizedTensor
    changed: int | None


def align_exponents(
    q: QuantizedTensor,
    to: str = "rows",
    *,
    out: QuantizedTensor | None = None,
    count: bool = True,
    threads: int = 0,
    stream: Any = None,
) -> Aligned:
    """Aligns the block exponents of an MX tensor to one scale per row (or per 128 elements), once
    instead of in every product.

    Codes keep their format; those of blocks with smaller scales are multiplied by a power of two,
    to nearest even, and change only where that makes them subnormal and bits are lost. NaN and Inf
    stay. A columnwise copy is aligned along its own rows.

    q: e4m3fn or e5m2 in blocks of 1 x 32 with e8m0 scales ("mxfp8", "mxfp8:e5m2").
    to: "rows", one float32 scale per row: the fastest GEMM; or "blocks", one for 128 elements of
        a row: fewer values change where blocks of a row differ much in magnitude.
    out: the tensor of an earlier call to write into.
    count: return the number of changed elements, which synchronizes with a CUDA device.
    threads: maximum number of threads, up to 1024; 0 means all cores this process may use.
    stream: of a CUDA device, as quantize has it.

    Returns (tensor, changed).

        >>> w, changed = octavo.align_exponents(octavo.quantize(weights, "mxfp8"))
    """
    op = "align_exponents"
    handle, family = _checked(q, op)._handle, q._family
    threads = integer(threads, "threads", MOST_THREADS, op)
    scaling = _aligned_scaling(handle.scaling, to, op)
    address = family.stream(handle.cuda, stream)
    if out is None:
        made = _octavo.QuantizedTensor.empty(
            handle.shape,
            handle.source,
            scaling,
            family.allocator(handle.cuda, address),
            handle.cuda,
        )
        out = QuantizedTensor(made, family, address)
    else:
        if _checked(out, op)._family.name != family.name:
            raise TypeError(f"[{op}] out is of a {out._family.name}, but q is of a {family.name}")
        _check_out(out, scaling, op)
    changed = _octavo.align_exponents_into(
        handle, out._handle, threads=threads, count=bool(count), stream=address
    )
    return Aligned(out, changed)


def quantize_aligned(
    x: Any,
    scaling: str | Scaling = "mxfp8",
    to: str = "rows",
    *,
    out: QuantizedTensor | None = None,
    count: bool = True,
    threads: int = 0,
    stream: Any = None,
) -> Aligned:
    """The same as align_exponents(quantize(x, scaling), to), bit for bit; on a CUDA device in one
    pass over x where rows are not too long. Arguments are those of quantize and align_exponents.

    Returns (tensor, changed).
    """
    op = "quantize_aligned"
    mx = as_scaling(scaling, op)
    aligned = _aligned_scaling(mx, to, op)
    if isinstance(x, QuantizedTensor):
        raise TypeError(f"[{op}] got a QuantizedTensor; expected values; use align_exponents")
    source = describe(x, op, stream=stream)
    kind = value_kind(source, op)
    if out is None:
        out = new_quantized(source, kind, aligned)
    else:
        check_family(out, source, op)
        _check_out(out, aligned, op)
    changed = _octavo.quantize_aligned_into(
        source.view(kind),
        mx,
        out._handle,
        threads=integer(threads, "threads", MOST_THREADS, op),
        count=bool(count),
        stream=source.stream,
    )
    return Aligned(out, changed)


def _aligned_scaling(mx: Scaling, to: Any, op: str) -> Scaling:
    if not isinstance(to, str):
        raise TypeError(f"[{op}] got to of type {type(to).__name__}; expected 'rows' or 'blocks'")
    return _octavo.aligned_scaling(mx, to)


def _check_out(out: QuantizedTensor, scaling: Scaling, op: str) -> None:
    if out.scaling != scaling:
        raise ValueError(f"[{op}] out is for {out.scaling!r}; expected {scaling!r}")
