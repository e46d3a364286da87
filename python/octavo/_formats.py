"""Formats by name, and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo import _octavo
from octavo._dtypes import as_format, as_value
from octavo._octavo import Format


def format(spec: Any) -> Format:
    """The format that a name or a dtype means.

    A name is "e<E>m<M>" (IEEE 754 rules), optionally with "b<bias>" and then "fn" (no Inf), "fnuz"
    (no Inf, one zero) or "fnu" (no Inf, unsigned);
    or "mxint8", "int8", "int4". Names and dtypes of ml_dtypes and
    torch are understood, too.

        >>> octavo.format("e4m3fn").max
        448.0
        >>> octavo.format(torch.float8_e5m2) == octavo.format("e5m2")
        True
    """
    return as_format(spec, "format")


def formats() -> list[Format]:
    """The formats that have a name of their own. Any other ExMy of up to 16 bits works as well."""
    return _octavo.formats()


def finfo(spec: Any) -> Format | np.finfo:
    """The limits of a format or dtype, named as in numpy.finfo: max, min, eps, tiny, bits, ...

    The answer for a format is the Format itself; for float64 and float32 it is NumPy's own.
    """
    value = as_value(spec)
    if value in ("float64", "float32"):
        return np.finfo(value)
    return as_format(spec, "finfo")
