"""Whose array is it, what is in it, and how is a new one of the same library made?

Every library is a Family. It describes an array as plain data (address, shape, strides), so that
nothing is copied on the way in, and makes new arrays for results, so that nothing is copied on the
way out. Everything above this module handles Arrays only and knows no library.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from octavo._dtypes import Kind, kind_of_name, loaded_torch, numpy_dtype
from octavo._octavo import Format, View

MAX_RANK: Final = 8


@dataclass(slots=True)  # not frozen: that makes every call a microsecond slower
class Array:
    """An array of some library, as plain data. `obj` keeps its memory alive."""

    family: Family
    obj: Any
    kind: Kind
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes
    read_only: bool
    cols: int | None = None  # codes in a row, where the dtype itself says that they are packed

    def logical_shape(self) -> tuple[int, ...]:
        """The shape in codes or values, where `shape` counts the elements of a packed dtype."""
        return self.shape if self.cols is None else self.shape[:-1] + (self.cols,)

    def view(self, kind: Kind, order: tuple[int, ...] | None = None) -> View:
        """The view the library works on, with its dimensions in this order."""
        shape, strides = self.shape, self.strides
        if order is not None:
            shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
        return View(self.address, kind, shape, strides, False, self.read_only)

    def packed_view(self, format: Format, cols: int) -> View:
        """The view of packed codes: every row is a bit stream of this many."""
        shape, strides = self.shape[:-1] + (cols,), self.strides[:-1] + (0,)
        return View(self.address, format, shape, strides, True, self.read_only)

    def order(self) -> tuple[int, ...] | None:
        """The dimensions from the outermost in memory inwards; None if they stand like that."""
        sizes = [abs(stride) for stride in self.strides]
        if sizes == sorted(sizes, reverse=True):
            return None
        return tuple(sorted(range(len(sizes)), key=lambda i: -sizes[i]))

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The same memory as a NumPy array; integers where NumPy has no dtype for codes."""
        memory = np.asarray(_Memory(self))
        dtype = None if self.cols is not None else numpy_dtype(self.kind)
        return memory if dtype is None else memory.view(dtype)


class _Memory:
    """What NumPy needs to know to look at an Array without a copy."""

    def __init__(self, array: Array) -> None:
        kind = array.kind
        if isinstance(kind, Format):
            kind = kind.code_dtype
        elif kind == "bfloat16":
            kind = "uint16"
        self.owner = array
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(kind).str,
            "data": (array.address, array.read_only),
            "shape": array.shape,
            "strides": array.strides,
        }


class Request(NamedTuple):
    """What a new array is wanted for."""

    kind: Kind
    shape: tuple[int, ...]  # in elements of the new array: bytes, where it is packed
    like: Array | None = None  # of the same shape; its order of dimensions in memory is kept
    cols: int | None = None  # packed codes in a row
    raw: bool = False  # codes as plain integers, even if the library has a dtype for them


class Family(ABC):
    """One array library."""

    name: str
    float_fix: str  # how its users convert to a type that can be encoded

    @abstractmethod
    def describe(self, x: Any, op: str, writing: bool = False) -> Array:
        """An array of this library as plain data."""

    @abstractmethod
    def new(self, request: Request, owner: Array, op: str) -> Array:
        """A new array for results, of the library that `owner` is of."""

    def finish(self, array: Array) -> Any:
        """The object to hand to the caller, once an array from `new` has been written."""
        return array.obj

    def wrote(self, array: Array) -> Any:
        """Called when the caller's own array has been written; returns the caller's object."""
        return array.obj


class NumpyFamily(Family):
    name = "NumPy array"
    float_fix = "x.astype(np.float32)"

    def describe(self, x: Any, op: str, writing: bool = False) -> Array:
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError(
                f"[{op}] got a masked array, and a mask would be lost; pass x.filled(value) instead"
            )
        if not x.dtype.isnative:
            raise TypeError(
                f"[{op}] got dtype {x.dtype.str} in foreign byte order, wanted native order; "
                f"convert with x.astype(x.dtype.newbyteorder('='))"
            )
        return Array(
            family=self,
            obj=x,
            kind=_numpy_kind(x.dtype),
            address=x.__array_interface__["data"][0],
            shape=x.shape,
            strides=x.strides,
            read_only=not x.flags.writeable,
        )

    def new(self, request: Request, owner: Array, op: str) -> Array:
        kind = request.kind
        dtype = None if request.raw or request.cols is not None else numpy_dtype(kind)
        if dtype is None:
            if not isinstance(kind, Format):
                raise TypeError(
                    f"[{op}] NumPy has no {kind} of its own: install ml_dtypes, or ask for float32"
                )
            dtype = np.dtype(kind.code_dtype)
        if request.like is not None:
            return self.describe(np.empty_like(request.like.obj, dtype=dtype, subok=False), op)
        return self.describe(np.empty(request.shape, dtype), op)


@functools.cache
def _numpy_kind(dtype: np.dtype[Any]) -> Kind:
    return kind_of_name(dtype.name)


NUMPY: Final = NumpyFamily()


def describe(x: Any, op: str, codes: bool = False) -> Array:
    """An array of any library; Python numbers and lists of them become NumPy arrays.

    Python numbers are float64 values, unless `codes` says that integers mean codes.
    """
    if isinstance(x, np.ndarray):
        return _checked(NUMPY.describe(x, op), op)
    torch = loaded_torch()
    if torch is not None and isinstance(x, torch.Tensor):
        return _checked(_torch_family().describe(x, op), op)
    if isinstance(x, (bool, int, float, list, tuple)):
        return _checked(NUMPY.describe(_from_python(x, op, codes), op), op)
    if isinstance(x, (bytes, bytearray)):
        return _checked(NUMPY.describe(np.frombuffer(x, np.uint8), op), op)
    if isinstance(x, np.generic) or not hasattr(x, "__dlpack__"):
        return _checked(NUMPY.describe(_from_protocol(x, op), op), op)
    return _checked(_dlpack_family().describe(x, op), op)


def describe_out(out: Any, like: Array, op: str) -> Array:
    """An array to write into: it must be of the library that the input is of."""
    family = _family_of(out)
    if family is None or family.name != like.family.name:
        got = type(out).__name__ if family is None else f"a {family.name}"
        raise TypeError(
            f"[{op}] out is {got}, but the input is a {like.family.name}; "
            "give an out of the same library"
        )
    array = _checked(family.describe(out, op, writing=True), op)
    if array.read_only:
        raise ValueError(f"[{op}] out is read-only; give one that can be written")
    return array


def _family_of(x: Any) -> Family | None:
    if isinstance(x, np.ndarray):
        return NUMPY
    torch = loaded_torch()
    if torch is not None and isinstance(x, torch.Tensor):
        return _torch_family()
    return _dlpack_family() if hasattr(x, "__dlpack__") else None


def _torch_family() -> Family:
    from octavo._arrays_torch import TORCH

    return TORCH


def _dlpack_family() -> Family:
    from octavo._arrays_dlpack import DLPACK

    return DLPACK


def _checked(array: Array, op: str) -> Array:
    if len(array.shape) > MAX_RANK:
        raise ValueError(
            f"[{op}] got an array of {len(array.shape)} dimensions, and the most is {MAX_RANK}; "
            "reshape it first"
        )
    return array


def _from_python(x: Any, op: str, codes: bool) -> np.ndarray[Any, np.dtype[Any]]:
    """Python numbers, nested in lists, as float64, which is what Python's floats are."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"[{op}] got nested lists that do not make an array: {error}") from None
    if array.size == 0 and array.dtype == np.float64 and codes:
        return array.astype(np.uint8)
    if array.dtype.kind == "i" and codes:
        if array.size and (array.min() < 0 or array.max() > 0xFFFF):
            raise ValueError(
                f"[{op}] got codes from {array.min()} to {array.max()}, "
                "wanted codes from 0 to 65535"
            )
        return array.astype(np.uint8 if array.size == 0 or array.max() <= 0xFF else np.uint16)
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.kind in "OSUb":
        raise TypeError(
            f"[{op}] got a Python value that NumPy reads as {array.dtype}, wanted numbers"
        )
    return array


def _from_protocol(x: Any, op: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Objects that NumPy can look into: its scalars, memoryview, array.array, __array__."""
    known = isinstance(x, (np.generic, memoryview)) or any(
        hasattr(x, name)
        for name in ("__array__", "__array_interface__", "__buffer__", "buffer_info")
    )
    if not known:
        raise TypeError(
            f"[{op}] got {type(x).__name__}, wanted an array of NumPy, ml_dtypes, torch or any "
            "library with __dlpack__, or Python numbers"
        )
    return np.asarray(x)
