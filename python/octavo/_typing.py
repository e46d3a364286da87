"""Types that overloads share. Overloads say what a function returns: one of octavo's own types, or
an array of the caller's library. Any other library than NumPy and torch is Any, and so are the
arrays of a QuantizedTensor, whose type does not say which library they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch

    from octavo._octavo import Scaling

    # Constraints, not a bound: a result has another dtype than the array that came in.
    ArrayT = TypeVar("ArrayT", np.ndarray[Any, np.dtype[Any]], torch.Tensor)


class RunOptions(TypedDict, total=False):
    threads: int
    stream: Any


class EncodeOptions(RunOptions, total=False):
    rounding: str | None
    overflow: str | None
    nan: str | None
    profile: str | None
    seed: int | None
    first_index: int | None
    stochastic_bits: int | None
    source_format: Any
    out: Any


class ProduceOptions(RunOptions, total=False):
    dtype: Any
    out: Any


class ProductOptions(RunOptions, total=False):
    activation: str | None
    residual: Any
    accumulator: str
    promote_every: int


class GemmOptions(ProductOptions, total=False):
    quantize_a: str | Scaling | None
    oblivious: bool


class AttentionOptions(RunOptions, total=False):
    causal: bool
    align: str
    window: tuple[int | None, int | None] | None
    softmax_scale: float | None
    soft_cap: float | None
    sinks: Any
    dropout_p: float
    seed: int | None
    query_lengths: Sequence[int] | None
    key_lengths: Any
    bias: Any
    block_table: Any
    precision: str
    rtol: float
    atol: float
    certified: bool
    oblivious: bool
    out: Any


class AttendOptions(TypedDict, total=False):
    precision: str
    rtol: float
    atol: float
    window: int | None
    softmax_scale: float | None
    soft_cap: float | None
    sinks: Any
    oblivious: bool
    out: Any
    threads: int
