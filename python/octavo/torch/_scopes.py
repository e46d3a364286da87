"""Scopes: autocast and quantized_model_init. A scope belongs to the thread that enters it; scopes
nest, and the inner one decides."""

from __future__ import annotations

import contextlib
import copy
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import octavo
from octavo import _octavo
from octavo._arguments import flags, shown, wrong_type
from octavo.recipe import Recipe


def get_default_recipe() -> Recipe:
    """What autocast uses where none is given."""
    made: Recipe = getattr(octavo.recipe, _octavo.default_recipe().name)()
    return made


def checked_recipe(recipe: Recipe | None, op: str) -> Recipe:
    if recipe is None:
        return get_default_recipe()
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"[{op}] got a recipe of type {type(recipe).__name__}; expected one of octavo.recipe, "
            "such as MXFP8BlockScaling()"
        )
    return recipe


class _Scope(contextlib.ContextDecorator):
    """Entered and left; again only after that. Around a function each call enters one of its own,
    so that it may call itself and run in several threads."""

    def __init__(self) -> None:
        self._entered: Any = None
        self._ends_late = False  # it was left before its inner scopes, which was reported

    def _enter(self) -> Any:
        raise NotImplementedError

    def _leave(self, entered: Any, failed: bool) -> None:
        raise NotImplementedError

    def __call__(self, func: Any) -> Any:
        """The function, each call of which is inside such a scope."""
        name = type(self).__name__
        if not callable(func) or isinstance(func, type):
            raise wrong_type(name, "what it is put around", func, "a function")
        # Their bodies run later, when the scope would have ended.
        for runs_later in (
            inspect.isgeneratorfunction,
            inspect.iscoroutinefunction,
            inspect.isasyncgenfunction,
        ):
            if runs_later(func):
                raise TypeError(
                    f"[{name}] got {shown(func)}, whose body runs after the call; open the scope "
                    f"inside of it, with 'with {name}(...):'"
                )
        return super().__call__(func)

    def _recreate_cm(self) -> Any:
        made = copy.copy(self)
        made._entered = None
        return made

    def __enter__(self) -> None:
        if self._entered is not None:
            raise RuntimeError(
                f"[{type(self).__name__}] this scope is open already; make another one to nest it"
            )
        self._entered, self._ends_late = self._enter(), False

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._entered is None:
            if self._ends_late:
                return
            raise RuntimeError(
                f"[{type(self).__name__}] this scope is not open; enter it before, best as "
                f"'with {type(self).__name__}(...):'"
            )
        entered, self._entered = self._entered, None
        try:
            self._leave(entered, kind is not None)
        except BaseException:
            # What it ends with may fail, and then it has ended. Where it is not the innermost scope
            # of this thread it ends with its inner scopes: it is not left a second time.
            entered.leave_later()
            self._ends_late = True
            raise


class autocast(_Scope):
    """Layers called inside multiply as the recipe says, and so does their backward, wherever and
    whenever that runs. The end of the outermost scope updates delayed scaling; where an exception
    ends it, this step's amaxes are discarded instead.

    calibrating: without enabled, amaxes are recorded and scales updated, and nothing is quantized.
    amax_reduction_group: of torch.distributed, or a function that makes a float32 tensor of amaxes
        the maximum over all processes, in place.
    """

    def __init__(
        self,
        enabled: bool = True,
        calibrating: bool = False,
        recipe: Recipe | None = None,
        amax_reduction_group: Any = None,
    ) -> None:
        super().__init__()
        self._recipe = checked_recipe(recipe, "autocast")
        _check_flag("autocast", "enabled", enabled)
        flags("autocast", calibrating=calibrating)
        self._enabled, self._calibrating = bool(enabled), bool(calibrating)
        self._reduce = _reducer(amax_reduction_group, "autocast", "amax_reduction_group")
        self.group = amax_reduction_group

    def _enter(self) -> _octavo.Autocast:
        entered = _octavo.Autocast(
            self._recipe._native(), self._enabled, self._calibrating, self._reduce
        )
        _open("casts").append((self, copy.copy(self._recipe)))
        return entered

    def _leave(self, entered: _octavo.Autocast, failed: bool) -> None:
        entered.leave(failed)


class quantized_model_init(_Scope):
    """Layers made inside keep their weights as codes only. preserve_high_precision_init_val: also
    keep the values they were quantized from (weight.get_high_precision_init_val()).
    """

    def __init__(
        self,
        enabled: bool = True,
        recipe: Recipe | None = None,
        preserve_high_precision_init_val: bool = False,
    ) -> None:
        super().__init__()
        self._recipe = checked_recipe(recipe, "quantized_model_init")
        op = "quantized_model_init"
        _check_flag(op, "enabled", enabled)
        flags(op, preserve_high_precision_init_val=preserve_high_precision_init_val)
        self._enabled, self._preserve = bool(enabled), bool(preserve_high_precision_init_val)

    def _enter(self) -> _octavo.QuantizedModelInit:
        entered = _octavo.QuantizedModelInit(self._recipe._native(), self._enabled, self._preserve)
        _open("inits").append((self, copy.copy(self._recipe)))
        return entered

    def _leave(self, entered: _octavo.QuantizedModelInit, failed: bool) -> None:
        entered.leave()


_thread = threading.local()


def _open(kind: str) -> list[tuple[Any, Recipe]]:
    """Open scopes of this thread and kind, the innermost last; scopes that ended early are dropped
    once no inner scope is left."""
    if not hasattr(_thread, kind):
        setattr(_thread, kind, [])
    found: list[tuple[Any, Recipe]] = getattr(_thread, kind)
    while found and found[-1][0]._entered is None:
        found.pop()
    return found


def init_recipe() -> Recipe | None:
    """Of the innermost quantized_model_init of this thread: what the library's own was made of."""
    found = _open("inits")
    return found[-1][1] if found else None


def cast_scope() -> tuple[autocast, Recipe] | None:
    """The innermost autocast of this thread, and its recipe as it was entered with."""
    found = _open("casts")
    return found[-1] if found else None


def fp8_autocast(
    enabled: bool = True,
    calibrating: bool = False,
    fp8_recipe: Recipe | None = None,
    fp8_group: Any = None,
) -> autocast:
    """The old name of autocast."""
    _deprecated("fp8_autocast", "autocast")
    return autocast(enabled, calibrating, fp8_recipe, fp8_group)


def fp8_model_init(
    enabled: bool = True,
    recipe: Recipe | None = None,
    preserve_high_precision_init_val: bool = False,
) -> quantized_model_init:
    """The old name of quantized_model_init."""
    _deprecated("fp8_model_init", "quantized_model_init")
    return quantized_model_init(enabled, recipe, preserve_high_precision_init_val)


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)


def _check_flag(op: str, name: str, value: Any) -> None:
    """The first argument, which a decorator without brackets gives its function as."""
    if callable(value):
        raise TypeError(f"[{op}] got {shown(value)}; expected True or False; write @{op}()")
    flags(op, **{name: value})


def _reducer(
    group: Any, op: str, name: str = "amax_reduction_group"
) -> Callable[[Sequence[float]], list[float]] | None:
    if group is None:
        return None
    kind = getattr(torch.distributed, "ProcessGroup", None)
    if not callable(group) and not (kind is not None and isinstance(group, kind)):
        raise wrong_type(op, name, group, "a group of torch.distributed, a function, or None")

    def reduce(amaxes: Sequence[float]) -> list[float]:
        numbers = torch.tensor(amaxes, dtype=torch.float32, device="cpu")
        if callable(group):
            group(numbers)
            return numbers.tolist()
        distributed = torch.distributed
        if distributed.get_backend(group) == "nccl":
            numbers = numbers.cuda()
        distributed.all_reduce(numbers, op=distributed.ReduceOp.MAX, group=group)
        return numbers.tolist()

    return reduce
