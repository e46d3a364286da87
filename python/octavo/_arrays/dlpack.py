"""Arrays of any other library, through DLPack."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any, Final

from octavo._arrays import NUMPY, Array, Family, tensor_array
from octavo._dtypes import Kind, kind_name, value_of_format
from octavo._octavo import Format, Tensor, check_cuda

# DLDeviceType: plain memory, and memory of the host that a GPU can see as well; memory of a GPU.
_ON_CPU: Final = (1, 3, 11)
_ON_CUDA: Final = (2, 13)
# What the array API calls CUDA's legacy default stream, which it has no number 0 for.
_LEGACY_DEFAULT: Final = 1
# Where libraries keep from_dlpack.
_FROM_DLPACK: Final = ("from_dlpack", "dlpack.from_dlpack", "utils.dlpack.from_dlpack")
# What libraries raise when they do not take an array of some dtype.
_REFUSALS: Final = (AssertionError, BufferError, KeyError, RuntimeError, TypeError, ValueError)


class DLPackFamily(Family):
    """`obj` is a pair here: the caller's array, and the Tensor that holds the memory."""

    name = "DLPack array"
    float_fix = "to float32"

    def __init__(self, from_dlpack: Callable[[Any], Any] | None = None) -> None:
        self._from_dlpack = from_dlpack  # of the library that results go to

    def describe(self, x: Any, op: str, writing: bool = False, stream: Any = None) -> Array:
        device, index = (int(number) for number in x.__dlpack_device__())
        if device not in _ON_CPU + _ON_CUDA:
            raise RuntimeError(
                f"[{op}] got an array on DLPack device {device}, and octavo computes on the CPU "
                "(device 1) and on CUDA (device 2); copy it there first"
            )
        address = None
        if device in _ON_CUDA:
            check_cuda(index)
            address = self.stream(index, stream)
        try:
            # The other library makes its work on the array come before ours on the stream.
            tensor = Tensor.from_dlpack(
                _capsule(x, None if address is None else address or _LEGACY_DEFAULT)
            )
        except _REFUSALS as error:
            raise TypeError(
                f"[{op}] {type(x).__name__} cannot be used through DLPack: {error}"
            ) from error
        array = self._array(x, tensor)
        array.stream = address or 0
        return array

    def stream(self, cuda: int, given: Any = None) -> int:
        # 0 and 1 are the same stream.
        address = super().stream(cuda, given)
        return 0 if address == _LEGACY_DEFAULT else address

    def empty(self, kind: Kind, shape: tuple[int, ...], cuda: int, stream: int) -> Array:
        return self._array(None, Tensor.empty(kind, shape, cuda=cuda, stream=stream))

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
        # octavo's own memory; the caller's library takes it over once it has been written.
        kind = value_of_format(kind)
        if cols is not None:
            shape = shape[:-1] + (cols,)
        packed = cols is not None
        tensor = Tensor.empty(kind, shape, packed, cuda=owner.cuda, stream=owner.stream)
        if not (raw and isinstance(kind, Format)):
            return self._array(owner.obj[0], tensor)
        array = self._array(owner.obj[0], tensor.as_bytes())
        array.kind = kind.code_dtype
        return array

    def finish(self, array: Array) -> Any:
        family = self if array.obj[0] is None else self.for_results(array)
        return family.take(array.obj[1])

    def wrote(self, array: Array) -> Any:
        return array.obj[0]

    def take(self, tensor: Tensor, raw: bool = False) -> Any:
        if self._from_dlpack is None:
            return NUMPY.take(tensor, raw)
        try:
            return self._from_dlpack(tensor.as_bytes() if raw else tensor)
        except _REFUSALS:
            # The library has no such dtype: plain integers then.
            return self._from_dlpack(tensor.as_bytes())

    def dtype(self, kind: Kind) -> Any:
        return kind_name(kind)

    def check_value(self, value: str, op: str) -> None:
        return None  # only the library itself knows, when it is handed one

    def for_results(self, array: Array) -> Family:
        return DLPackFamily(_from_dlpack(array.obj[0]))

    def _array(self, x: Any, tensor: Tensor) -> Array:
        return tensor_array(self, (x, tensor), tensor)


def _capsule(x: Any, stream: int | None) -> Any:
    """The versioned capsule, which says whether it may be written; else what the library has."""
    order = {} if stream is None else {"stream": stream}
    try:
        return x.__dlpack__(max_version=(1, 1), **order)
    except TypeError:  # from before DLPack 1.0
        return x.__dlpack__(**order)


def _from_dlpack(x: Any) -> Callable[[Any], Any] | None:
    """The from_dlpack function of the library of x, or None if there is none."""
    homes = [sys.modules.get(type(x).__module__.partition(".")[0])]
    if hasattr(x, "__array_namespace__"):
        homes.insert(0, x.__array_namespace__())
    for home in homes:
        for path in _FROM_DLPACK:
            try:
                take: Callable[[Any], Any] = operator.attrgetter(path)(home)
            except AttributeError:
                continue
            return take
    return None


DLPACK: Final = DLPackFamily()
