"""Forward again in backward, instead of keeping what it saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from octavo import _octavo
from octavo.torch._offered import refuse
from octavo.torch._state import in_backward

_OP = "checkpoint"


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    distribute_saved_activations: bool = False,
    get_rng_state_tracker: Callable[..., Any] | None = None,
    tp_group: Any = None,
    use_reentrant: bool = False,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), of which only the arguments are kept for backward: that calls the
    function once more, under the recipe that holds now.

    torch.utils.checkpoint.checkpoint(..., use_reentrant=False) does the same where the function
    opens the scope itself. The second forward takes no note of amaxes; under DelayedScaling it
    uses the scales there are by then.
    """
    refuse(
        _OP,
        distribute_saved_activations=distribute_saved_activations,
        get_rng_state_tracker=get_rng_state_tracker,
        tp_group=tp_group,
        use_reentrant=use_reentrant,
    )
    if not callable(function):
        raise TypeError(f"[{_OP}] got a {type(function).__name__}, wanted a function or a module")
    scope = _octavo.current_autocast()
    return torch.utils.checkpoint.checkpoint(
        function,
        *args,
        use_reentrant=False,
        context_fn=lambda: (contextlib.nullcontext(), _Again(scope)),
        **kwargs,
    )


class _Again:
    """The scope of a second forward, entered at every backward there is."""

    def __init__(self, scope: tuple[bool, bool, _octavo.Recipe | None]):
        self._enabled, _, recipe = scope
        self._recipe = _octavo.default_recipe() if recipe is None else recipe
        self._entered: list[_octavo.Autocast] = []

    def __enter__(self) -> None:
        # What is gathered is gathered by the first forward.
        self._entered.append(_octavo.Autocast(self._recipe, self._enabled, False, None))

    def __exit__(self, *_: object) -> None:
        self._entered.pop().leave(True)


def is_second_forward() -> bool:
    """Whether a checkpoint of torch's does a forward again: in the midst of a backward, with hooks
    of its own for what is saved. The reentrant kind has none: its first forward was without
    gradients, so that the second one is what counts."""
    if not in_backward():
        return False
    try:
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    except (AttributeError, TypeError):
        return False
