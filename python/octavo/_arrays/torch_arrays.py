"""PyTorch tensors on the CPU and on CUDA devices, by address and strides."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from octavo._arrays import Array, Family
from octavo._arrays.torch_tracing import refuse_tracing
from octavo._dtypes import TORCH_PACKED_FP4, Kind, kind_name, kind_of_name, torch_dtype
from octavo._octavo import Format, Tensor

_FP4: Final = Format("e2m1fn")
_LEGACY_DEFAULT: Final = 1  # CUDA's other name for stream 0
_HERE: Final = nullcontext()  # the stream that is torch's current one


class TorchFamily(Family):
    name = "torch tensor"
    float_fix = "x.float()"

    def describe(self, x: Any, op: str, writing: bool = False, stream: Any = None) -> Array:
        if x.layout is not torch.strided or x.is_nested:
            raise TypeError(
                f"[{op}] got a tensor of layout {x.layout}; expected a strided one; "
                "convert with x.to_dense()"
            )
        if type(x) is not Tensor and hasattr(x, "quantized"):  # a tensor of octavo.torch
            raise TypeError(
                f"[{op}] got a {type(x).__name__}, which is codes with scales; pass x.quantized, "
                "or x.dequantize() for its values"
            )
        refuse_tracing(op)
        if not (x.is_cpu or x.is_cuda):
            fix = "a layer gets memory by to_empty(device=...)" if x.is_meta else "pass x.cpu()"
            raise RuntimeError(
                f"[{op}] got a tensor on {x.device}, and octavo computes on the CPU and on CUDA "
                f"devices; {fix}"
            )
        if x.requires_grad and torch.is_grad_enabled():
            # Rounding has no useful derivative; to drop the graph in silence would train nothing.
            raise RuntimeError(
                f"[{op}] got a tensor that requires grad, and no gradient flows through codes; "
                "pass x.detach(), or call under torch.no_grad()"
            )
        if x.is_neg():
            # The sign is a note beside the memory (a real view of a conjugate), not in it.
            if writing:
                raise ValueError(f"[{op}] out is a negated view; give a plain tensor")
            place = x.get_device() if x.is_cuda else -1
            with _on(place, self.stream(place, stream)):
                x = x.resolve_neg()
        if not x.shape and _torch_kind(x.dtype)[1]:
            raise ValueError(f"[{op}] got a scalar of dtype {x.dtype}; give it a dimension")
        array = self._array(x, op)
        if array.cuda >= 0:
            array.stream = self.stream(array.cuda, stream)
        return array

    def stream(self, cuda: int, given: Any = None) -> int:
        if cuda < 0 or given is not None:
            return super().stream(cuda, given)
        return int(torch.cuda.current_stream(cuda).cuda_stream)

    def empty(self, kind: Kind, shape: tuple[int, ...], cuda: int, stream: int) -> Array:
        if cuda < 0:
            return super().empty(kind, shape, cuda, stream)
        with _on(cuda, stream):
            return self._array(torch.empty(shape, dtype=torch_dtype(kind), device=_device(cuda)))

    def allocator(
        self, cuda: int, stream: int | None = None
    ) -> Callable[[int], tuple[int, Any]] | None:
        """torch's caching allocator, which handles streams and graphs."""
        if cuda < 0:
            return None
        there = _on(cuda, stream)  # asked once for all parts of a result

        def allocate(nbytes: int) -> tuple[int, Any]:
            with there:
                memory = torch.empty(nbytes, dtype=torch.uint8, device=_device(cuda))
            return memory.data_ptr(), memory

        return allocate

    def finish(self, array: Array) -> Any:
        return self.take(array.obj) if isinstance(array.obj, Tensor) else array.obj

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
        packed = cols is not None
        dtype = None if raw or packed else torch_dtype(kind)
        if isinstance(kind, Format):
            if packed and not raw:
                dtype = _packed_dtype(kind)
            if dtype is None:
                # uint16 came with torch 2.3; the bits of int16 are the same.
                dtype = torch.uint8 if kind.itemsize == 1 else getattr(torch, "uint16", torch.int16)
        else:
            self.check_value(kind, op)
        with _on(owner.cuda, owner.stream):
            if like is None or like.order() is None:
                made = torch.empty(shape, dtype=dtype, device=_device(owner.cuda))
            else:
                made = torch.empty_like(like.obj, dtype=dtype, requires_grad=False)
        return self._array(made)

    def take(self, tensor: Tensor, raw: bool = False) -> Any:
        kind = tensor.kind
        if not isinstance(kind, Format):
            return torch.from_dlpack(tensor)
        # As integers, because older versions of torch take no float8 through DLPack.
        codes = torch.from_dlpack(tensor.as_bytes())
        dtype = _packed_dtype(kind) if tensor.packed else torch_dtype(kind)
        return codes if raw or dtype is None else codes.view(dtype)

    def dtype(self, kind: Kind) -> Any:
        return torch_dtype(kind) or kind_name(kind)

    def check_value(self, value: str, op: str) -> None:
        if torch_dtype(value) is None:
            raise TypeError(f"[{op}] this torch has no {value}; ask for float32")

    def _array(self, x: torch.Tensor, op: str = "array") -> Array:
        kind, packed = _torch_kind(x.dtype)
        shape, size = tuple(x.shape), x.element_size()
        strides = tuple([stride * size for stride in x.stride()])
        cols = 2 * shape[-1] if packed else None
        cuda = x.get_device() if x.is_cuda else -1
        return Array(self, x, kind, _address(x, op), shape, strides, False, cols, cuda)

    def wrote(self, array: Array) -> Any:
        note_change(array.obj)
        return array.obj


def note_change(x: torch.Tensor) -> None:
    """Autograd must learn that a tensor it may have saved is another one now."""
    bump = getattr(torch.autograd.graph, "increment_version", None)
    if bump is not None and not x.is_inference():
        bump(x)


def _address(x: torch.Tensor, op: str) -> int:
    """Of its first element. Subclasses around other tensors (DTensor), fake tensors, those inside
    of torch.func's transforms and freed storages have elements and no memory."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    try:
        # Torch answers for a fake one with a warning.
        fake = fakes is not None and isinstance(x, fakes.FakeTensor)
        address = 0 if fake else x.data_ptr()
    except RuntimeError:
        address = 0
    if address or not x.numel():
        return address
    raise TypeError(
        f"[{op}] got a {type(x).__name__} of shape {tuple(x.shape)} without memory of its own; "
        "expected a tensor with values; pass the tensor that it stands for: x.to_local() of a "
        "DTensor; a fake tensor (FakeTensorMode, torch.func) has none"
    )


def _on(cuda: int, stream: int | None) -> AbstractContextManager[Any]:
    """Makes a stream torch's current one, where it is another; None is the current one.

    A block of torch's caching allocator belongs to the stream that is current when it is allocated:
    work queued there before may still use it. Memory that another stream writes must be allocated
    on that stream.
    """
    if cuda < 0 or stream is None:
        return _HERE
    address = 0 if stream == _LEGACY_DEFAULT else stream
    if address == int(torch.cuda.current_stream(cuda).cuda_stream):
        return _HERE
    # ExternalStream takes 0 for "none given", and makes a new stream.
    other = (
        torch.cuda.ExternalStream(address, device=cuda)
        if address
        else torch.cuda.default_stream(cuda)
    )
    return torch.cuda.stream(other)


def _device(cuda: int) -> str:
    return "cpu" if cuda < 0 else f"cuda:{cuda}"


def _packed_dtype(format: Format) -> torch.dtype | None:
    return getattr(torch, TORCH_PACKED_FP4, None) if format == _FP4 else None


@functools.cache
def _torch_kind(dtype: torch.dtype) -> tuple[Kind, bool]:
    name = str(dtype).removeprefix("torch.")
    return kind_of_name(name), name == TORCH_PACKED_FP4


TORCH: Final = TorchFamily()
