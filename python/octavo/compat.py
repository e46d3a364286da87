"""Compatibility functions under widespread names for FP8 stored in plain bytes, with correct
rounding.

    codes = round_to_fp8_represented_as_int8(t, n_mantissa=3)
    t_again = undo_int8_fp8(codes, n_mantissa=3, target_dt=torch.bfloat16)

A code has one sign bit, 7 - n_mantissa exponent bits and n_mantissa mantissa bits; or with
signed=False no sign bit and one exponent bit more:

    n_mantissa   0         1         2         3         4         5         6         7
    signed       e7m0fn    e6m1      e5m2      e4m3fn    e3m4      e2m5      e1m6      e0m7
    unsigned     e8m0fnu   e7m1fnu   e6m2fnu   e5m3fnu   e4m4fnu   e3m5fnu   e2m6fnu   e1m7fnu

Signed 3 and 2 are the two formats of OCP's FP8 standard. The others follow IEEE 754, but for 0:
without a mantissa bit there is no room for both Inf and NaN, and NaN it is. 7 has no exponent:
sign and magnitude in 64ths, without NaN. Unsigned formats have NaN and no Inf, negative values
become the smallest one, and e8m0fnu has no zero.

New code is better served by octavo.encode and octavo.decode, which take any format.

_scaled_mm has the arguments of torch._scaled_mm; octavo.scaled_mm those of its successor.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from octavo._arguments import flag
from octavo._arrays import describe
from octavo._dtypes import named_format
from octavo._octavo import Format
from octavo._operation import (
    Policy,
    cast_values,
    decode_array,
    encode_array,
    integer,
    source_code_format,
    source_kind,
    value_type,
)
from octavo._scaled import decode_times, encode_times
from octavo._scaled_mm import _scaled_mm

__all__ = [
    "_scaled_mm",
    "fp8_format",
    "int32_to_bfloat16",
    "round_to_fp8_represented_as_int8",
    "undo_int8_fp8",
]

_FORMATS: Final = ("e7m0fn", "e6m1", "e5m2", "e4m3fn", "e3m4", "e2m5", "e1m6", "e0m7")
_AUTOMATIC: Final = {"auto": "power_of_two", "auto_value": "value"}


def fp8_format(n_mantissa: int, signed: bool = True) -> Format:
    """The 8-bit format with this many mantissa bits, 0 to 7; this module begins with a table."""
    op = "fp8_format"
    if isinstance(n_mantissa, int) and not 0 <= n_mantissa < len(_FORMATS):
        raise ValueError(
            f"[{op}] got n_mantissa = {n_mantissa}; expected 0 to 7: eight bits are one of "
            "sign, or of exponent, and n of mantissa"
        )
    flag(signed, "signed", op)
    bits = integer(n_mantissa, "n_mantissa", 31, op)
    return named_format(_FORMATS[bits] if signed else f"e{8 - bits}m{bits}fnu")


def round_to_fp8_represented_as_int8(
    t: Any,
    n_mantissa: int,
    out: Any = None,
    scaling_factor: Any = 1,
    *,
    signed: bool = True,
    stochastic: bool = False,
    seed: int | None = None,
    overflow: str = "propagate",
    return_counts: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """Rounds t * scaling_factor to 8-bit floating point and returns the codes as uint8.

    t: a tensor or array of bfloat16, or of any other type that octavo.encode takes.
    n_mantissa, signed: 0 to 7; see fp8_format.
    out: a uint8 or int8 array of t's library and shape to write into.
    scaling_factor: what t is multiplied by first, and undo_int8_fp8 divides by; elsewhere octavo
        calls it inv_scale. A number, or an array of float32 or float64 that broadcasts: [rows, 1]
        has one for each row. Products are exact, and rounded once. "auto": the largest power of two
        with which the largest finite |t| still fits the range, so that it scales without rounding.
        "auto_value": the quotient of the two, as a float32; where none is that large or small, as a
        float64. Either is returned beside the codes: a float, or on CUDA a float64 scalar there.
    stochastic: round up or down at random, so that the mean of many roundings is the value. The
        same seed gives the same codes. Otherwise to nearest even.
    overflow: as for octavo.encode. By default values beyond the range become the largest one, and
        Inf stays Inf where the format has it.
    return_counts: also return Counts(saturated, flushed, nan): how many values were beyond the
        range, became zero without being it, or were NaN.
    stream: of a CUDA device, as octavo.encode has it.

    Returns the codes; then the factor, if it is automatic; then the Counts, if asked for. More than
    one of these come as a tuple.
    """
    op = "round_to_fp8_represented_as_int8"
    format = fp8_format(n_mantissa, signed)
    source = describe(t, op, stream=stream)
    kind = source_kind(source, None, op)
    factor = _factor(scaling_factor, op, _AUTOMATIC)
    if seed is not None and not stochastic:
        raise ValueError(f"[{op}] got seed, which is for stochastic=True; leave it out or say that")
    policy = Policy("stochastic" if stochastic else None, overflow, seed=seed)
    if isinstance(factor, float) and factor == 1.0:
        codes, counts = encode_array(
            source,
            kind,
            format,
            policy,
            op,
            out=out,
            raw=True,
            counts=return_counts,
            threads=threads,
        )
        return (codes, counts) if return_counts else codes
    results = encode_times(
        source,
        kind,
        format,
        factor,
        policy,
        op,
        out=out,
        raw=True,
        counts=return_counts,
        threads=threads,
    )
    return results if len(results) > 1 else results[0]


def undo_int8_fp8(
    fp8_tensor: Any,
    n_mantissa: int,
    target_dt: Any = "bfloat16",
    out: Any = None,
    scaling_factor: Any = 1,
    *,
    signed: bool = True,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """The values of codes from round_to_fp8_represented_as_int8, divided by its scaling_factor.

    target_dt: bfloat16, float16, float32 or float64, as a dtype or a name. bfloat16 holds every
        value of every n_mantissa exactly.
    out: an array of that dtype, of fp8_tensor's library and shape, to write into.

    Quotients are rounded to float64 and then to target_dt; by a power of two they are exact.
    """
    op = "undo_int8_fp8"
    codes = describe(fp8_tensor, op, codes=True, stream=stream)
    format = source_code_format(codes, fp8_format(n_mantissa, signed), op)
    value = value_type(target_dt, op)
    factor = _factor(scaling_factor, op)
    if isinstance(factor, float) and factor == 1.0:
        return decode_array(codes, format, value, op, out=out, threads=threads)
    return decode_times(codes, format, value, factor, True, op, out=out, threads=threads)


def int32_to_bfloat16(int32_tensor: Any, out: Any = None, *, threads: int = 0) -> Any:
    """Reads 32-bit integers as the bits of float32 and rounds those to bfloat16, to nearest even.

    Bits of a bfloat16 in the upper half of each integer come back unchanged.
    """
    op = "int32_to_bfloat16"
    bits = describe(int32_tensor, op)
    if bits.kind not in ("int32", "uint32"):
        raise TypeError(
            f"[{op}] got {bits.kind}; expected an array of int32 or uint32 that holds the bits of "
            "float32"
        )
    return cast_values(
        replace(bits, kind="float32"), "float32", "bfloat16", op, out=out, threads=threads
    )


def _factor(scaling_factor: Any, op: str, automatic: Any = None) -> Any:
    """A positive, finite number; an array; or what encode_scaled calls an automatic one."""
    automatic = automatic or {}
    if isinstance(scaling_factor, str):
        if scaling_factor not in automatic:
            raise (ValueError if automatic else TypeError)(
                f"[{op}] got scaling_factor {scaling_factor!r}; expected a number"
                + ", an array, 'auto' or 'auto_value'" * bool(automatic)
            )
        return automatic[scaling_factor]
    if getattr(scaling_factor, "ndim", 0) or isinstance(scaling_factor, (list, tuple)):
        return scaling_factor
    if getattr(scaling_factor, "is_cuda", False):
        return scaling_factor  # a number there: nothing waits for it
    try:
        factor = float(scaling_factor)
    except (TypeError, ValueError):
        raise TypeError(
            f"[{op}] got scaling_factor {scaling_factor!r}; expected a number"
        ) from None
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(
            f"[{op}] got scaling_factor = {factor}; expected a positive, finite number"
        )
    return factor
