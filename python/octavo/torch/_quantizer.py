"""Base class of the quantizers of Transformer Engine: what they make are torch tensors."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

import octavo
from octavo import quantizers
from octavo._arguments import whole, wrong_type
from octavo._arrays.torch_arrays import TORCH
from octavo._quantize import value_kind
from octavo.torch._available import place_of
from octavo.torch._codes import new_codes
from octavo.torch._dtype import VALUES, DType, dtype_of
from octavo.torch._offered import refuse
from octavo.torch._quantized_tensor import QuantizedTensor, _Content

if TYPE_CHECKING:
    from typing_extensions import Self


def _sizes(shape: Any, op: str) -> list[int]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise wrong_type(op, "shape", shape, "the sizes of a tensor, such as (16, 32)")
    return [whole(size, "a size", op) for size in shape]


class _StraightThrough(torch.autograd.Function):
    """Straight-through estimator: the gradient of rounding is 1."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, quantizer: Quantizer) -> QuantizedTensor:
        return quantizer.makes(_Content(quantizer.codes_of(tensor.detach()), quantizer))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class Quantizer(quantizers.Quantizer):
    """Base class of quantizers."""

    makes: type[QuantizedTensor]
    _device: torch.device | None = None  # where tensors are to be; None: anywhere

    def _take(self, own: quantizers.Quantizer) -> None:
        """What octavo's quantizer of the same name made of the arguments."""
        quantizers.Quantizer.__init__(self, own._handle)

    @property
    def dtype(self) -> DType:
        """Of elements."""
        return dtype_of(self.scaling.format)

    @property
    def rowwise_usage(self) -> bool:
        return self.scaling.rowwise

    @property
    def columnwise_usage(self) -> bool:
        return self.scaling.columnwise

    def get_usages(self) -> dict[str, bool]:
        """Which copies are made, by "rowwise" and "columnwise"."""
        return {"rowwise": self.rowwise_usage, "columnwise": self.columnwise_usage}

    @property
    def quantizer(self) -> Quantizer:
        """The quantizer of new values of the tensors it makes."""
        return self

    def quantize(  # type: ignore[override]  # Transformer Engine's arguments
        self, tensor: torch.Tensor, *, out: QuantizedTensor | None = None
    ) -> QuantizedTensor:
        """Codes and scales of a tensor, through which gradients go as if it were the tensor itself;
        out: a tensor of this quantizer's to have them, without gradients; it keeps the copies
        (rowwise, columnwise) that it has."""
        self._check_tensor(tensor)
        if out is not None:
            self._check_out(tensor, out)
        if out is None and tensor.requires_grad and torch.is_grad_enabled():
            made: QuantizedTensor = _StraightThrough.apply(tensor, self)
            return made
        if out is None:
            return self.makes(_Content(self.codes_of(tensor.detach()), self))
        out._replace_codes(self._with_copies_of(out).codes_of(tensor.detach()))
        return out

    def _with_copies_of(self, out: QuantizedTensor) -> Quantizer:
        """Makes the copies of this quantizer, and those that out has: none gets lost or stays what
        it was."""
        there, made = out.get_usages(), self.get_usages()
        wanted = {name: made[name] or there[name] for name in made}
        if wanted == made:
            return self
        other = self.copy()
        other.set_usage(**wanted)
        return other

    def update_quantized(
        self,
        src: torch.Tensor,
        dst: QuantizedTensor,
        *,
        noop_flag: torch.Tensor | None = None,
    ) -> QuantizedTensor:
        """New values for dst; where noop_flag is not zero it stays as it is."""
        if noop_flag is not None and float(noop_flag) != 0:
            return dst
        return self.quantize(src, out=dst)

    def make_empty(
        self,
        shape: Iterable[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> QuantizedTensor:
        """A tensor with memory that has no values yet, for update_quantized."""
        refuse(type(self).__name__, pin_memory=pin_memory)
        if dtype not in VALUES:
            raise TypeError(f"[{type(self).__name__}] got dtype = {dtype}; expected one of values")
        op = type(self).__name__
        place = self._device if device is None and self._device else place_of(device, op)
        source = str(dtype).removeprefix("torch.")
        codes = new_codes(_sizes(shape, op), source, self.scaling, place)
        return self.makes(_Content(codes, self), requires_grad)

    def copy(self) -> Self:
        """A copy with the same configuration; scale and amax are shared."""
        return copy.copy(self)

    def calibrate(self, tensor: torch.Tensor) -> None:
        """Records the amax of values without quantizing: delayed scaling raises its amax."""
        self._check_tensor(tensor)
        source = TORCH.describe(tensor.detach(), type(self).__name__)
        self._handle.calibrate(source.view(value_kind(source, type(self).__name__)), source.stream)

    def _check_tensor(self, tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"[{type(self).__name__}] got {type(tensor).__name__}; expected a torch tensor"
            )
        place = self._device
        if place is not None and (
            tensor.device.type != place.type or place.index not in (None, tensor.device.index)
        ):
            raise ValueError(
                f"[{type(self).__name__}] got a tensor on {tensor.device}; expected one on {place} "
                "(device of the quantizer); leave device out for tensors anywhere"
            )

    def _check_out(self, tensor: torch.Tensor, out: Any) -> None:
        """Checks that out keeps its class, shape, dtype, device and format."""
        op, wanted = type(self).__name__, self.makes.__name__
        if type(out) is not self.makes:
            raise TypeError(f"[{op}] got out of type {type(out).__name__}; expected {wanted}")
        if out.shape != tensor.shape:
            raise ValueError(
                f"[{op}] got out of shape {tuple(out.shape)}; expected {tuple(tensor.shape)}"
            )
        if (out.dtype, out.device) != (tensor.dtype, tensor.device):
            raise TypeError(
                f"[{op}] got out of {out.dtype} on {out.device}; expected {tensor.dtype} on "
                f"{tensor.device}"
            )
        there, makes = out.quantized.scaling, self.scaling
        if (there.format.name, there.tile) != (makes.format.name, makes.tile):
            raise ValueError(f"[{op}] got out with {there}; expected {makes}")

    __call__ = quantize  # type: ignore[assignment]  # as quantize itself

    def codes_of(self, values: torch.Tensor) -> octavo.QuantizedTensor:
        """Codes and scales without a tensor around them."""
        return quantizers.Quantizer.quantize(self, values)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(fp8_dtype={self.dtype.name}, rowwise={self.rowwise_usage}, "
            f"columnwise={self.columnwise_usage})"
        )
