"""Values to codes with scales and back. The scales are always returned beside the codes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from octavo import _octavo
from octavo._arguments import flag
from octavo._arrays import Array, describe, describe_out
from octavo._dtypes import VALUES, as_format, kind_name
from octavo._octavo import Format, Scaling
from octavo._operation import MOST_THREADS, Counts, checked_out, integer, value_type
from octavo._quantized import QuantizedTensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, RunOptions


def preset(name: str) -> Scaling:
    """A Scaling by name: one of preset_names(), and after a colon the element format where there
    is a choice.

        >>> octavo.preset("mxfp8:e5m2").tile
        (1, 32)
    """
    if not isinstance(name, str):
        raise TypeError(f"[preset] got {type(name).__name__}; expected a name")
    return _octavo.preset(name)


def preset_names() -> list[str]:
    """The names that preset and quantize take."""
    return _octavo.preset_names()


@overload
def quantize(
    x: Any,
    scaling: str | Scaling,
    *,
    out: QuantizedTensor | None = None,
    column_weights: Any = None,
    counts: Literal[False] = False,
    **run: Unpack[RunOptions],
) -> QuantizedTensor: ...
@overload
def quantize(
    x: Any,
    scaling: str | Scaling,
    *,
    out: QuantizedTensor | None = None,
    column_weights: Any = None,
    counts: Literal[True],
    **run: Unpack[RunOptions],
) -> tuple[QuantizedTensor, Counts]: ...
@overload
def quantize(
    x: Any,
    scaling: str | Scaling,
    *,
    out: QuantizedTensor | None = None,
    column_weights: Any = None,
    counts: bool,
    **run: Unpack[RunOptions],
) -> QuantizedTensor | tuple[QuantizedTensor, Counts]: ...
def quantize(
    x: Any,
    scaling: str | Scaling,
    *,
    out: QuantizedTensor | None = None,
    counts: bool = False,
    column_weights: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> QuantizedTensor | tuple[QuantizedTensor, Counts]:
    """Scales every tile of a tensor into the range of a format and rounds it to codes.

    x: an array of float64, float32, float16 or bfloat16 of NumPy, ml_dtypes, torch (CPU or CUDA) or
        any library with __dlpack__; or Python numbers. Any strides; never copied.
    scaling: the name of a preset ("mxfp8", "nvfp4", "fp8-block"; preset_names() has all), or a
        Scaling.
    out: a QuantizedTensor of the same shape, scaling and library to write into.
    counts: also return Counts(saturated, flushed, nan); where a NaN or Inf poisons its tile, all of
        the tile counts as NaN. Synchronizes with a CUDA device. threads: at most so many, up to
        1024; 0 means all cores this process may use.
    column_weights: for a Scaling with policy "wmse": what the squared errors of each column are
        multiplied by, a float32 vector as long as the last dimension, where x is. For a weight
        E[x^2] of its inputs.
    stream: of a CUDA device, if not torch's current one (other libraries: the default one): an
        address, or a stream of torch or CuPy. Results are in torch's own memory; calls do not
        synchronize and may be captured into a CUDA graph.

    Returns a QuantizedTensor; or (QuantizedTensor, Counts).
    """
    op = "quantize"
    scaling = as_scaling(scaling, op)
    if isinstance(x, QuantizedTensor):
        raise TypeError(f"[{op}] got a QuantizedTensor; expected values; use requantize")
    source = describe(x, op, stream=stream)
    kind = value_kind(source, op)
    if out is None:
        out = new_quantized(source, kind, scaling)
    else:
        check_family(out, source, op)
        if out.scaling != scaling:
            raise ValueError(f"[{op}] out is for {out.scaling!r}, but the scaling is {scaling!r}")
    # A view does not keep memory alive: this does, until the call is done.
    weights = None if column_weights is None else _column_weights(column_weights, op, stream)
    found = _octavo.quantize_into(
        source.view(kind),
        out._handle,
        threads=integer(threads, "threads", MOST_THREADS, op),
        count=bool(counts),
        stream=source.stream,
        column_weights=None if weights is None else weights.view("float32"),
    )
    return out if found is None else (out, Counts(*found))


def _column_weights(given: Any, op: str, stream: Any) -> Array:
    array = describe(given, op, stream=stream)
    if array.kind != "float32":
        raise TypeError(
            f"[{op}] got column_weights of {kind_name(array.kind)}; expected float32; convert "
            f"them: np.asarray(weights, np.float32), or {array.family.float_fix}"
        )
    return array


def new_quantized(
    source: Array, kind: str, scaling: Scaling, shape: tuple[int, ...] | None = None
) -> QuantizedTensor:
    """Memory for the quantization of an array: where the array is, and from its library's pool.
    shape: where it is not the array's."""
    family = source.family.for_results(source)
    handle = _octavo.QuantizedTensor.empty(
        source.shape if shape is None else shape,
        kind,
        scaling,
        family.allocator(source.cuda, source.stream),
        source.cuda,
    )
    return QuantizedTensor(handle, family, source.stream)


def dequantize(
    q: QuantizedTensor, dtype: Any = None, *, out: Any = None, threads: int = 0, stream: Any = None
) -> Any:
    """The values again: scale times value of the code, rounded to float32 and then to the dtype.

    dtype: "float32" (default), "float64", "float16" or "bfloat16", or such a dtype of any library.
    out: a contiguous array of q's library to write into.
    threads: maximum number of threads, up to 1024; 0 means all cores this process may use.
    stream: of a CUDA device, as quantize has it.

    Returns an array of the library that q is of.
    """
    op = "dequantize"
    handle, family = _checked(q, op)._handle, q._family
    threads = integer(threads, "threads", MOST_THREADS, op)
    address = family.stream(handle.cuda, stream)
    if out is not None:
        found = describe_out(out, family, op).kind
        value = value_type(found if dtype is None else dtype, op)
        array = checked_out(value, q.shape, family, out, op)
        _octavo.dequantize(handle, array.view(array.kind), threads=threads, stream=address)
        return array.family.wrote(array)
    value = "float32" if dtype is None else value_type(dtype, op)
    family.check_value(value, op)
    made = family.empty(value, q.shape, handle.cuda, address)
    _octavo.dequantize(handle, made.view(value), threads=threads, stream=address)
    return family.finish(made)


@overload
def requantize(
    q: QuantizedTensor,
    scaling: str | Scaling,
    *,
    counts: Literal[False] = False,
    **run: Unpack[RunOptions],
) -> QuantizedTensor: ...
@overload
def requantize(
    q: QuantizedTensor,
    scaling: str | Scaling,
    *,
    counts: Literal[True],
    **run: Unpack[RunOptions],
) -> tuple[QuantizedTensor, Counts]: ...
@overload
def requantize(
    q: QuantizedTensor, scaling: str | Scaling, *, counts: bool, **run: Unpack[RunOptions]
) -> QuantizedTensor | tuple[QuantizedTensor, Counts]: ...
def requantize(
    q: QuantizedTensor,
    scaling: str | Scaling,
    *,
    counts: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> QuantizedTensor | tuple[QuantizedTensor, Counts]:
    """The same as quantize(dequantize(q), scaling), without the values in between.

    Returns a QuantizedTensor; or (QuantizedTensor, Counts).
    """
    op = "requantize"
    handle, family = _checked(q, op)._handle, q._family
    threads = integer(threads, "threads", MOST_THREADS, op)
    address = family.stream(handle.cuda, stream)
    made = _octavo.QuantizedTensor.empty(
        handle.shape,
        "float32",
        as_scaling(scaling, op),
        family.allocator(handle.cuda, address),
        handle.cuda,
    )
    found = _octavo.requantize_into(
        handle, made, threads=threads, count=bool(counts), stream=address
    )
    result = QuantizedTensor(made, family, address)
    return result if found is None else (result, Counts(*found))


def transposed(q: QuantizedTensor) -> QuantizedTensor:
    """The transpose, as the columnwise copy of q has it: nothing is copied. Leading dimensions are
    collapsed into one.

    With it the three products of training are gemm(x, w), gemm(dy, transposed(w)) and
    gemm(transposed(dy), transposed(x)).
    """
    return QuantizedTensor(_checked(q, "transposed")._handle.transposed(), q._family, q._stream)


@overload
def fp8_quantize(
    x: ArrayT, format: Any = "e4m3fn", *, power_of_two: bool = False, **run: Unpack[RunOptions]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def fp8_quantize(
    x: Any, format: Any = "e4m3fn", *, power_of_two: bool = False, **run: Unpack[RunOptions]
) -> tuple[Any, Any]: ...
def fp8_quantize(
    x: Any,
    format: Any = "e4m3fn",
    *,
    power_of_two: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> tuple[Any, Any]:
    """One scale for the tensor: (codes, scale), as torch._scaled_mm takes them.

    format: of the codes, as encode has it; not packed. power_of_two: the smallest scale of that
    kind that saturates nothing, instead of amax / largest value.

    Codes lie in memory in the order that x has: a column-major matrix gives column-major codes. The
    scale is what codes are multiplied by, a float32 scalar of x's library; fp8_decode(codes,
    scale=scale) is the inverse. quantize(x, "fp8") gives the same codes in row-major order.
    """
    op = "fp8_quantize"
    flag(power_of_two, "power_of_two", op)
    scaling = _octavo.Scaling(
        as_format(format, op),
        (0, 0),
        scale="f32",
        rule="rceil" if power_of_two else "f32",
        packed=False,
    )
    source = describe(x, op, stream=stream)
    threads = integer(threads, "threads", MOST_THREADS, op)
    kind = value_kind(source, op)
    family = source.family.for_results(source)
    if family.allocator(source.cuda) is not None:
        return _fp8_in_pool(source, kind, scaling)
    codes, scale = _octavo.fp8_quantize(
        source.view(kind), scaling, threads=threads, stream=source.stream
    )
    return family.take(codes), family.take(scale)


def _fp8_in_pool(source: Array, kind: str, scaling: Scaling) -> tuple[Any, Any]:
    """fp8_quantize into memory of the library's own: dimensions in the order of memory and back."""
    repeats = any(
        size > 1 and step == 0 for size, step in zip(source.shape, source.strides, strict=True)
    )
    order = (None if repeats else source.order()) or tuple(range(len(source.shape)))
    q = new_quantized(replace(source, shape=tuple(source.shape[i] for i in order)), kind, scaling)
    _octavo.quantize_into(source.view(kind, order=order), q._handle, stream=source.stream)
    back = sorted(range(len(order)), key=lambda i: order[i])
    return q.codes.permute(back), q.scales


def amax(x: Any, *, threads: int = 0, stream: Any = None) -> float:
    """The largest magnitude, as a float32 that no value exceeds; NaN if there is a NaN. Returns a
    Python number, so it synchronizes with a CUDA device."""
    op = "amax"
    source = describe(x, op, stream=stream)
    threads = integer(threads, "threads", MOST_THREADS, op)
    view = source.view(value_kind(source, op))
    return _octavo.amax(view, threads=threads, stream=source.stream)


def as_scaling(scaling: Any, op: str) -> Scaling:
    if isinstance(scaling, Scaling):
        return scaling
    if isinstance(scaling, str):
        return _octavo.preset(scaling)
    raise TypeError(
        f"[{op}] got a scaling of type {type(scaling).__name__}; expected an octavo.Scaling or the "
        f"name of a preset: {', '.join(preset_names())}"
    )


def value_kind(array: Array, op: str) -> str:
    kind = array.kind
    if isinstance(kind, str) and kind in VALUES:
        return kind
    if isinstance(kind, Format):
        raise TypeError(
            f"[{op}] got {kind_name(kind)}, which are codes; expected float64, float32, float16 or "
            "bfloat16; decode them first, or use requantize for codes with scales"
        )
    raise TypeError(
        f"[{op}] got {kind}; expected float64, float32, float16 or bfloat16; "
        f"convert first: {array.family.float_fix}"
    )


def _checked(q: Any, op: str) -> QuantizedTensor:
    if not isinstance(q, QuantizedTensor):
        raise TypeError(
            f"[{op}] got {type(q).__name__}; expected a QuantizedTensor: quantize makes one of "
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
