"""Transformer Engine's quantizers with its arguments. What they make are torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import octavo
from octavo import quantizers
from octavo._arguments import flags, real, whole, wrong_type
from octavo._arrays.torch_arrays import TORCH
from octavo.torch._available import place_of
from octavo.torch._dtype import DType, element_format
from octavo.torch._offered import refuse
from octavo.torch._quantizer import Quantizer
from octavo.torch._scopes import _reducer
from octavo.torch.tensors import Float8BlockwiseQTensor, Float8Tensor, MXFP8Tensor, NVFP4Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Float8BlockQuantizer",
    "Float8CurrentScalingQuantizer",
    "Float8Quantizer",
    "MXFP8Quantizer",
    "NVFP4Quantizer",
    "Quantizer",
]


class Float8Quantizer(Quantizer):
    """Delayed scaling. Values are multiplied by the one float32 in scale, and the one in amax
    becomes the maximum of itself and their largest magnitude. Both are used where they lie."""

    makes = Float8Tensor
    amax_history: torch.Tensor  # of a layer's quantizer alone
    _last_amax: torch.Tensor | None = None  # of such a one: what it recorded in an earlier step

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
        for name, number in (("scale", scale), ("amax", amax)):
            if not isinstance(number, torch.Tensor):
                raise wrong_type(
                    "Float8Quantizer", name, number, "a torch tensor with one float32, which stays"
                )
        self._take(
            quantizers.Float8Quantizer(
                scale, amax, format=format, rowwise=rowwise, columnwise=columnwise
            )
        )
        self.scale, self._amax = scale, amax

    @property
    def amax(self) -> torch.Tensor:
        """The amax that is being recorded; of a layer's quantizer the last one, also after the end
        of its step, which begins a new one."""
        if self._last_amax is None:
            return self._amax
        return torch.where(self._amax > 0, self._amax, self._last_amax)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With a scale and an amax of its own."""
        made = object.__new__(type(self))
        memo[id(self)] = made
        scaling = self.scaling
        copies = {"rowwise": scaling.rowwise, "columnwise": scaling.columnwise}
        Float8Quantizer.__init__(
            made, self.scale.clone(), self._amax.clone(), scaling.format, **copies
        )
        return made

    def codes_of(self, values: torch.Tensor) -> octavo.QuantizedTensor:
        made = super().codes_of(values)
        TORCH.wrote(TORCH.describe(self._amax, type(self).__name__))
        return made

    def calibrate(self, tensor: torch.Tensor) -> None:
        super().calibrate(tensor)
        TORCH.wrote(TORCH.describe(self._amax, type(self).__name__))


class Float8CurrentScalingQuantizer(Quantizer):
    """One scale, from the tensor itself. device: where tensors will be; others are refused."""

    makes = Float8Tensor

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
        op = "Float8CurrentScalingQuantizer"
        flags(op, with_amax_reduction=with_amax_reduction, force_pow_2_scales=force_pow_2_scales)
        real(amax_epsilon, "amax_epsilon", op)
        if device is not None:
            self._device = place_of(device, op)
        if with_amax_reduction != (amax_reduction_group is not None):
            raise ValueError(
                "[Float8CurrentScalingQuantizer] with_amax_reduction and amax_reduction_group go "
                "together; give both or neither"
            )
        reduce = _reducer(amax_reduction_group, op)
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

    makes = Float8BlockwiseQTensor

    def __init__(
        self,
        fp8_dtype: Any,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        amax_epsilon: float = 0.0,
        force_pow_2_scales: bool = True,
        block_scaling_dim: int = 2,
        all_gather_usage: bool = False,
    ) -> None:
        op = "Float8BlockQuantizer"
        refuse(op, all_gather_usage=all_gather_usage)
        whole(block_scaling_dim, "block_scaling_dim", op)
        real(amax_epsilon, "amax_epsilon", op)
        flags(op, force_pow_2_scales=force_pow_2_scales)
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

    makes = MXFP8Tensor

    def __init__(
        self,
        fp8_dtype: Any,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        with_2d_quantization: bool = False,
    ) -> None:
        flags("MXFP8Quantizer", with_2d_quantization=with_2d_quantization)
        self._take(
            quantizers.MXFP8Quantizer(
                format=element_format(fp8_dtype, type(self).__name__),
                rowwise=rowwise,
                columnwise=columnwise,
                two_dimensional=with_2d_quantization,
            )
        )


class NVFP4Quantizer(Quantizer):
    """e4m3 scales of tiles of 1 x 16, or 16 x 16 (with_2d_quantization), and one float32. That of
    the columnwise copy comes from values after the Hadamard transform (with_rht), rounded to
    bfloat16, so with_post_rht_amax is always in effect; other values are refused.
    with_random_sign_mask: the transform has Transformer Engine's signs; else none. Faults (NaN,
    Inf): see octavo.quantizers."""

    makes = NVFP4Tensor

    def __init__(
        self,
        fp4_dtype: Any = DType.kFloat4E2M1,
        rowwise: bool = True,
        columnwise: bool = True,
        with_amax_reduction: bool = False,
        amax_reduction_group: Any = None,
        with_rht: bool = False,
        with_post_rht_amax: bool | None = None,
        with_2d_quantization: bool = False,
        stochastic_rounding: bool = False,
        row_scaled_nvfp4: bool = False,
        nvfp4_use_4over6: bool = False,
        nvfp4_e4m3_max: int = 448,
        nvfp4_4over6_err_mode: str = "MAE",
        with_random_sign_mask: bool = True,
        *,
        seed: int = 0,
    ) -> None:
        refuse(
            "NVFP4Quantizer",
            with_amax_reduction=with_amax_reduction,
            amax_reduction_group=amax_reduction_group,
            row_scaled_nvfp4=row_scaled_nvfp4,
            nvfp4_use_4over6=nvfp4_use_4over6,
            nvfp4_e4m3_max=nvfp4_e4m3_max != 448,
            nvfp4_4over6_err_mode=nvfp4_4over6_err_mode != "MAE",
        )
        names = {"with_2d_quantization": with_2d_quantization, "with_rht": with_rht}
        flags("NVFP4Quantizer", **names, with_random_sign_mask=with_random_sign_mask)
        if with_post_rht_amax is not None and bool(with_post_rht_amax) != bool(with_rht):
            raise RuntimeError(
                f"[NVFP4Quantizer] got with_post_rht_amax = {with_post_rht_amax} and with_rht = "
                f"{with_rht}; expected both or none: amaxes are of what is quantized"
            )
        if not with_random_sign_mask and not with_rht:
            raise ValueError(
                "[NVFP4Quantizer] got with_random_sign_mask = False, which is of a transform that "
                "with_rht = False leaves out"
            )
        if element_format(fp4_dtype, "NVFP4Quantizer").name != "e2m1fn":
            raise ValueError(f"[NVFP4Quantizer] got fp4_dtype = {fp4_dtype}; expected kFloat4E2M1")
        self._take(
            quantizers.NVFP4Quantizer(
                rowwise=rowwise,
                columnwise=columnwise,
                with_rht=with_rht,
                rht_signs=None if with_random_sign_mask else 0,
                two_dimensional=with_2d_quantization,
                stochastic_rounding=stochastic_rounding,
                seed=seed,
            )
        )
