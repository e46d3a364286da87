"""Codes with their scales: what quantize returns. octavo owns the memory; arrays of the caller's
library view it without a copy."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from octavo import _octavo
from octavo._arrays import Family
from octavo._html import of_quantized
from octavo._octavo import Scaling, Tensor

# Everything that has memory, by the names that the library and Python both use.
_PARTS: Final = (
    "codes",
    "scales",
    "tensor_scale",
    "columnwise_codes",
    "columnwise_scales",
    "columnwise_tensor_scale",
)


class QuantizedTensor:
    """A quantized tensor: codes and scales, always both; value = scale * decode(code).

    Arrays are of the library that the values came from, and share memory with this object: they
    keep it alive, and what is written to one is seen in the other. Made by octavo.quantize,
    octavo.requantize and octavo.quantized.
    """

    __slots__ = ("_family", "_handle", "_stream", "__weakref__")

    def __init__(
        self, handle: _octavo.QuantizedTensor, family: Family, stream: int | None = None
    ) -> None:
        if not isinstance(handle, _octavo.QuantizedTensor):
            raise TypeError(
                "[quantized] a QuantizedTensor is made by octavo.quantize, or of codes and scales "
                "by octavo.quantized"
            )
        self._handle = handle
        self._family = family
        # Where memory of octavo's on a device is written; a library's own memory is its business.
        self._stream = stream if family.allocator(handle.cuda) is None else None

    @property
    def codes(self) -> Any:
        """Of the tensor's shape (packed ones in rows of bytes); None without a rowwise copy."""
        return self._part(self._handle.codes)

    @property
    def scales(self) -> Any:
        """One for each tile; a scalar where the tile is the tensor. None without a rowwise copy."""
        return self._part(self._handle.scales)

    @property
    def tensor_scale(self) -> Any:
        """The float32 that every scale is multiplied by, where scales are e4m3 (NVFP4); else None.
        Where there is no rowwise copy, the columnwise one's."""
        one = self._handle.tensor_scale
        return self._part(self._handle.columnwise_tensor_scale if one is None else one)

    @property
    def columnwise_tensor_scale(self) -> Any:
        """That of the columnwise copy: another one where a copy was Hadamard-transformed; None if
        there is none."""
        return self._part(self._handle.columnwise_tensor_scale)

    @property
    def columnwise_codes(self) -> Any:
        """Those of the transpose, [last dimension, product of the others]; None if not made."""
        return self._part(self._handle.columnwise_codes)

    @property
    def columnwise_scales(self) -> Any:
        """Those of the transpose; None if not made."""
        return self._part(self._handle.columnwise_scales)

    @property
    def scaling(self) -> Scaling:
        """How it was quantized."""
        return self._handle.scaling

    @property
    def tile(self) -> tuple[int, int]:
        """The (rows, columns) that share a scale; 0 is the whole extent."""
        return self._handle.scaling.tile

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what was quantized."""
        return tuple(self._handle.shape)

    @property
    def ndim(self) -> int:
        return len(self._handle.shape)

    @property
    def dtype(self) -> Any:
        """Of what was quantized."""
        return self._family.dtype(self._handle.source)

    @property
    def device(self) -> str:
        """Where codes and scales are: "cpu", or a CUDA device such as "cuda:0"."""
        return "cpu" if self._handle.cuda < 0 else f"cuda:{self._handle.cuda}"

    @property
    def nbytes(self) -> int:
        """Codes and scales of all copies together."""
        return self._handle.nbytes

    def dequantize(
        self, dtype: Any = None, *, out: Any = None, threads: int = 0, stream: Any = None
    ) -> Any:
        """octavo.dequantize of it: the values again, an array of its library."""
        from octavo._quantize import dequantize  # which needs this class

        return dequantize(self, dtype, out=out, threads=threads, stream=stream)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """NumPy would take it for values, which it has none of: a conversion rounds nothing and
        scales nothing unless it is asked for."""
        raise TypeError(
            "[quantized] got a QuantizedTensor where NumPy wants an array; say which: "
            "q.dequantize() for the values, q.codes and q.scales for what is stored"
        )

    def __len__(self) -> int:
        if not self._handle.shape:
            raise TypeError("[quantized] a scalar has no len()")
        return self._handle.shape[0]

    def __repr__(self) -> str:
        return (
            f"<octavo.QuantizedTensor {self.shape} from {self._handle.source}: {self.scaling}; "
            f"{self.nbytes} bytes>"
        )

    def _repr_html_(self) -> str:
        return of_quantized(self)

    def __copy__(self) -> QuantizedTensor:
        return QuantizedTensor(self._handle, self._family, self._stream)

    def __reduce__(self) -> Any:
        # A device may not be there when it comes back: then it is on the CPU.
        host = self._on_host()
        parts = [_memory(getattr(host, name)) for name in _PARTS]
        arguments = (self.shape, self._handle.source, self.scaling, self._family, parts)
        return _restore, arguments

    def _on_host(self) -> _octavo.QuantizedTensor:
        """Itself, or a host copy where it is on a device, which synchronizes."""
        handle = self._handle
        return handle if handle.cuda < 0 else handle.to_host(self._family.stream(handle.cuda))

    def _part(self, tensor: Tensor | None) -> Any:
        if tensor is None:
            return None
        if self._stream is not None and tensor.cuda >= 0:
            tensor.written_on = self._stream
        return self._family.take(tensor)


class _Bytes:
    """__array_interface__ of all bytes of a dense Tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.owner = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "data": (tensor.address, tensor.read_only),
            "shape": (tensor.nbytes,),
        }


def _memory(tensor: Tensor | None) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    return None if tensor is None else np.asarray(_Bytes(tensor))


def _restore(
    shape: tuple[int, ...], source: str, scaling: Scaling, family: Family, parts: list[Any]
) -> QuantizedTensor:
    """From a pickle, into memory of its own."""
    handle = _octavo.QuantizedTensor.empty(shape, source, scaling)
    for name, saved in zip(_PARTS, parts, strict=True):
        memory = _memory(getattr(handle, name))
        if (memory is None) != (saved is None) or (
            memory is not None and len(memory) != len(saved)
        ):
            raise ValueError(f"[quantized] got {name} that do not fit shape {shape} and {scaling}")
        if memory is not None:
            memory[:] = saved
    return QuantizedTensor(handle, family)
