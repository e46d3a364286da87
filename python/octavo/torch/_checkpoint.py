"""Activation checkpointing: recomputes forward in backward instead of keeping its saved tensors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.utils.checkpoint

from octavo import _octavo
from octavo._arguments import function_or_none, wrong_type
from octavo.torch._offered import refuse
from octavo.torch._state import ModuleState, in_backward

_OP = "checkpoint"


_Result = TypeVar("_Result")


def checkpoint(
    function: Callable[..., _Result],
    *args: Any,
    distribute_saved_activations: bool = False,
    get_rng_state_tracker: Callable[..., Any] | None = None,
    tp_group: Any = None,
    use_reentrant: bool = False,
    context_fn: Callable[[], Any] | None = None,
    **kwargs: Any,
) -> _Result:
    """function(*args, **kwargs), of which only the arguments are kept for backward, which calls the
    function once more, under the recipe of the current scope. Under DelayedScaling the second
    forward uses the scales of the first one, and records no amaxes: gradients are those without a
    checkpoint, bit for bit.

    context_fn: torch's: makes two contexts, one around each forward.

    torch.utils.checkpoint.checkpoint does the same where the function opens the scope itself, but
    for the scales of DelayedScaling, which are those there are by then; with the scope around it,
    backward raises.
    """
    refuse(
        _OP,
        distribute_saved_activations=distribute_saved_activations,
        get_rng_state_tracker=get_rng_state_tracker,
        tp_group=tp_group,
        use_reentrant=use_reentrant,
    )
    if not callable(function):
        raise TypeError(f"[{_OP}] got a {type(function).__name__}; expected a function or a module")
    function_or_none(context_fn, "context_fn", _OP)
    scope = _octavo.current_autocast()

    def contexts() -> tuple[Any, Any]:
        first = _First()
        again = _Again(scope, first)
        if context_fn is None:
            return first, again
        theirs = context_fn()
        if not isinstance(theirs, tuple | list) or len(theirs) != 2:
            raise wrong_type(_OP, "what context_fn gave", theirs, "two contexts")
        return _Both(first, theirs[0]), _Both(again, theirs[1])

    made: _Result = torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=contexts, **kwargs
    )
    return made


class _First:
    """Around a first forward: records the scales of delayed scaling, call by call."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[ModuleState, list[_octavo.ForwardScales]]] = {}

    def __enter__(self) -> None:
        _open().append(self)

    def __exit__(self, *_: object) -> None:
        _close(self)

    def keep(self, state: ModuleState, scales: _octavo.ForwardScales) -> None:
        self.kept.setdefault(id(state), (state, []))[1].append(scales)


class _Replay:
    """One of the second forwards: the same, in the same order."""

    def __init__(self, first: _First):
        self._left = {key: iter(kept) for key, (_, kept) in first.kept.items()}

    def next(self, state: ModuleState) -> _octavo.ForwardScales | None:
        found = next(self._left.get(id(state), iter(())), None)
        if found is not None:
            found.again = True
        return found


class _Again:
    """The scope of a second forward, entered at every backward there is."""

    def __init__(self, scope: tuple[bool, bool, _octavo.Recipe | None], first: _First):
        self._enabled, _, recipe = scope
        self._recipe = _octavo.default_recipe() if recipe is None else recipe
        self._first = first
        self._entered: list[tuple[_octavo.Autocast, _Replay]] = []

    def __enter__(self) -> None:
        # The first forward has recorded the amaxes.
        entered = _octavo.Autocast(self._recipe, self._enabled, False, None)
        replay = _Replay(self._first)
        _open().append(replay)
        self._entered.append((entered, replay))

    def __exit__(self, *_: object) -> None:
        entered, replay = self._entered.pop()
        _close(replay)
        entered.leave(True)


class _Both:
    """The user's context inside of ours, as often as they are entered."""

    def __init__(self, outer: Any, inner: Any):
        self._outer, self._inner = outer, inner
        self._entered: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._outer)
            stack.enter_context(self._inner)
            self._entered.append(stack.pop_all())

    def __exit__(self, *error: Any) -> Any:
        return self._entered.pop().__exit__(*error)


_thread = threading.local()


def _open() -> list[_First | _Replay]:
    """Checkpointed forwards that this thread is in, the innermost last."""
    if not hasattr(_thread, "open"):
        _thread.open = []
    found: list[_First | _Replay] = _thread.open
    return found


def _close(one: _First | _Replay) -> None:
    found = _open()
    for at in reversed(range(len(found))):
        if found[at] is one:
            del found[at]
            return


def scales_for(state: ModuleState) -> _octavo.ForwardScales | None:
    """For the next forward of a module: to be filled in a first forward, to be used in a second."""
    firsts: list[_First] = []
    made: _octavo.ForwardScales | None = None
    for one in reversed(_open()):
        if isinstance(one, _Replay):
            made = one.next(state)
            break
        firsts.append(one)
    else:
        made = _octavo.ForwardScales() if firsts else None
    if made is not None:
        for first in firsts:
            first.keep(state, made)
    return made


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
