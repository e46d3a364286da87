"""Transformer Engine's quantizers with its arguments. What they make are torch tensors."""

from __future__ import annotations

from typing import Any

import torch

import octavo
from octavo import _octavo, quantizers
from octavo._arrays_torch import TORCH
from octavo.torch._dtype import DType, dtype_of, element_format
from octavo.torch._scopes import _reducer
from octavo.torch.tensors import (
    Float8BlockwiseQTensor,
    Float8Tensor,
    MXFP8Tensor,
    NVFP4Tensor,
    QuantizedTensor,
    _Content,
)

__all__ = [
    "Float8BlockQuantizer",
    "Float8CurrentScalingQuantizer",
    "Float8Quantizer",
    "MXFP8Quantizer",
    "NVFP4Quantizer",
    "Quantizer",
]


class Quantizer(quantizers.Quantizer):
    """What all of them do."""

    _makes: type[QuantizedTensor]

    def _take(self, own: quantizers.Quantizer) -> None:
        """Octavo's quantizer of the same name, which knows what arguments mean."""
        self._own = own
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

    def quantize(  # type: ignore[override]
        self, tensor: torch.Tensor, *, out: QuantizedTensor | None = None
    ) -> QuantizedTensor:
        """Codes and scales of a tensor; out: a tensor of this quantizer's to have them."""
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"[{type(self).__name__}] got {type(tensor).__name__}, wanted a torch tensor"
            )
        if out is not None:
            self._check_out(tensor, out)
        codes = self._codes(tensor.detach())
        if out is None:
            return self._makes(_Content(codes, self._codes))
        out._content.codes = codes
        return out

    def _check_out(self, tensor: torch.Tensor, out: Any) -> None:
        """What a tensor says of itself must stay true: its class, shape, dtype, device, format."""
        op, wanted = type(self).__name__, self._makes.__name__
        if type(out) is not self._makes:
            raise TypeError(f"[{op}] got out of type {type(out).__name__}, wanted {wanted}")
        if out.shape != tensor.shape:
            raise ValueError(
                f"[{op}] got out of shape {tuple(out.shape)}, wanted {tuple(tensor.shape)}"
            )
        if (out.dtype, out.device) != (tensor.dtype, tensor.device):
            raise TypeError(
                f"[{op}] got out of {out.dtype} on {out.device}, wanted {tensor.dtype} on "
                f"{tensor.device}"
            )
        there, makes = out.quantized.scaling, self.scaling
        if (there.format.name, there.tile) != (makes.format.name, makes.tile):
            raise ValueError(f"[{op}] got out with {there}, wanted {makes}")

    __call__ = quantize

    def _codes(self, tensor: torch.Tensor) -> octavo.QuantizedTensor:
        made: octavo.QuantizedTensor = quantizers.Quantizer.quantize(self, tensor)
        return made

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(fp8_dtype={self.dtype.name}, rowwise={self.rowwise_usage}, "
            f"columnwise={self.columnwise_usage})"
        )


class Float8Quantizer(Quantizer):
    """Delayed scaling. Values are multiplied by the one float32 in scale, and the one in amax
    becomes the maximum of itself and their largest magnitude. Both are used where they lie."""

    _makes = Float8Tensor

    def __init__(
        self,
        scale: torch.Tensor,
        amax: torch.Tensor,
        fp8_dtype: Any,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
    ) -> None:
        format = element_format(fp8_dtype, "Float8Quantizer")
        self._take(
            quantizers.Float8Quantizer(
                scale, amax, format=format, rowwise=rowwise, columnwise=columnwise
            )
        )
        self.scale, self.amax = scale, amax

    def _codes(self, tensor: torch.Tensor) -> octavo.QuantizedTensor:
        made = super()._codes(tensor)
        TORCH.wrote(TORCH.describe(self.amax, type(self).__name__))
        return made


class Float8CurrentScalingQuantizer(Quantizer):
    """One scale, from the tensor itself. device is where the tensor is."""

    _makes = Float8Tensor

    def __init__(
        self,
        fp8_dtype: Any,
        device: Any = None,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        with_amax_reduction: bool = False,
        amax_reduction_group: Any = None,
        force_pow_2_scales: bool = False,
        amax_epsilon: float = 0.0,
    ) -> None:
        if with_amax_reduction != (amax_reduction_group is not None):
            raise ValueError(
                "[Float8CurrentScalingQuantizer] with_amax_reduction and amax_reduction_group go "
                "together; give both or neither"
            )
        reduce = _reducer(amax_reduction_group)
        self._take(
            quantizers.Float8CurrentScalingQuantizer(
                format=element_format(fp8_dtype, type(self).__name__),
                rowwise=rowwise,
                columnwise=columnwise,
                power_of_two=force_pow_2_scales,
                min_amax=amax_epsilon,
                reduce_amax=None if reduce is None else lambda amax: reduce([amax])[0],
            )
        )


class Float8BlockQuantizer(Quantizer):
    """float32 scales of tiles of 1 x 128 (block_scaling_dim=1) or 128 x 128 (2)."""

    _makes = Float8BlockwiseQTensor

    def __init__(
        self,
        fp8_dtype: Any,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        amax_epsilon: float = 0.0,
        force_pow_2_scales: bool = True,
        block_scaling_dim: int = 2,
    ) -> None:
        self._take(
            quantizers.Float8BlockQuantizer(
                format=element_format(fp8_dtype, type(self).__name__),
                rowwise=rowwise,
                columnwise=columnwise,
                power_of_two=force_pow_2_scales,
                min_amax=amax_epsilon,
                block_dims=block_scaling_dim,
            )
        )


class MXFP8Quantizer(Quantizer):
    """e8m0 scales of tiles of 1 x 32, or 32 x 32 (with_2d_quantization)."""

    _makes = MXFP8Tensor

    def __init__(
        self,
        fp8_dtype: Any,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        with_2d_quantization: bool = False,
    ) -> None:
        self._take(
            quantizers.MXFP8Quantizer(
                format=element_format(fp8_dtype, type(self).__name__),
                rowwise=rowwise,
                columnwise=columnwise,
                two_dimensional=with_2d_quantization,
            )
        )


class NVFP4Quantizer(Quantizer):
    """e4m3 scales of tiles of 1 x 16, or 16 x 16 (with_2d_quantization), and one float32."""

    _makes = NVFP4Tensor

    def __init__(
        self,
        fp4_dtype: Any = DType.kFloat4E2M1,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        with_rht: bool = False,
        with_2d_quantization: bool = False,
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        if element_format(fp4_dtype, "NVFP4Quantizer").name != "e2m1fn":
            raise ValueError(f"[NVFP4Quantizer] got fp4_dtype = {fp4_dtype}, wanted kFloat4E2M1")
        self._take(
            quantizers.NVFP4Quantizer(
                rowwise=rowwise,
                columnwise=columnwise,
                with_rht=with_rht,
                two_dimensional=with_2d_quantization,
                stochastic_rounding=stochastic_rounding,
                seed=seed,
            )
        )


_CLASSES: dict[str, type[Quantizer]] = {
    kind.__name__: kind
    for kind in (
        Float8Quantizer,
        Float8CurrentScalingQuantizer,
        Float8BlockQuantizer,
        MXFP8Quantizer,
        NVFP4Quantizer,
    )
}


def of_handle(handle: _octavo.Quantizer) -> Quantizer:
    """A quantizer that the library made."""
    cls = _CLASSES[handle.name]
    made = cls.__new__(cls)
    quantizers.Quantizer.__init__(made, handle)
    return made


def class_of(handle: _octavo.QuantizedTensor, quantizer: str) -> type[QuantizedTensor]:
    """The tensors that a quantizer of this name makes."""
    return _CLASSES[quantizer]._makes
