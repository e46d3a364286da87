"""Which dtype another library has for a format, and which format a dtype means.

A *kind* is what one element is. It is a Format (the element is a code), one of VALUES (the element
is a number the library can read and write), or any other dtype name (the element is neither).
ml_dtypes and torch are optional: nothing here imports torch unless its dtype is asked for.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from octavo._octavo import Format

Kind: TypeAlias = "Format | str"

VALUES: Final = ("float64", "float32", "float16", "bfloat16")
# The two value types that are small enough to be formats as well.
_SIXTEEN_BITS: Final = {"float16": "e5m10", "bfloat16": "e8m7"}
_SHORT: Final = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}

# Formats that ml_dtypes or torch have a dtype for, under the name both use.
_DTYPE_NAMES: Final = {
    "e5m10": "float16",
    "e8m7": "bfloat16",
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e4m3b11fnuz": "float8_e4m3b11fnuz",
    "e4m3": "float8_e4m3",
    "e3m4": "float8_e3m4",
    "e8m0fnu": "float8_e8m0fnu",
    "e3m2fn": "float6_e3m2fn",
    "e2m3fn": "float6_e2m3fn",
    "e2m1fn": "float4_e2m1fn",
}
# torch's only dtype of packed codes: two to an element.
TORCH_PACKED_FP4: Final = "float4_e2m1fn_x2"


@functools.cache
def _optional(package: str) -> ModuleType | None:
    """A package, or None where it is not installed."""
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def loaded_torch() -> Any | None:
    """torch, if the program has imported it: an array of its can only exist then."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "Tensor") else None


@functools.cache
def named_format(name: str) -> Format:
    """A format by name. Names of 16-bit value types and of packed dtypes are formats, too."""
    return Format(_SIXTEEN_BITS.get(name, name.removesuffix("_x2")))


def dtype_name(dtype: object) -> str | None:
    """The name of a NumPy, ml_dtypes or torch dtype or scalar type, or None for anything else."""
    torch = loaded_torch()
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    if isinstance(dtype, np.dtype):
        return str(dtype.name)
    if isinstance(dtype, type) and issubclass(dtype, (np.generic, float)):
        return str(np.dtype(dtype).name)
    return None


@functools.cache
def kind_of_name(name: str) -> Kind:
    """What an element of a dtype of this name is."""
    if name in VALUES:
        return name
    if name.startswith(("float8_", "float6_", "float4_")):
        return named_format(name)
    return name


def as_format(spec: object, op: str) -> Format:
    """A Format from a Format, a name, or a dtype of NumPy, ml_dtypes or torch."""
    if isinstance(spec, Format):
        return spec
    if isinstance(spec, str):
        return named_format(spec)
    name = dtype_name(spec)
    if name is None:
        raise TypeError(
            f"[{op}] got a format of type {type(spec).__name__}; expected a name such as 'e4m3fn', "
            "an octavo.Format, or a dtype of ml_dtypes or torch"
        )
    if name not in _SIXTEEN_BITS and not isinstance(kind_of_name(name), Format):
        raise TypeError(
            f"[{op}] dtype {name} is not a format of 16 bits or fewer; expected a dtype such as "
            "ml_dtypes.float8_e4m3fn or torch.float8_e5m2, or a name such as 'e4m3fn'"
        )
    return named_format(name)


def as_value(spec: object) -> str | None:
    """The value type that a name or dtype says, or None when it says something else."""
    name = spec if isinstance(spec, str) else dtype_name(spec)
    if name is None:
        return None
    name = name.removeprefix("torch.")
    name = _SHORT.get(name, name)
    return name if name in VALUES else None


def value_of_format(kind: Kind) -> Kind:
    """The value type that is the same as a format of 16 bits; any other kind as it is."""
    if isinstance(kind, Format):
        return next((name for name, same in _SIXTEEN_BITS.items() if same == kind.name), kind)
    return kind


def kind_name(kind: Kind) -> str:
    """The usual name of a dtype: float8_e5m2 for codes of e5m2."""
    return _DTYPE_NAMES.get(kind.name, kind.name) if isinstance(kind, Format) else kind


def code_format(kind: Kind) -> Format | None:
    """The format of an element, where it can be read as a code."""
    if isinstance(kind, Format):
        return kind
    return named_format(kind) if kind in _SIXTEEN_BITS else None


@functools.cache
def numpy_dtype(kind: Kind) -> np.dtype[Any] | None:
    """NumPy's dtype for a format or a value type, or None."""
    name = _DTYPE_NAMES.get(kind.name) if isinstance(kind, Format) else kind
    if name is None:
        return None
    if name in ("float64", "float32", "float16"):
        return np.dtype(name)
    scalar = getattr(_optional("ml_dtypes"), name, None)
    return None if scalar is None else np.dtype(scalar)


@functools.cache
def torch_dtype(kind: Kind) -> Any | None:
    """torch's dtype for a format or a value type, or None. Imports torch."""
    name = _DTYPE_NAMES.get(kind.name) if isinstance(kind, Format) else kind
    torch = _optional("torch")
    return None if name is None else getattr(torch, name, None)
