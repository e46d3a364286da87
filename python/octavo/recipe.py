"""Which formats and scales the tensors of training have: Transformer Engine's recipes, by its names
and with its fields and defaults. Every field takes effect or is refused.

    >>> octavo.recipe.MXFP8BlockScaling()
    recipe_type=MXFP8BlockScaling, margin=0, format=E4M3
"""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from octavo import _octavo
from octavo.quantizers import Quantizer

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


class _Largest(NamedTuple):
    max_fwd: float
    max_bwd: float


class Format(Enum):
    """Elements of what goes forward and of gradients; HYBRID: E4M3 and E5M2."""

    E2M1 = _Largest(6, 6)
    E4M3 = _Largest(448, 448)
    E5M2 = _Largest(57344, 57344)
    HYBRID = _Largest(448, 57344)


@dataclass(frozen=True)
class MMParams:
    """Of a product. Sums are always in float32 at least every 128 elements."""

    use_split_accumulator: bool = True


@dataclass(frozen=True)
class QParams:
    """Of a tensor. amax_epsilon: a smaller amax counts as this."""

    power_2_scale: bool = False
    amax_epsilon: float = 0.0
    random_hadamard_transform: bool = False
    stochastic_rounding: bool = False
    fp4_2d_quantization: bool = False


@dataclass(frozen=True)
class QuantizerRole:
    """Which tensor of which module a quantizer is for: tensor_type is "input", "weight", "output",
    "grad_output" or "grad_input"."""

    module_type: str
    tensor_type: str
    name: str = ""


class _LastMade:
    """The library's recipes that have functions, by the fields they were made of: two recipes with
    the same function are equal. A recipe keeps its function alive and not the other way round, so
    no weak reference tells when one is not wanted any more; the last few are kept."""

    _ROOM = 32

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[Any, _octavo.Recipe] = OrderedDict()

    def get(
        self, kind: type, values: list[Any], make: Callable[[], _octavo.Recipe]
    ) -> _octavo.Recipe:
        """One of these fields, which is made where there is none."""
        key = (kind, tuple((type(value), value) for value in values))
        try:
            hash(key)
        except TypeError:
            return make()  # an object that is called and cannot be looked up
        with self._lock:
            made = self._made.get(key)
        if made is None:
            made = make()
        with self._lock:
            made = self._made.setdefault(key, made)
            self._made.move_to_end(key)
            if len(self._made) > self._ROOM:
                self._made.popitem(last=False)
        return made


_with_functions = _LastMade()


class Recipe:
    """What all recipes do. Made as one of the classes below; a ValueError or TypeError says which
    field cannot be, a RuntimeError what octavo does not offer."""

    def __post_init__(self) -> None:
        self._native()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_made", None)

    def _native(self) -> _octavo.Recipe:
        """The library's recipe of these fields, made once: functions are compared by the object
        that was made of them."""
        made: _octavo.Recipe | None = self.__dict__.get("_made")
        if made is None:
            values = [getattr(self, name) for name in self._names()]
            if any(callable(value) for value in values):
                made = _with_functions.get(type(self), values, self._make)
            else:
                made = self._make()
            object.__setattr__(self, "_made", made)
        return made

    def _make(self) -> _octavo.Recipe:
        return _octavo.Recipe(type(self).__name__, self._fields())

    def __copy__(self) -> Any:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _names(self) -> list[str]:
        return [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]

    def _fields(self) -> dict[str, Any]:
        return {name: self._plain(name, getattr(self, name)) for name in self._names()}

    def _plain(self, name: str, value: Any) -> Any:
        wanted = {"format": Format, "quant": QParams, "gemm": MMParams}
        if name in ("margin", "amax_history_len") and isinstance(value, bool):
            raise TypeError(f"[{type(self).__name__}] got {name} = {value}, wanted an integer")
        kind = next((wanted[part] for part in name.split("_") if part in wanted), None)
        if kind is None or value is None:
            return value
        if not isinstance(value, kind):
            raise TypeError(
                f"[{type(self).__name__}] got {name} = {value!r}, wanted a {kind.__name__}"
            )
        if isinstance(value, Format):
            return value.name
        return value.use_split_accumulator if kind is MMParams else dataclasses.astuple(value)

    def __repr__(self) -> str:
        return str(self._native())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_made"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _made=None)

    @classmethod
    def delayed(cls) -> bool:
        return issubclass(cls, DelayedScaling)

    @classmethod
    def float8_current_scaling(cls) -> bool:
        return issubclass(cls, Float8CurrentScaling)

    @classmethod
    def float8_per_tensor_scaling(cls) -> bool:
        return cls.delayed() or cls.float8_current_scaling()

    @classmethod
    def float8_block_scaling(cls) -> bool:
        return issubclass(cls, Float8BlockScaling)

    @classmethod
    def mxfp8(cls) -> bool:
        return issubclass(cls, MXFP8BlockScaling)

    @classmethod
    def nvfp4(cls) -> bool:
        return issubclass(cls, NVFP4BlockScaling)

    @classmethod
    def custom(cls) -> bool:
        return issubclass(cls, CustomRecipe)

    @classmethod
    def fp8(cls) -> bool:
        """FP8 with float32 scales."""
        return cls.float8_per_tensor_scaling() or cls.float8_block_scaling()

    @classmethod
    def block_scaling(cls) -> bool:
        return cls.float8_block_scaling() or cls.mxfp8() or cls.nvfp4()


@dataclass(repr=False)
class DelayedScaling(Recipe):
    """One scale per tensor, from the amaxes of earlier steps.

    amax_compute_algo: "max", "most_recent", or a function from an array of a tensor's amaxes,
        oldest first, to one.
    scaling_factor_compute_algo: a function (amax, scale, largest value, recipe) to the next scale.
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

    def _fields(self) -> dict[str, Any]:
        fields = super()._fields()
        amax, scale = self.amax_compute_algo, self.scaling_factor_compute_algo
        fields["amax_compute_function"] = None
        if callable(amax):
            fields["amax_compute_algo"] = "max"
            fields["amax_compute_function"] = lambda window: float(amax(np.float32(window)))
        if scale is not None:
            # A copy, which does not know what is made here: nothing refers to itself.
            plain = copy.copy(self)
            fields["scaling_factor_compute_algo"] = lambda found, old, largest: float(
                scale(found, old, largest, plain)
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


@dataclass(repr=False)
class CustomRecipe(Recipe):
    """A quantizer for each role, from a function; asked once per module and role. Every module
    needs quantizers of its own where they have state."""

    qfactory: Callable[[QuantizerRole], Quantizer]
    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False
    backward_override: str | None = None

    def _fields(self) -> dict[str, Any]:
        fields, make = super()._fields(), self.qfactory
        if make is not None:
            fields["qfactory"] = lambda *role: make(QuantizerRole(*role))
        return fields
