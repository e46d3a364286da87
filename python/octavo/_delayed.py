"""Delayed scaling: this step's scale from the amax history of earlier steps. The state is the
caller's arrays, updated in place."""

from __future__ import annotations

from typing import Any, cast

from octavo import _octavo
from octavo._arrays import Array, describe, describe_out
from octavo._dtypes import as_format
from octavo._octavo import View
from octavo._operation import value_type


def reset_delayed(
    history: Any, inv_scale: Any, *, scale: Any = None, calls: Any = None, stream: Any = None
) -> None:
    """As before the first step: an empty history and scales of one. Arguments as update_delayed."""
    op = "reset_delayed"
    address, arrays = _state((history, inv_scale, scale, calls), op, stream)
    _octavo.reset_delayed(*_views(arrays, op), stream=address)
    _wrote(arrays)


def update_delayed(
    history: Any,
    inv_scale: Any,
    *,
    scale: Any = None,
    calls: Any = None,
    format: Any = "e4m3fn",
    policy: str = "max",
    margin: int = 0,
    decay: float = 0.9,
    interval: int = 1,
    stream: Any = None,
) -> None:
    """The end of a step: the history moves on, and the next scales are made of it.

    history: float32 [length, n] for n tensors. Row 0 is where quantizers gather this step's amax;
        a tensor whose amax there is zero has not run and stays as it is.
    inv_scale: float32 [n], what values are multiplied by.
    scale: float32 [n], its reciprocal, if needed.
    calls: one float32 that counts calls; needed where interval is more than 1.
    format: whose largest value an amax is mapped to.
    policy: what the history becomes: "max", "most_recent" or "ema" with its decay.
    margin: the largest value is divided by 2**margin.
    interval: new scales every so many calls.
    stream: of a CUDA device, if the state is there and it is not torch's current one. Nothing
        waits.
    """
    op = "update_delayed"
    address, arrays = _state((history, inv_scale, scale, calls), op, stream)
    _octavo.update_delayed(
        *_views(arrays, op),
        format=as_format(format, op),
        policy=policy,
        margin=margin,
        decay=decay,
        interval=interval,
        stream=address,
    )
    _wrote(arrays)


def _state(given: tuple[Any, ...], op: str, stream: Any) -> tuple[int, list[Array | None]]:
    """The stream to work on, and the arrays."""
    first = describe(given[0], op, stream=stream)
    return first.stream, [None if x is None else describe_out(x, first.family, op) for x in given]


def _views(arrays: list[Array | None], op: str) -> tuple[View, View, View | None, View | None]:
    """Of history, inv_scale, scale and calls; the bindings refuse None for the first two."""
    views = tuple(None if x is None else x.view(value_type(x.kind, op)) for x in arrays)
    return cast("tuple[View, View, View | None, View | None]", views)


def _wrote(arrays: list[Array | None]) -> None:
    for array in arrays:
        if array is not None:
            array.family.wrote(array)
