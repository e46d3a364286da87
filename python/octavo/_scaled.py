"""Values times factors to codes, and codes back: each element rounded once. The factor is given, or
returned beside the codes; no call finds it anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from octavo import _octavo
from octavo._arrays import Array, describe, describe_out
from octavo._dtypes import as_format
from octavo._octavo import Format, View
from octavo._operation import (
    MOST_THREADS,
    Counts,
    Policy,
    integer,
    make_target,
    source_code_format,
    source_kind,
    value_type,
    written,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._dtypes import Kind
    from octavo._typing import ArrayT, EncodeOptions, RunOptions

DYNAMIC = ("power_of_two", "value")


@overload
def encode_scaled(
    x: ArrayT,
    format: Any,
    inv_scale: float | str | Any,
    *,
    counts: bool = False,
    **options: Unpack[EncodeOptions],
) -> ArrayT | tuple[Any, ...]: ...
@overload
def encode_scaled(
    x: Any,
    format: Any,
    inv_scale: float | str | Any,
    *,
    counts: bool = False,
    **options: Unpack[EncodeOptions],
) -> Any: ...
def encode_scaled(
    x: Any,
    format: Any,
    inv_scale: float | str | Any,
    *,
    rounding: str | None = None,
    overflow: str | None = None,
    nan: str | None = None,
    profile: str | None = None,
    seed: int | None = None,
    first_index: int | None = None,
    stochastic_bits: int | None = None,
    source_format: Any = None,
    out: Any = None,
    counts: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """Rounds x * inv_scale to a format, once: products are exact before that. Returns the codes.

    inv_scale: a positive, finite number; or an array of float32 or float64 of them that broadcasts
        to x's shape, on x's device: [rows, 1] has one for each row. Arrays on a CUDA device are not
        checked. Or how to make one from the largest finite |x|: "power_of_two", the largest with
        which that still fits the range, which scales exactly, or "value", largest value / that as a
        float32 (where none is that large or small, a float64), which uses all of the range. Then it
        is returned beside the codes: a float, or on CUDA a float64 scalar there, so that nothing
        waits.
    counts: also return Counts(saturated, flushed, nan), as encode does.

    The other arguments are encode's; x and out do not overlap.
    Returns the codes; then inv_scale, if it was made; then the Counts, if asked for.
    """
    op = "encode_scaled"
    target = as_format(format, op)
    source = describe(x, op, codes=source_format is not None, stream=stream)
    kind = source_kind(source, source_format, op)
    policy = Policy(rounding, overflow, nan, profile, seed, first_index, stochastic_bits)
    results = encode_times(
        source, kind, target, inv_scale, policy, op, out=out, counts=counts, threads=threads
    )
    return results if len(results) > 1 else results[0]


@overload
def decode_scaled(
    c: ArrayT,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    inv_scale: Any = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> ArrayT: ...
@overload
def decode_scaled(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    inv_scale: Any = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> Any: ...
def decode_scaled(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    inv_scale: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """The values of codes times scale, exact and then rounded once to the dtype; or divided by
    inv_scale, rounded to float64 and then to the dtype. One of the two is given.

    scale, inv_scale: as encode_scaled has inv_scale: a number, or an array that broadcasts.

    The other arguments are decode's.
    """
    op = "decode_scaled"
    source = describe(c, op, codes=True, stream=stream)
    code_format = source_code_format(source, format, op)
    if (scale is None) == (inv_scale is None):
        raise ValueError(
            f"[{op}] got {'neither' if scale is None else 'both'} of scale and inv_scale; expected "
            "one of them; without a scale it is decode"
        )
    return decode_times(
        source,
        code_format,
        None if dtype is None else value_type(dtype, op),
        inv_scale if scale is None else scale,
        scale is None,
        op,
        out=out,
        threads=threads,
    )


def encode_times(
    source: Array,
    kind: Kind,
    format: Format,
    inv_scale: Any,
    policy: Policy,
    op: str,
    *,
    out: Any = None,
    raw: bool = False,
    counts: bool = False,
    threads: int = 0,
) -> tuple[Any, ...]:
    """(codes, the factor if it is dynamic, Counts if asked for)."""
    arguments, in_order = policy.arguments(op), policy.in_order
    threads = integer(threads, "threads", MOST_THREADS, op)
    shape = source.logical_shape()
    like = None if in_order or source.shape != shape else source
    target = make_target(format, shape, source, out, op, like, None, raw)
    order = None if source.cols is not None or in_order else target.order()
    views = source.view(kind, source.cols, order), target.view(format, None, order)
    run = {"threads": threads, "count": counts, "stream": source.stream, **arguments}
    made: tuple[Any, ...] = ()
    if isinstance(inv_scale, str):
        if inv_scale not in DYNAMIC:
            raise ValueError(
                f"[{op}] got inv_scale {inv_scale!r}; expected a number, an array, "
                '"power_of_two" or "value"'
            )
        place, number = _new_factor(source)
        found = _octavo.encode_dynamic(*views, inv_scale, place, **run)
        made = (number(),)
    else:
        factor, array = _factor(inv_scale, source, shape, order, op, "inv_scale")
        found = _octavo.encode_scaled(*views, factor, **run)
        del array
    tally = () if found is None else (Counts(*found),)
    return (written(target, out), *made, *tally)


def decode_times(
    source: Array,
    format: Format,
    value: str | None,
    factor: Any,
    divide: bool,
    op: str,
    *,
    out: Any = None,
    threads: int = 0,
) -> Any:
    shape = source.logical_shape()
    if value is None:
        value = (
            "float32" if out is None else value_type(describe_out(out, source.family, op).kind, op)
        )
    like = source if source.shape == shape else None
    target = make_target(value, shape, source, out, op, like)
    order = None if source.cols is not None else target.order()
    number, array = _factor(factor, source, shape, order, op, "inv_scale" if divide else "scale")
    _octavo.decode_scaled(
        source.view(format, source.cols, order),
        target.view(value, None, order),
        number,
        divide=divide,
        threads=integer(threads, "threads", MOST_THREADS, op),
        stream=source.stream,
    )
    del array
    return written(target, out)


def _factor(
    factor: Any,
    source: Array,
    shape: tuple[int, ...],
    order: tuple[int, ...] | None,
    op: str,
    name: str,
) -> tuple[float | View, Array | None]:
    """A number, or a view that repeats an array over the shape; and what keeps its memory."""
    if isinstance(factor, (int, float, np.floating, np.integer)):
        return float(factor), None
    if factor is None or isinstance(factor, (str, bytes, dict)):
        raise TypeError(f"[{op}] got {name} {factor!r}; expected a number or an array of numbers")
    array = describe(factor, op)
    if array.kind not in ("float32", "float64"):
        raise TypeError(
            f"[{op}] got {name} of {array.kind}; expected float32 or float64, in which a scale "
            f"loses nothing; convert it: {array.family.float_fix}"
        )
    if array.cuda != source.cuda:
        if array.cuda < 0 and array.shape == ():
            return float(array.numpy()), None
        raise ValueError(
            f"[{op}] got {name} on {_place(array)} and the data on {_place(source)}; move one of "
            "them, or give a number"
        )
    missing = len(shape) - len(array.shape)
    pairs = list(zip(array.shape, shape[max(missing, 0) :], strict=False))
    if missing < 0 or any(own not in (1, size) for own, size in pairs):
        raise ValueError(
            f"[{op}] {name} has shape {array.shape}, which does not broadcast to {shape}; give one "
            "number, or one for each row of the last dimension: a shape that ends in 1"
        )
    strides = (0,) * missing + tuple(
        0 if own == 1 else stride for own, stride in zip(array.shape, array.strides, strict=True)
    )
    if order is not None:
        shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
    return View(array.address, array.kind, shape, strides, False, True, array.cuda), array


def _place(array: Array) -> str:
    return "the CPU" if array.cuda < 0 else f"cuda:{array.cuda}"


def _new_factor(source: Array) -> tuple[View, Any]:
    """Memory for a float64 beside the source, and how it is handed over."""
    if source.cuda < 0:
        one = np.ones((), np.float64)
        return View(one.ctypes.data, "float64", (), ()), lambda: float(one)
    made = source.family.empty("float64", (), source.cuda, source.stream)
    return made.view("float64"), lambda: source.family.finish(made)
