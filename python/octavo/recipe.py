"""Which formats and scales the tensors of training have: Transformer Engine's recipes, by its names
and with its fields and defaults. Every field takes effect or is refused.

    >>> octavo.recipe.MXFP8BlockScaling()
    recipe_type=MXFP8BlockScaling, margin=0, format=E4M3
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from octavo import _octavo
from octavo._arguments import (
    flag,
    function_or_none,
    real,
    returned_number,
    whole,
    wrong_type,
)
from octavo._last_made import LastMade
from octavo._recipe_fields import Format, MMParams, QParams, QuantizerRole, check_accumulator
from octavo.quantizers import Quantizer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "CustomRecipe",
    "DelayedScaling",
    "Float8BlockScaling",
    "Float8CurrentScaling",
    "Format",
    "MMParams",
    "MXFP8BlockScaling",
    "NVFP4BlockScaling",
    "QParams",
    "QuantizerRole",
    "Recipe",
]


_with_functions = LastMade()


class Recipe:
    """Base class of all recipes. A ValueError or TypeError names an invalid field, a RuntimeError
    one that octavo does not support.

    accumulator: not Transformer Engine's. The accumulator of products of layers that name none
        themselves: "native", "float32", "float16" (fast on CPUs with half precision, less exact) or
        "hopper_fp8", as octavo.gemm has them.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "_made", self._checked())

    def __setattr__(self, name: str, value: Any) -> None:
        """An invalid value is refused here, and the recipe stays as it was."""
        if "_made" not in self.__dict__:  # still being made, field by field
            object.__setattr__(self, name, value)
            return
        if name not in self._names():
            if type(self).__module__ != __name__:  # a class of the user's may have more
                object.__setattr__(self, name, value)
                return
            raise AttributeError(
                f"[{type(self).__name__}] has no field {name!r}; it has {', '.join(self._names())}"
            )
        changed = copy.copy(self)
        changed.__dict__.update({name: value, "_made": None})
        made = changed._checked()
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_made", made)

    def _native(self) -> _octavo.Recipe:
        """The library's recipe of these fields, made once: functions are compared by the object
        that was made of them."""
        made: _octavo.Recipe | None = self.__dict__.get("_made")
        if made is None:
            made = self._checked()
            object.__setattr__(self, "_made", made)
        return made

    def _checked(self) -> _octavo.Recipe:
        values = [getattr(self, name) for name in self._names()]
        if any(callable(value) for value in values):
            return _with_functions.get(type(self), values, self._make)
        return self._make()

    def _make(self) -> _octavo.Recipe:
        return _octavo.Recipe(self._library_name(), self._fields())

    @classmethod
    def _library_name(cls) -> str:
        """Of the library's class, also for a class of the user's that derives from it."""
        return next((kind.__name__ for kind in cls.__mro__ if kind.__module__ == __name__), "")

    def __copy__(self) -> Any:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _all_fields(self) -> tuple[dataclasses.Field[Any], ...]:
        return dataclasses.fields(cast("DataclassInstance", self))  # as derived classes are

    def _names(self) -> list[str]:
        return [field.name for field in self._all_fields()]

    def _fields(self) -> dict[str, Any]:
        return {name: self._plain(name, getattr(self, name)) for name in self._names()}

    def _plain(self, name: str, value: Any) -> Any:
        wanted: dict[str, type[Format | QParams | MMParams]] = {
            "format": Format,
            "quant": QParams,
            "gemm": MMParams,
        }
        self._check_plain(name, value)
        kind = next((wanted[part] for part in name.split("_") if part in wanted), None)
        if kind is None or value is None:
            return value
        if not isinstance(value, kind):
            raise TypeError(
                f"[{type(self).__name__}] got {name} = {value!r}; expected a {kind.__name__}"
            )
        if isinstance(value, Format):
            return value.name
        if isinstance(value, MMParams):
            return value.use_split_accumulator
        return dataclasses.astuple(value)

    def _check_plain(self, name: str, value: Any) -> None:
        """Fields whose default is a number, a text or True or False are such."""
        fields = self._all_fields()
        default = next(field.default for field in fields if field.name == name)
        op = type(self).__name__
        if isinstance(default, bool):
            flag(value, name, op)
        elif isinstance(default, int):
            whole(value, name, op)
        elif isinstance(default, str) and not isinstance(value, str):
            raise wrong_type(op, name, value, "a text" + self._or_a_function(name))
        elif name == "backward_override" and value is not None and not isinstance(value, str):
            raise wrong_type(op, name, value, 'None, "high_precision" or "dequantized"')
        if name == "accumulator":
            check_accumulator(value, op)

    @staticmethod
    def _or_a_function(name: str) -> str:
        return " or a function" if name == "amax_compute_algo" else ""

    def __repr__(self) -> str:
        return str(self._native())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _made=None)

    # The predicates of a class come from the library.

    @classmethod
    def delayed(cls) -> bool:
        return "delayed" in _predicates(cls._library_name())

    @classmethod
    def float8_current_scaling(cls) -> bool:
        return "float8_current_scaling" in _predicates(cls._library_name())

    @classmethod
    def float8_per_tensor_scaling(cls) -> bool:
        return "float8_per_tensor_scaling" in _predicates(cls._library_name())

    @classmethod
    def float8_block_scaling(cls) -> bool:
        return "float8_block_scaling" in _predicates(cls._library_name())

    @classmethod
    def mxfp8(cls) -> bool:
        return "mxfp8" in _predicates(cls._library_name())

    @classmethod
    def nvfp4(cls) -> bool:
        return "nvfp4" in _predicates(cls._library_name())

    @classmethod
    def custom(cls) -> bool:
        return "custom" in _predicates(cls._library_name())

    @classmethod
    def fp8(cls) -> bool:
        """FP8 with float32 scales."""
        return "fp8" in _predicates(cls._library_name())

    @classmethod
    def block_scaling(cls) -> bool:
        return "block_scaling" in _predicates(cls._library_name())


@functools.cache
def _predicates(name: str) -> frozenset[str]:
    return frozenset(_octavo.recipe_predicates(name))


def _window(amaxes: list[float]) -> Any:
    """For a function of the user's, in Transformer Engine's order: this step's amax, then those of
    earlier steps from the oldest on. A tensor of torch's, whose layers are the ones that ask."""
    ordered = [amaxes[-1], *amaxes[:-1]]
    torch = sys.modules.get("torch")
    if torch is None:
        return np.array(ordered, np.float32)
    return torch.tensor(ordered, dtype=torch.float32, device="cpu")


def _number(value: float) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return np.float32(value)
    return torch.tensor(value, dtype=torch.float32, device="cpu")


@dataclass(repr=False)
class DelayedScaling(Recipe):
    """One scale per tensor, from the amaxes of earlier steps.

    amax_compute_algo: "max", "most_recent", "ema" (an exponential moving average, in which the
        history weighs amax_ema_decay), or a function from one tensor's amaxes to one. They are
        a torch tensor of amax_history_len numbers in Transformer Engine's order: this step's first,
        then those of earlier steps, the oldest first.
    scaling_factor_compute_algo: a function (amax, scale, largest value, recipe) to the next scale;
        amax and scale are torch tensors, scale is what values are multiplied by.
    interval: a new scale every so many steps; the history moves on with each. This and
        amax_ema_decay are not Transformer Engine's.
    """

    margin: int = 0
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1024
    amax_compute_algo: str | Callable[[Any], float] = "max"
    scaling_factor_compute_algo: Callable[[float, float, float, Recipe], float] | None = None
    reduce_amax: bool = True
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    accumulator: str = "native"
    interval: int = 1
    amax_ema_decay: float = 0.9

    def _check_plain(self, name: str, value: Any) -> None:
        if name == "amax_ema_decay":
            real(value, name, type(self).__name__)
        if name == "scaling_factor_compute_algo":
            function_or_none(value, name, type(self).__name__)
        elif name != "amax_compute_algo" or not callable(value):
            super()._check_plain(name, value)

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields()
        amax, scale = self.amax_compute_algo, self.scaling_factor_compute_algo
        fields["amax_compute_function"] = None
        if callable(amax):
            fields["amax_compute_algo"] = "max"
            fields["amax_compute_function"] = lambda window: returned_number(
                amax(_window(window)), "amax_compute_algo", "DelayedScaling"
            )
        if scale is not None:
            # A copy, which does not know what is made here: nothing refers to itself.
            plain = copy.copy(self)
            name = "scaling_factor_compute_algo"
            fields[name] = lambda found, old, largest: returned_number(
                scale(_number(found), _number(old), largest, plain), name, "DelayedScaling"
            )
        return fields


@dataclass(repr=False)
class Float8CurrentScaling(Recipe):
    """One scale per tensor, from the tensor. QParams that are not given follow
    use_power_2_scales."""

    use_power_2_scales: bool = False
    fp8_format: Format = Format.HYBRID
    fp8_quant_fwd_inp: QParams | None = None
    fp8_quant_fwd_weight: QParams | None = None
    fp8_quant_bwd_grad: QParams | None = None
    fp8_gemm_fprop: MMParams = MMParams(use_split_accumulator=False)
    fp8_gemm_dgrad: MMParams = MMParams()
    fp8_gemm_wgrad: MMParams = MMParams()
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    accumulator: str = "native"


@dataclass(repr=False)
class Float8BlockScaling(Recipe):
    """float32 scales of tiles of 1 x 128 (dim 1) or 128 x 128 (dim 2). QParams that are not given
    have powers of two unless use_f32_scales."""

    use_f32_scales: bool = False
    fp8_format: Format = Format.E4M3
    fp8_quant_fwd_inp: QParams | None = None
    fp8_quant_fwd_weight: QParams | None = None
    fp8_quant_bwd_grad: QParams | None = None
    x_block_scaling_dim: int = 1
    w_block_scaling_dim: int = 2
    grad_block_scaling_dim: int = 1
    fp8_gemm_fprop: MMParams = MMParams()
    fp8_gemm_dgrad: MMParams = MMParams()
    fp8_gemm_wgrad: MMParams = MMParams()
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    accumulator: str = "native"


@dataclass(repr=False)
class MXFP8BlockScaling(Recipe):
    """e8m0 scales of tiles of 1 x 32; with enable_2d_quantization 32 x 32 for weights. margin must
    be 0: a tile's scale fits the tile."""

    margin: int = 0
    fp8_format: Format = Format.E4M3
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    enable_2d_quantization: bool = False
    accumulator: str = "native"


@dataclass(repr=False)
class NVFP4BlockScaling(Recipe):
    """E2M1 with e4m3 scales of tiles of 1 x 16 (weights 16 x 16) and one float32 for the tensor.
    row_scaled_activation and nvfp4_4over6 are not offered: other values than these are refused."""

    disable_rht: bool = False
    disable_stochastic_rounding: bool = False
    disable_2d_quantization: bool = False
    row_scaled_activation: bool = False
    nvfp4_4over6: str = "none"
    nvfp4_4over6_e4m3_use_256: str = "all"
    nvfp4_4over6_err_mode: str = "MAE"
    fp4_format: Format = Format.E2M1
    fp8_format: Format = Format.E4M3
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    accumulator: str = "native"


@dataclass(repr=False)
class CustomRecipe(Recipe):
    """A quantizer for each role, from a function; asked once per module and role. Every module
    needs quantizers of its own where they have state."""

    qfactory: Callable[[QuantizerRole], Quantizer]
    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None
    quantization_alignment: int = 128  # of padding between groups; no other is offered
    accumulator: str = "native"

    def _fields(self) -> dict[str, Any]:
        fields, make = super()._fields(), self.qfactory
        if make is not None and not callable(make):
            raise TypeError(
                f"[CustomRecipe] got qfactory = {make!r}; expected a function from a role to a "
                "quantizer"
            )
        if make is not None:
            fields["qfactory"] = lambda *role: make(QuantizerRole(*role))
        return fields
