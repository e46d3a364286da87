"""What the scopes of this thread say, by the names that Transformer Engine has: functions, and
FP8GlobalStateManager, which has them as class methods."""

from __future__ import annotations

from typing import Any

from octavo import _octavo
from octavo.recipe import Format, Recipe
from octavo.torch._available import (
    is_fp8_available,
    is_fp8_block_scaling_available,
    is_mxfp8_available,
    is_nvfp4_available,
)
from octavo.torch._dtype import DType
from octavo.torch._scopes import cast_scope, checked_recipe, get_default_recipe


def is_fp8_enabled() -> bool:
    """Inside an autocast that quantizes."""
    return bool(_octavo.current_autocast()[0])


def is_fp8_calibration() -> bool:
    """Inside an autocast that records amaxes without quantizing."""
    return bool(_octavo.current_autocast()[1])


def with_fp8_parameters() -> bool:
    """Inside a quantized_model_init: layers keep their weights as codes."""
    return bool(_octavo.current_model_init()[0])


def with_high_precision_init_val() -> bool:
    """And beside them the values they were made from."""
    return bool(_octavo.current_model_init()[1])


def get_default_fp8_recipe() -> Recipe:
    """get_default_recipe, by Transformer Engine's older name."""
    return get_default_recipe()


def get_fp8_recipe() -> Recipe:
    """Of the innermost autocast; outside of one the default."""
    found = cast_scope()
    return get_default_recipe() if found is None else found[1]


def get_fp8_group() -> Any:
    """The amax_reduction_group of the innermost autocast, or None."""
    found = cast_scope()
    return None if found is None else found[0].group


def get_fp8_te_dtype(fp8_recipe: Recipe, fprop_tensor: bool = True) -> DType:
    """The elements of what goes forward, or of gradients."""
    return DType[f"kFloat8{_format(fp8_recipe, fprop_tensor)}"]


def get_fp8_max(fp8_recipe: Recipe, fprop_tensor: bool = True) -> float:
    """The largest value of what goes forward, or of gradients."""
    return float(getattr(Format, _format(fp8_recipe, fprop_tensor)).value.max_fwd)


def _format(recipe: Recipe, forward: bool) -> str:
    chosen = getattr(checked_recipe(recipe, "get_fp8_te_dtype"), "fp8_format", Format.HYBRID)
    return "E4M3" if chosen is Format.E4M3 or (chosen is Format.HYBRID and forward) else "E5M2"


class FP8GlobalStateManager:
    """The functions of this file as Transformer Engine's class has them. State belongs to the
    thread, so there is nothing to set here: use autocast and quantized_model_init."""

    is_fp8_enabled = staticmethod(is_fp8_enabled)
    is_fp8_calibration = staticmethod(is_fp8_calibration)
    with_fp8_parameters = staticmethod(with_fp8_parameters)
    with_high_precision_init_val = staticmethod(with_high_precision_init_val)
    get_fp8_recipe = staticmethod(get_fp8_recipe)
    get_fp8_group = staticmethod(get_fp8_group)
    is_fp8_available = staticmethod(lambda: is_fp8_available(True))
    is_fp8_block_scaling_available = staticmethod(lambda: is_fp8_block_scaling_available(True))
    is_mxfp8_available = staticmethod(lambda: is_mxfp8_available(True))
    is_nvfp4_available = staticmethod(lambda: is_nvfp4_available(True))
