"""The quantized tensors by Transformer Engine's names, with its fields."""

from __future__ import annotations

import torch

from octavo.torch._dtype import DType
from octavo.torch._quantized_tensor import QuantizedTensor

__all__ = [
    "Float8BlockwiseQTensor",
    "Float8Tensor",
    "MXFP8Tensor",
    "NVFP4Tensor",
    "QuantizedTensor",
]


class Float8Tensor(QuantizedTensor):
    """One scale."""

    @property
    def _data(self) -> torch.Tensor | None:
        return self._rowwise_data

    @property
    def _transpose(self) -> torch.Tensor | None:
        return self._columnwise_data

    @property
    def _transpose_invalid(self) -> bool:
        return not self.get_usages()["columnwise"]

    @property
    def _scale_inv(self) -> torch.Tensor:
        codes = self._content.codes
        return (codes.scales if codes.scales is not None else codes.columnwise_scales).reshape(1)


class Float8BlockwiseQTensor(QuantizedTensor):
    """float32 scales of tiles of 128."""

    @property
    def _is_2D_scaled(self) -> bool:
        return self._content.codes.tile[0] > 1


class MXFP8Tensor(QuantizedTensor):
    """e8m0 scales of tiles of 32. As in Transformer Engine, columnwise fields have the order of the
    tensor, not of its transpose."""

    @property
    def _columnwise_data(self) -> torch.Tensor | None:
        data = super()._columnwise_data
        return None if data is None else data.t().reshape(self.shape)

    @property
    def _columnwise_scale_inv(self) -> torch.Tensor | None:
        scales = super()._columnwise_scale_inv
        return None if scales is None else scales.t()


class NVFP4Tensor(QuantizedTensor):
    """e4m3 scales of tiles of 16, and one float32."""

    @property
    def _fp4_dtype(self) -> DType:
        return self._fp8_dtype
