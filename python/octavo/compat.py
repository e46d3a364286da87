"""Compatibility functions under widespread names for FP8 stored in plain bytes, with correct
rounding.

    codes = round_to_fp8_represented_as_int8(t, n_mantissa=3)
    t_again = undo_int8_fp8(codes, n_mantissa=3, target_dt=torch.bfloat16)

A code has one sign bit, 7 - n_mantissa exponent bits and n_mantissa mantissa bits:

    n_mantissa   0       1     2     3       4     5     6
    format       e7m0fn  e6m1  e5m2  e4m3fn  e3m4  e2m5  e1m6

3 and 2 are the two formats of OCP's FP8 standard. The others follow IEEE 754, but for 0: without a
mantissa bit there is no room for both Inf and NaN, and NaN it is.

New code is better served by octavo.encode and octavo.decode, which take any format.

_scaled_mm has the arguments of torch._scaled_mm; octavo.scaled_mm those of its successor.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from octavo._arrays import NUMPY, describe
from octavo._dtypes import named_format
from octavo._octavo import Format
from octavo._operation import (
    Policy,
    as_float64,
    cast_values,
    decode_array,
    encode_array,
    integer,
    source_code_format,
    source_kind,
    value_type,
)
from octavo._scaled_mm import _scaled_mm

__all__ = [
    "_scaled_mm",
    "fp8_format",
    "int32_to_bfloat16",
    "round_to_fp8_represented_as_int8",
    "undo_int8_fp8",
]

_FORMATS: Final = ("e7m0fn", "e6m1", "e5m2", "e4m3fn", "e3m4", "e2m5", "e1m6")


def fp8_format(n_mantissa: int) -> Format:
    """The 8-bit format with this many mantissa bits, 0 to 6; this module begins with a table."""
    if isinstance(n_mantissa, int) and not 0 <= n_mantissa < len(_FORMATS):
        raise ValueError(
            f"[fp8_format] got n_mantissa = {n_mantissa}; expected 0 to 6: eight bits are one of "
            "sign, n of mantissa and at least one of exponent"
        )
    return named_format(_FORMATS[integer(n_mantissa, "n_mantissa", 31, "fp8_format")])


def round_to_fp8_represented_as_int8(
    t: Any,
    n_mantissa: int,
    out: Any = None,
    scaling_factor: float | Literal["auto"] = 1,
    *,
    stochastic: bool = False,
    seed: int | None = None,
    overflow: str = "propagate",
    return_counts: bool = False,
    threads: int = 0,
) -> Any:
    """Rounds t * scaling_factor to 8-bit floating point and returns the codes as uint8.

    t: a tensor or array of bfloat16, or of any other type that octavo.encode takes.
    n_mantissa: 0 to 6; see fp8_format.
    out: a uint8 or int8 array of t's library and shape to write into.
    scaling_factor: what t is multiplied by first, and undo_int8_fp8 divides by; elsewhere octavo
        calls it inv_scale. Every value is rounded once, as if products were exact, unless t is
        float64. "auto": the largest power of two with which the largest finite |t| still fits the
        range; it is returned beside the codes. A power of two scales without rounding.
    stochastic: round up or down at random, so that the mean of many roundings is the value. The
        same seed gives the same codes. Otherwise to nearest even.
    overflow: as for octavo.encode. By default values beyond the range become the largest one, and
        Inf stays Inf where the format has it.
    return_counts: also return Counts(saturated, flushed, nan): how many values were beyond the
        range, became zero without being it, or were NaN.

    Returns the codes; then the factor, if "auto"; then the Counts, if asked for. More than one of
    these come as a tuple.
    """
    op = "round_to_fp8_represented_as_int8"
    format = fp8_format(n_mantissa)
    owner = describe(t, op)
    source, kind = owner, source_kind(owner, None, op)
    automatic = isinstance(scaling_factor, str)
    if automatic and scaling_factor != "auto":
        raise ValueError(
            f"[{op}] got scaling_factor {scaling_factor!r}; expected a number or 'auto'"
        )
    factor = 1.0 if automatic else _factor(scaling_factor, op)
    if automatic or factor != 1.0:
        wide = as_float64(owner, kind)
        if automatic:
            factor = _automatic_factor(wide, format)
        wide = _product_to_odd(wide, factor)
        source, kind = NUMPY.describe(wide, op), "float64"
    if seed is not None and not stochastic:
        raise ValueError(f"[{op}] got seed, which is for stochastic=True; leave it out or say that")
    policy = Policy("stochastic" if stochastic else None, overflow, seed=seed)
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
        owner=owner,
    )
    results = (codes,) + ((factor,) if automatic else ()) + ((counts,) if return_counts else ())
    return results if len(results) > 1 else codes


def undo_int8_fp8(
    fp8_tensor: Any,
    n_mantissa: int,
    target_dt: Any = "bfloat16",
    out: Any = None,
    scaling_factor: float = 1,
    *,
    threads: int = 0,
) -> Any:
    """The values of codes from round_to_fp8_represented_as_int8, divided by its scaling_factor.

    target_dt: bfloat16, float16, float32 or float64, as a dtype or a name. bfloat16 holds every
        value of every n_mantissa exactly.
    out: an array of that dtype, of fp8_tensor's library and shape, to write into.

    Quotients are rounded to float64 and then to target_dt; by a power of two they are exact.
    """
    op = "undo_int8_fp8"
    codes = describe(fp8_tensor, op, codes=True)
    format = source_code_format(codes, fp8_format(n_mantissa), op)
    value = value_type(target_dt, op)
    factor = _factor(scaling_factor, op)
    if factor == 1.0:
        return decode_array(codes, format, value, op, out=out, threads=threads)
    wide = as_float64(codes, format)
    np.divide(wide, factor, out=wide)
    return cast_values(
        NUMPY.describe(wide, op), "float64", value, op, out=out, threads=threads, owner=codes
    )


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


def _factor(scaling_factor: Any, op: str) -> float:
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


def _product_to_odd(wide: np.ndarray[Any, Any], factor: float) -> np.ndarray[Any, Any]:
    """wide * factor, rounded to odd, so that encoding it rounds as if the product were exact.

    The factor is cut into 26 and 27 bits; products with values of 24 bits (float32 and narrower)
    are then exact, and the error of their sum is exact too (Knuth's TwoSum). Where there is one,
    the sum is moved toward zero if it lies beyond the product, and its last bit is set.
    """
    mantissa, exponent = math.frexp(factor)
    high = math.ldexp(float(math.floor(math.ldexp(mantissa, 26))), exponent - 26)
    low = factor - high
    if low == 0.0:  # already exact
        return np.asarray(wide * factor)
    a, b = wide * high, wide * low
    total = np.asarray(a + b)
    with np.errstate(invalid="ignore"):  # of Inf, which stays as it is
        part = total - a
        error = (a - (total - part)) + (b - part)
    inexact = np.isfinite(total) & (error != 0)
    beyond = inexact & (np.signbit(error) != np.signbit(total))
    total = np.asarray(np.where(beyond, np.nextafter(total, 0.0), total))
    bits = total.view(np.int64)
    bits |= inexact.astype(np.int64)
    return total


def _automatic_factor(wide: np.ndarray[Any, Any], format: Format) -> float:
    amax = float(np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide)))
    if amax == 0.0:
        return 1.0
    # amax * 2^k <= max < amax * 2^(k + 1). A quotient would round; mantissas and exponents do not.
    (amax_mantissa, amax_exponent), (max_mantissa, max_exponent) = (
        math.frexp(amax),
        math.frexp(format.max),
    )
    exponent = max_exponent - amax_exponent - (amax_mantissa > max_mantissa)
    return math.ldexp(1.0, min(max(exponent, -1022), 1023))
