"""Arrays of values to codes and back. Never a scale: [1, 2, 3] encoded and decoded is [1, 2, 3]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, overload

from octavo._arrays import describe
from octavo._dtypes import VALUES, as_format, as_value, code_format
from octavo._octavo import Format
from octavo._operation import (
    Counts,
    Policy,
    cast_values,
    decode_array,
    encode_array,
    source_code_format,
    source_kind,
    value_type,
)
from octavo._scaled import decode_times

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, EncodeOptions, RunOptions

_E4M3FN: Final = Format("e4m3fn")


@overload
def encode(
    x: ArrayT,
    format: Any,
    *,
    packed: bool = False,
    counts: Literal[False] = False,
    **options: Unpack[EncodeOptions],
) -> ArrayT: ...
@overload
def encode(
    x: Any,
    format: Any,
    *,
    packed: bool = False,
    counts: Literal[False] = False,
    **options: Unpack[EncodeOptions],
) -> Any: ...
@overload
def encode(
    x: ArrayT,
    format: Any,
    *,
    packed: bool = False,
    counts: Literal[True],
    **options: Unpack[EncodeOptions],
) -> tuple[ArrayT, Counts]: ...
@overload
def encode(
    x: Any,
    format: Any,
    *,
    packed: bool = False,
    counts: Literal[True],
    **options: Unpack[EncodeOptions],
) -> tuple[Any, Counts]: ...
def encode(
    x: Any,
    format: Any,
    *,
    rounding: str | None = None,
    overflow: str | None = None,
    nan: str | None = None,
    profile: str | None = None,
    seed: int | None = None,
    first_index: int | None = None,
    stochastic_bits: int | None = None,
    source_format: Any = None,
    packed: bool = False,
    out: Any = None,
    counts: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """Rounds every value to a format and returns the codes.

    x: an array of float64, float32, float16 or bfloat16, or of codes, of NumPy, ml_dtypes, torch
        (CPU or CUDA) or any library with __dlpack__; or Python numbers. Any strides; never copied.
        A torch tensor that requires grad is an error outside torch.no_grad().
    format: a name such as "e4m3fn", an octavo.Format, or a dtype of ml_dtypes or torch.
    rounding: "nearest_even" (default), "nearest_away", "toward_zero", "up", "down", "to_odd" or
        "stochastic".
    overflow: "saturate" (default: everything beyond the range, Inf too, becomes the largest value),
        "propagate" (but Inf stays where the format has it), "saturate_finite" (but Inf becomes Inf,
        else NaN) or "ieee" (Inf, else NaN).
    nan: what NaN becomes in a format without NaN: "error" (default), "zero", "max" or
        "negated_zero".
    profile: cast bit for bit as a peer does: "torch", "torch_2_11", "ml_dtypes", "cuda", "ocp_sat",
        "ocp_nonsat" or "onnx". Other arguments override it.
    seed, first_index, stochastic_bits: for "stochastic"; 0, 0 and 16 (of 1 to 16) if not given.
        Element i, counted in row-major order, draws from (seed, first_index + i): the same bits on
        any machine, for any number of threads.
    source_format: the format of x, where x holds codes as plain integers.
    packed: codes of fewer than eight bits as a bit stream along the last dimension, every row
        starting on a byte: two FP4 codes to a byte, the first in the low nibble.
    out: an array of x's library to write into: contiguous, of x's shape (packed: of rows of bytes),
        its dtype the result's, or uint8 or int8 (uint16 or int16 beyond eight bits). It may be x
        itself where codes are no larger than values.
    counts: also return Counts(saturated, flushed, nan); synchronizes with a CUDA device.
    threads: maximum number of threads, up to 1024; 0 means all cores this process may use.
    stream: of a CUDA device, if not torch's current one (other libraries: the default one): an
        address, or a stream of torch or CuPy. Calls do not synchronize and may be captured into a
        CUDA graph, except for nan="error" in a format without NaN.

    Returns an array of x's library: of its dtype for the format (ml_dtypes for NumPy, where it is
    installed) or else of uint8 or uint16; or (codes, Counts).
    """
    op = "encode"
    target = as_format(format, op)
    source = describe(x, op, codes=source_format is not None, stream=stream)
    kind = source_kind(source, source_format, op)
    policy = Policy(rounding, overflow, nan, profile, seed, first_index, stochastic_bits)
    codes, found = encode_array(
        source, kind, target, policy, op, out=out, packed=packed, counts=counts, threads=threads
    )
    return codes if found is None else (codes, found)


@overload
def decode(
    c: ArrayT,
    dtype: Any = None,
    format: Any = None,
    *,
    packed: bool | None = None,
    cols: int | None = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> ArrayT: ...
@overload
def decode(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    packed: bool | None = None,
    cols: int | None = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> Any: ...
def decode(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    packed: bool | None = None,
    cols: int | None = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """The values of codes: exact where the dtype can hold them, else rounded to nearest even.

    c: an array of codes: of a float8, float6 or float4 dtype, or of plain integers with a format.
    dtype: "float32" (default), "float64", "float16" or "bfloat16", or such a dtype of any library.
    format: the format of c; needed where its dtype does not say.
    packed: c holds rows of packed codes, as encode(packed=True) makes them. torch's
        float4_e2m1fn_x2 says so itself.
    cols: codes in a packed row, where its last byte is not full; all that fit if not given.
    out: an array of c's library to write into.
    threads: maximum number of threads, up to 1024; 0 means all cores this process may use.
    stream: of a CUDA device, as encode has it.
    """
    op = "decode"
    source = describe(c, op, codes=True, stream=stream)
    found = source_code_format(source, format, op)
    value = None if dtype is None else value_type(dtype, op)
    return decode_array(
        source, found, value, op, out=out, packed=packed, cols=cols, threads=threads
    )


@overload
def cast(
    x: ArrayT, to: Any, *, counts: Literal[False] = False, **options: Unpack[EncodeOptions]
) -> ArrayT: ...
@overload
def cast(
    x: Any, to: Any, *, counts: Literal[False] = False, **options: Unpack[EncodeOptions]
) -> Any: ...
@overload
def cast(
    x: ArrayT, to: Any, *, counts: Literal[True], **options: Unpack[EncodeOptions]
) -> tuple[ArrayT, Counts]: ...
@overload
def cast(
    x: Any, to: Any, *, counts: Literal[True], **options: Unpack[EncodeOptions]
) -> tuple[Any, Counts]: ...
def cast(
    x: Any,
    to: Any,
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
    """Converts values or codes to a format or a dtype, keeping the values as well as it can.

    To a format this is encode, with all its arguments. To float64, float32, float16 or bfloat16 the
    result is the nearest value, Inf beyond the range; a rounding or overflow rule for the 16-bit
    types can be had by their names as formats, "e5m10" and "e8m7".
    """
    op = "cast"
    source = describe(x, op, codes=source_format is not None, stream=stream)
    kind = source_kind(source, source_format, op)
    value = as_value(to)
    policy = Policy(rounding, overflow, nan, profile, seed, first_index, stochastic_bits)
    if value is None:
        target = _cast_format(to, op)
        codes, found = encode_array(
            source, kind, target, policy, op, out=out, counts=counts, threads=threads
        )
        return codes if found is None else (codes, found)
    if counts or not policy.is_default:
        raise ValueError(
            f"[{op}] rounding, overflow, nan, profile, seed and counts are for formats, and "
            f"{value} is a dtype; leave them out, or name a format: 'e5m10' (float16) or 'e8m7' "
            "(bfloat16)"
        )
    if isinstance(kind, Format):
        return decode_array(source, kind, value, op, out=out, threads=threads)
    return cast_values(source, kind, value, op, out=out, threads=threads)


def _cast_format(to: Any, op: str) -> Format:
    """A format; where it is none, the message names the dtypes that would do as well."""
    try:
        return as_format(to, op)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}; or a dtype: {', '.join(VALUES)}") from None


@overload
def fp8_encode(x: ArrayT, *, out: Any = None, threads: int = 0) -> ArrayT: ...
@overload
def fp8_encode(x: Any, *, out: Any = None, threads: int = 0) -> Any: ...
def fp8_encode(x: Any, *, out: Any = None, threads: int = 0) -> Any:
    """encode(x, "e4m3fn"): no scale, so fp8_decode gives the values back, rounded."""
    return encode(x, _E4M3FN, out=out, threads=threads)


@overload
def fp8_decode(
    c: ArrayT,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> ArrayT: ...
@overload
def fp8_decode(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    out: Any = None,
    **run: Unpack[RunOptions],
) -> Any: ...
def fp8_decode(
    c: Any,
    dtype: Any = None,
    format: Any = None,
    *,
    scale: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """What fp8_encode made, as float32 or the dtype given; with scale, what fp8_quantize made: the
    exact product with it, rounded once to the dtype.

    format: of the codes, where their dtype does not say; E4M3 if not given.
    scale: a number, or an array that broadcasts, as decode_scaled has it.
    """
    op = "fp8_decode"
    source = describe(c, op, codes=True, stream=stream)
    own = code_format(source.kind)
    given = format if format is not None else None if own is not None else _E4M3FN
    found = source_code_format(source, given, op)
    value = None if dtype is None else value_type(dtype, op)
    if scale is None:
        return decode_array(source, found, value, op, out=out, threads=threads)
    return decode_times(source, found, value, scale, False, op, out=out, threads=threads)
