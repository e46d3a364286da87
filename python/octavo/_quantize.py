"""Values to codes with scales and back. The scales are always returned beside the codes."""

from __future__ import annotations

from typing import Any

from octavo import _octavo
from octavo._arrays import Array, describe, describe_out
from octavo._dtypes import VALUES, Kind, kind_name
from octavo._octavo import Format, Scaling, Tensor, View
from octavo._operation import MOST_THREADS, Counts, checked_out, integer, value_type
from octavo._quantized import QuantizedTensor


def preset(name: str) -> Scaling:
    """A Scaling by name: one of preset_names(), and after a colon the element format where there
    is a choice.

        >>> octavo.preset("mxfp8:e5m2").tile
        (1, 32)
    """
    if not isinstance(name, str):
        raise TypeError(f"[preset] got {type(name).__name__}, wanted a name")
    return _octavo.preset(name)


def preset_names() -> list[str]:
    """The names that preset and quantize take."""
    return _octavo.preset_names()


def quantize(
    x: Any,
    scaling: str | Scaling,
    *,
    out: QuantizedTensor | None = None,
    counts: bool = False,
    threads: int = 0,
) -> Any:
    """Scales every tile of a tensor into the range of a format and rounds it to codes.

    x: an array of float64, float32, float16 or bfloat16 of NumPy, ml_dtypes, torch (on the CPU) or
        any library with __dlpack__; or Python numbers. Any strides; never copied.
    scaling: the name of a preset ("mxfp8", "nvfp4", "fp8-block"; preset_names() has all), or a
        Scaling.
    out: a QuantizedTensor of the same shape, scaling and library to write into.
    counts: also return Counts(saturated, flushed, nan); where a NaN or Inf poisons its tile, all of
        the tile counts as NaN.
    threads: at most so many, up to 1024; 0 means all cores this process may use.

    Returns a QuantizedTensor; or (QuantizedTensor, Counts).
    """
    op = "quantize"
    scaling = as_scaling(scaling, op)
    if isinstance(x, QuantizedTensor):
        raise TypeError(f"[{op}] got a QuantizedTensor, wanted values; use requantize")
    source = describe(x, op)
    view = source.view(value_kind(source, op))
    options = {"threads": integer(threads, "threads", MOST_THREADS, op), "count": bool(counts)}
    if out is None:
        handle, found = _octavo.quantize(view, scaling, **options)
        out = QuantizedTensor(handle, source.family.for_results(source))
    else:
        check_family(out, source, op)
        if out.scaling != scaling:
            raise ValueError(f"[{op}] out is for {out.scaling!r}, but the scaling is {scaling!r}")
        found = _octavo.quantize_into(view, out._handle, **options)
    return (out, Counts(*found)) if counts else out


def dequantize(q: QuantizedTensor, dtype: Any = None, *, out: Any = None, threads: int = 0) -> Any:
    """The values again: scale times value of the code, rounded to float32 and then to the dtype.

    dtype: "float32" (default), "float64", "float16" or "bfloat16", or such a dtype of any library.
    out: a contiguous array of q's library to write into.
    threads: at most so many, up to 1024; 0 means all cores this process may use.

    Returns an array of the library that q is of.
    """
    op = "dequantize"
    handle, family = _checked(q, op)._handle, q._family
    threads = integer(threads, "threads", MOST_THREADS, op)
    if out is not None:
        found = describe_out(out, family, op).kind
        value = value_type(found if dtype is None else dtype, op)
        array = checked_out(value, q.shape, family, out, op)
        _octavo.dequantize(handle, array.view(array.kind), threads=threads)
        return array.family.wrote(array)
    value = "float32" if dtype is None else value_type(dtype, op)
    family.check_value(value, op)
    tensor = Tensor.empty(value, handle.shape)
    target = View(tensor.address, value, tensor.shape, tensor.strides)
    _octavo.dequantize(handle, target, threads=threads)
    return family.take(tensor)


def requantize(
    q: QuantizedTensor, scaling: str | Scaling, *, counts: bool = False, threads: int = 0
) -> Any:
    """The same as quantize(dequantize(q), scaling), without the values in between.

    Returns a QuantizedTensor; or (QuantizedTensor, Counts).
    """
    op = "requantize"
    threads = integer(threads, "threads", MOST_THREADS, op)
    handle, found = _octavo.requantize(
        _checked(q, op)._handle, as_scaling(scaling, op), threads=threads, count=bool(counts)
    )
    made = QuantizedTensor(handle, q._family)
    return (made, Counts(*found)) if counts else made


def fp8_quantize(x: Any, *, threads: int = 0) -> tuple[Any, Any]:
    """E4M3 with one scale for the tensor: (codes, scale), as torch._scaled_mm takes them.

    Codes lie in memory in the order that x has: a column-major matrix gives column-major codes. The
    scale is what codes are multiplied by, a float32 scalar of x's library. quantize(x, "fp8") gives
    the same codes in row-major order.
    """
    op = "fp8_quantize"
    source = describe(x, op)
    threads = integer(threads, "threads", MOST_THREADS, op)
    codes, scale = _octavo.fp8_quantize(source.view(value_kind(source, op)), threads=threads)
    family = source.family.for_results(source)
    return family.take(codes), family.take(scale)


def amax(x: Any, *, threads: int = 0) -> float:
    """The largest magnitude, as a float32 that no value exceeds; NaN if there is a NaN."""
    op = "amax"
    source = describe(x, op)
    threads = integer(threads, "threads", MOST_THREADS, op)
    return _octavo.amax(source.view(value_kind(source, op)), threads=threads)


def as_scaling(scaling: Any, op: str) -> Scaling:
    if isinstance(scaling, Scaling):
        return scaling
    if isinstance(scaling, str):
        return _octavo.preset(scaling)
    raise TypeError(
        f"[{op}] got a scaling of type {type(scaling).__name__}, wanted an octavo.Scaling or the "
        f"name of a preset: {', '.join(preset_names())}"
    )


def value_kind(array: Array, op: str) -> Kind:
    kind = array.kind
    if kind in VALUES:
        return kind
    if isinstance(kind, Format):
        raise TypeError(
            f"[{op}] got {kind_name(kind)}, which are codes, wanted float64, float32, float16 or "
            "bfloat16; decode them first, or use requantize for codes with scales"
        )
    raise TypeError(
        f"[{op}] got {kind}, wanted float64, float32, float16 or bfloat16; "
        f"convert first: {array.family.float_fix}"
    )


def _checked(q: Any, op: str) -> QuantizedTensor:
    if not isinstance(q, QuantizedTensor):
        raise TypeError(
            f"[{op}] got {type(q).__name__}, wanted a QuantizedTensor: quantize makes one of "
            "values, quantized one of codes and scales"
        )
    return q


def check_family(out: Any, source: Array, op: str) -> None:
    """A QuantizedTensor to write into must be of the library that the input is of."""
    _checked(out, op)
    if out._family.name != source.family.name:
        raise TypeError(
            f"[{op}] out is of a {out._family.name}, but the input is a {source.family.name}"
        )
