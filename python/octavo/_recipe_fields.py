"""What fields of recipes are made of: formats, parameters of tensors and products, roles. Public as
octavo.recipe has them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from octavo._arguments import flag, flags, real

_ACCUMULATORS = ("native", "float32", "float16", "hopper_fp8")


def check_accumulator(value: str, op: str) -> None:
    """Of the products of layers."""
    if value not in _ACCUMULATORS:
        raise ValueError(
            f"[{op}] got accumulator = {value!r}; expected one of {', '.join(_ACCUMULATORS)}"
        )


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
    """Of a product. use_split_accumulator=False allows sums to stay in an FP8 tensor core's own
    accumulator. It applies where sums are kept so (accumulator="hopper_fp8" of a te.Linear or a
    recipe): True promotes to float32 every 128 products, False never. float32 accumulation, the
    default, ignores it."""

    use_split_accumulator: bool = True

    def __post_init__(self) -> None:
        flags("MMParams", use_split_accumulator=self.use_split_accumulator)


@dataclass(frozen=True)
class QParams:
    """Of a tensor. amax_epsilon: a smaller amax counts as this."""

    power_2_scale: bool = False
    amax_epsilon: float = 0.0
    random_hadamard_transform: bool = False
    stochastic_rounding: bool = False
    fp4_2d_quantization: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            is_number = field.name == "amax_epsilon"
            (real if is_number else flag)(getattr(self, field.name), field.name, "QParams")


@dataclass(frozen=True)
class QuantizerRole:
    """Which tensor of which module a quantizer is for: tensor_type is "input", "weight", "output",
    "grad_output" or "grad_input"."""

    module_type: str
    tensor_type: str
    name: str = ""
