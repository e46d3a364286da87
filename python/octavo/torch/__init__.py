"""Training with torch: Transformer Engine's recipes, scopes and layers, by its names.

    >>> import octavo.torch as te
    >>> layer = te.Linear(1024, 1024)
    >>> with te.autocast(recipe=te.recipe.MXFP8BlockScaling()):
    ...     y = layer(x)
    >>> y.sum().backward()

Everything runs on the CPU, and on CUDA devices where octavo has that backend.
"""

from octavo import recipe
from octavo.recipe import (
    CustomRecipe,
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)
from octavo.torch._available import (
    is_bf16_available,
    is_fp8_available,
    is_fp8_block_scaling_available,
    is_mxfp8_available,
    is_nvfp4_available,
)
from octavo.torch._checkpoint import checkpoint
from octavo.torch._dtype import DType
from octavo.torch._getters import (
    FP8GlobalStateManager,
    get_default_fp8_recipe,
    get_fp8_group,
    get_fp8_max,
    get_fp8_recipe,
    get_fp8_te_dtype,
    is_fp8_calibration,
    is_fp8_enabled,
    with_fp8_parameters,
    with_high_precision_init_val,
)
from octavo.torch._scopes import (
    autocast,
    fp8_autocast,
    fp8_model_init,
    get_default_recipe,
    quantized_model_init,
)
from octavo.torch.attention import scaled_dot_product_attention
from octavo.torch.dot_product_attention import DotProductAttention
from octavo.torch.linear import Linear
from octavo.torch.quantizers import (
    Float8BlockQuantizer,
    Float8CurrentScalingQuantizer,
    Float8Quantizer,
    MXFP8Quantizer,
    NVFP4Quantizer,
    Quantizer,
)
from octavo.torch.tensors import (
    Float8BlockwiseQTensor,
    Float8Tensor,
    MXFP8Tensor,
    NVFP4Tensor,
    QuantizedTensor,
)

__all__ = [
    "CustomRecipe",
    "DType",
    "DelayedScaling",
    "DotProductAttention",
    "FP8GlobalStateManager",
    "Float8BlockQuantizer",
    "Float8BlockScaling",
    "Float8BlockwiseQTensor",
    "Float8CurrentScaling",
    "Float8CurrentScalingQuantizer",
    "Float8Quantizer",
    "Float8Tensor",
    "Format",
    "Linear",
    "MXFP8BlockScaling",
    "MXFP8Quantizer",
    "MXFP8Tensor",
    "NVFP4BlockScaling",
    "NVFP4Quantizer",
    "NVFP4Tensor",
    "QuantizedTensor",
    "Quantizer",
    "autocast",
    "checkpoint",
    "fp8_autocast",
    "fp8_model_init",
    "get_default_fp8_recipe",
    "get_default_recipe",
    "get_fp8_group",
    "get_fp8_max",
    "get_fp8_recipe",
    "get_fp8_te_dtype",
    "is_bf16_available",
    "is_fp8_available",
    "is_fp8_block_scaling_available",
    "is_fp8_calibration",
    "is_fp8_enabled",
    "is_mxfp8_available",
    "is_nvfp4_available",
    "quantized_model_init",
    "recipe",
    "scaled_dot_product_attention",
    "with_fp8_parameters",
    "with_high_precision_init_val",
]
