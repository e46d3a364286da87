"""Array libraries (NumPy, torch, DLPack) behind one interface: describe an array, make a new one.

Every library is a Family. It describes an array as plain data (address, shape, strides), so that
nothing is copied on the way in, and makes new arrays for results, so that nothing is copied on the
way out. Everything above this module handles Arrays only and knows no library.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from octavo._dtypes import Kind, kind_name, kind_of_name, loaded_torch, numpy_dtype
from octavo._octavo import Format, Tensor, View, array_memory

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
    cuda: int = -1  # the index of its device; -1 is the CPU
    stream: int = 0  # of the device, in whose order it is worked on

    def logical_shape(self) -> tuple[int, ...]:
        """The shape in codes or values, where `shape` counts the elements of a packed dtype."""
        return self.shape if self.cols is None else self.shape[:-1] + (self.cols,)

    def view(
        self, kind: Kind, cols: int | None = None, order: tuple[int, ...] | None = None
    ) -> View:
        """The view the library works on: of packed codes, so many to a row (every row a stream of
        bits), or with its dimensions in this order."""
        shape, strides = self.shape, self.strides
        if cols is not None:
            shape, strides = shape[:-1] + (cols,), strides[:-1] + (0,)
        elif order is not None:
            shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
        packed = cols is not None
        return View(self.address, kind, shape, strides, packed, self.read_only, self.cuda)

    def order(self) -> tuple[int, ...] | None:
        """The dimensions from the outermost in memory inwards; None if they stand like that."""
        if len(self.strides) < 2:
            return None
        sizes = [abs(stride) for stride in self.strides]
        if sizes == sorted(sizes, reverse=True):
            return None
        return tuple(sorted(range(len(sizes)), key=lambda i: -sizes[i]))

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The same memory as a NumPy array; integers where NumPy has no dtype for codes."""
        if self.cuda >= 0:
            raise RuntimeError(
                f"[array] this is done on the CPU, and the array is on cuda:{self.cuda}; "
                "copy it to the CPU first, or convert it with its own library"
            )
        memory = np.asarray(_Memory(self))
        dtype = None if self.cols is not None else numpy_dtype(self.kind)
        return memory if dtype is None else memory.view(dtype)


class _Memory:
    """__array_interface__ of an Array: NumPy views its memory without a copy."""

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


class Family(ABC):
    """One array library."""

    name: str
    float_fix: str  # how its users convert to a type that can be encoded

    @abstractmethod
    def describe(self, x: Any, op: str, writing: bool = False, stream: Any = None) -> Array:
        """An array of this library as plain data. stream: of a device, if not the library's own."""

    @abstractmethod
    def new(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        owner: Array,
        op: str,
        like: Array | None = None,
        cols: int | None = None,
        raw: bool = False,
    ) -> Array:
        """A new array for results, of the library that `owner` is of.

        shape: in elements of the new array: bytes, where it is packed.
        like: an array of the same shape, whose order of dimensions in memory is kept.
        cols: packed codes in a row.
        raw: codes as plain integers, even if the library has a dtype for them.
        """

    @abstractmethod
    def take(self, tensor: Tensor, raw: bool = False) -> Any:
        """octavo's own memory as an array of this library, without a copy; it stays alive as long
        as the array does. raw: codes as plain integers."""

    @abstractmethod
    def dtype(self, kind: Kind) -> Any:
        """The library's dtype for a kind, or the kind's name where it has none."""

    @abstractmethod
    def check_value(self, value: str, op: str) -> None:
        """Raises TypeError where the library has no dtype for a type of values."""

    def stream(self, cuda: int, given: Any = None) -> int:
        """The address of the stream to work on: the given one, else the library's current one."""
        return 0 if given is None or cuda < 0 else stream_address(given)

    def empty(self, kind: Kind, shape: tuple[int, ...], cuda: int, stream: int) -> Array:
        """New memory for values; hand it over with `finish`."""
        tensor = Tensor.empty(kind, shape, cuda=cuda, stream=stream)
        return tensor_array(self, tensor, tensor)

    def allocator(
        self, cuda: int, stream: int | None = None
    ) -> Callable[[int], tuple[int, Any]] | None:
        """Allocator of device memory for work on this stream, or on the library's current one, as
        (address, owner); None: octavo allocates."""
        return None

    def for_results(self, array: Array) -> Family:
        """The family to keep for results that are taken later; it does not keep the array."""
        return self

    def finish(self, array: Array) -> Any:
        """The object to hand to the caller, once an array from `new` has been written."""
        return array.obj

    def wrote(self, array: Array) -> Any:
        """Called when the caller's own array has been written; returns the caller's object."""
        return array.obj


class NumpyFamily(Family):
    name = "NumPy array"
    float_fix = "x.astype(np.float32)"

    def describe(self, x: Any, op: str, writing: bool = False, stream: Any = None) -> Array:
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise TypeError(
                f"[{op}] got a masked array, and a mask would be lost; pass x.filled(value) instead"
            )
        kind = _numpy_kind(x.dtype)
        if kind is None:
            raise TypeError(
                f"[{op}] got dtype {x.dtype.str} in foreign byte order; expected native order; "
                f"convert with x.astype(x.dtype.newbyteorder('='))"
            )
        return self._array(x, kind)

    def new(
        self,
        kind: Kind,
        shape: tuple[int, ...],
        owner: Array,
        op: str,
        like: Array | None = None,
        cols: int | None = None,
        raw: bool = False,
    ) -> Array:
        dtype = None if raw or cols is not None else numpy_dtype(kind)
        if dtype is None:
            if not isinstance(kind, Format):
                raise self._missing(kind, op)
            kind = kind.code_dtype
            dtype = np.dtype(kind)
        if like is None or like.order() is None:
            return self._array(np.empty(shape, dtype), kind)
        return self._array(np.empty_like(like.obj, dtype=dtype, subok=False), kind)

    def finish(self, array: Array) -> Any:
        return self.take(array.obj) if isinstance(array.obj, Tensor) else array.obj

    def take(self, tensor: Tensor, raw: bool = False) -> Any:
        array = tensor_array(self, tensor, tensor)
        if raw and isinstance(array.kind, Format):
            array.kind = array.kind.code_dtype
        return array.numpy()

    def dtype(self, kind: Kind) -> Any:
        return numpy_dtype(kind) or kind_name(kind)

    def check_value(self, value: str, op: str) -> None:
        if numpy_dtype(value) is None:
            raise self._missing(value, op)

    def _missing(self, value: str, op: str) -> TypeError:
        return TypeError(
            f"[{op}] NumPy has no {value} of its own: install ml_dtypes, or ask for float32"
        )

    def _array(self, x: np.ndarray[Any, np.dtype[Any]], kind: Kind) -> Array:
        address, writable = array_memory(x.__array_struct__)
        return Array(self, x, kind, address, x.shape, x.strides, not writable)


@functools.cache
def _numpy_kind(dtype: np.dtype[Any]) -> Kind | None:
    """What an element is; None in foreign byte order."""
    return kind_of_name(dtype.name) if dtype.isnative else None


NUMPY: Final = NumpyFamily()


def tensor_array(family: Family, obj: Any, tensor: Tensor) -> Array:
    """octavo's own memory as plain data; packed codes are rows of bytes, as in any library."""
    shape, strides = tuple(tensor.shape), tuple(tensor.strides)
    cols = None
    if tensor.packed and isinstance(tensor.kind, Format):
        cols = shape[-1]
        shape = shape[:-1] + ((cols * tensor.kind.bits + 7) // 8,)
        strides = strides[:-1] + (1,)
    kind, address, read_only = tensor.kind, tensor.address, tensor.read_only
    return Array(family, obj, kind, address, shape, strides, read_only, cols, tensor.cuda)


def stream_address(stream: Any) -> int:
    """A stream as an address: an integer, or an object of a library that has one."""
    for name in ("cuda_stream", "ptr"):  # torch, CuPy
        stream = getattr(stream, name, stream)
    address = operator.index(stream)
    if address < 0:
        raise ValueError(f"[stream] got {address}; expected the address of a stream, 0, 1 or 2")
    return address


def describe(x: Any, op: str, codes: bool = False, stream: Any = None) -> Array:
    """An array of any library; Python numbers and lists of them become NumPy arrays.

    Python numbers are float64 values, unless `codes` says that integers mean codes.
    """
    if isinstance(x, np.ndarray):
        array = NUMPY.describe(x, op)
    elif (torch := loaded_torch()) is not None and isinstance(x, torch.Tensor):
        array = _torch_family().describe(x, op, stream=stream)
    elif isinstance(x, (bool, int, float, list, tuple)):
        array = NUMPY.describe(_from_python(x, op, codes), op)
    elif isinstance(x, (bytes, bytearray)):
        array = NUMPY.describe(np.frombuffer(x, np.uint8), op)
    elif isinstance(x, np.generic) or not hasattr(x, "__dlpack__"):
        array = NUMPY.describe(_from_protocol(x, op), op)
    else:
        array = _dlpack_family().describe(x, op, stream=stream)
    if len(array.shape) > MAX_RANK:
        raise ValueError(
            f"[{op}] got {len(array.shape)} dimensions; expected at most {MAX_RANK}; "
            "collapse leading dimensions"
        )
    return array


def describe_out(out: Any, wanted: Family, op: str) -> Array:
    """An array to write into: it must be of the library that the input is of."""
    family = _family_of(out)
    if family is None or family.name != wanted.name:
        got = type(out).__name__ if family is None else f"a {family.name}"
        raise TypeError(
            f"[{op}] out is {got}, but the input is a {wanted.name}; "
            "give an out of the same library"
        )
    array = family.describe(out, op, writing=True)
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


def family_named(library: str, op: str) -> Family:
    """The arrays of a library, by its name."""
    if library == "numpy":
        return NUMPY
    if library == "torch":
        return _torch_family()
    raise ValueError(f"[{op}] got library {library!r}; expected 'numpy' or 'torch'")


@functools.cache  # to import a name again costs half a microsecond
def _torch_family() -> Family:
    from octavo._arrays.torch_arrays import TORCH

    return TORCH


@functools.cache
def _dlpack_family() -> Family:
    from octavo._arrays.dlpack import DLPACK

    return DLPACK


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
                f"[{op}] got codes from {array.min()} to {array.max()}; "
                "expected codes from 0 to 65535"
            )
        return array.astype(np.uint8 if array.size == 0 or array.max() <= 0xFF else np.uint16)
    if array.dtype.kind in "iu":
        return array.astype(np.float64)
    if array.dtype.kind in "OSUb":
        raise TypeError(
            f"[{op}] got a Python value that NumPy reads as {array.dtype}; expected numbers"
        )
    return array


def _from_protocol(x: Any, op: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Objects that NumPy can read: its scalars, memoryview, array.array, __array__."""
    from octavo._quantized import QuantizedTensor  # which needs this module

    if isinstance(x, QuantizedTensor):
        raise TypeError(
            f"[{op}] got a QuantizedTensor; expected an array; pass q.dequantize() for its values, "
            "or q.codes"
        )
    known = isinstance(x, (np.generic, memoryview)) or any(
        hasattr(x, name)
        for name in ("__array__", "__array_interface__", "__buffer__", "buffer_info")
    )
    if not known:
        raise TypeError(
            f"[{op}] got {type(x).__name__}; expected an array of NumPy, ml_dtypes, torch or any "
            "library with __dlpack__, or Python numbers"
        )
    return np.asarray(x)
