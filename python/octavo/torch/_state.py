"""State of a module other than its parameters: the library's quantizers, whose state is in torch
tensors that the library updates in place."""

from __future__ import annotations

import inspect
import os
import pathlib
import warnings
from typing import Any

import torch

from octavo import _octavo, quantizers
from octavo._arrays.torch_arrays import TORCH
from octavo._quantize import value_kind
from octavo.torch.quantizers import (
    Float8BlockQuantizer,
    Float8CurrentScalingQuantizer,
    Float8Quantizer,
    MXFP8Quantizer,
    NVFP4Quantizer,
    Quantizer,
)

KEYS = ("scaling_fwd", "scaling_bwd")
_OURS = tuple(str(pathlib.Path(file).parent) + os.sep for file in (__file__, torch.__file__))
# Of Transformer Engine's, by its names: scale is what values are multiplied by.
_PARTS = {"amax_history": "amax_history", "scale": "inv_scale", "calls": "calls"}
STATE_NAMES = tuple(f"{key}.{part}" for key in KEYS for part in _PARTS)

State = dict[str, torch.Tensor]


def shared(x: torch.Tensor, op: str) -> _octavo.Tensor:
    """A tensor's memory for the library, which keeps the tensor alive."""
    array = TORCH.describe(x, op)
    return _octavo.Tensor.borrow(array.view(value_kind(array, op)), array.obj)


def warn(message: str) -> None:
    """At the line that called the layer."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def in_backward() -> bool:
    """Whether torch runs a backward on this thread now."""
    return bool(torch._C._current_graph_task_id() != -1)


class ModuleState:
    """Quantizers of one module on one device, and the codes of its weight between micro-batches."""

    def __init__(
        self,
        module_type: str,
        name: str,
        device: torch.device,
        seed: int,
        accumulator: str = "native",
        attends: bool = False,
    ) -> None:
        self.module_type, self.name, self.device, self.seed = module_type, name, device, seed
        self.accumulator = accumulator  # of its products
        self.attends = attends  # it has the tensors of attention
        cuda = (device.index or 0) if device.type == "cuda" else -1
        self.handle = _octavo.ModuleQuantizers(
            module_type, name, _allocator(device), warn, cuda, seed, attends
        )
        self.cache = _octavo.WeightCache()
        self._lists: dict[str, tuple[_octavo.QuantizerSet, list[Quantizer]]] = {}
        self._ran_under = ""  # the recipe of the last forward that was not in a backward
        self.has_run = False  # under any recipe
        self._waiting: State = {}  # read from a file before there was a recipe for it

    def moved(self, device: torch.device) -> ModuleState:
        """The same on another device, or in a copy of the module."""
        other = ModuleState(*self.identity(device))
        other.load({key: tensor.detach().clone() for key, tensor in self.state().items()})
        return other

    def identity(self, device: torch.device | None = None) -> tuple[Any, ...]:
        """What another one is made of, there or here."""
        place = self.device if device is None else device
        return (self.module_type, self.name, place, self.seed, self.accumulator, self.attends)

    def quantizers(self, key: str) -> list[Quantizer]:
        """Those of a direction, in the order of their slots; none before the first recipe."""
        made = self.handle.at(key)
        if made is None:
            return []
        known = self._lists.get(key)
        if known is None or known[0] is not made:
            known = self._lists[key] = (made, _list_of(made))
        return known[1]

    def state(self) -> State:
        """Tensors to save: empty where the recipe has no state."""
        found: State = {}
        for key in KEYS:
            made = self.handle.at(key)
            if made is None or made.amax_history is None:
                continue
            for part, own in _PARTS.items():
                tensor = getattr(made, own)
                if tensor is not None:  # steps are counted where a scale serves several
                    found[f"{key}.{part}"] = TORCH.take(tensor)
        return found or dict(self._waiting)

    def load(self, state: State) -> None:
        """Takes saved tensors over, now or when a recipe comes that has such state."""
        self._waiting = {
            name: tensor.detach().to(self.device, torch.float32).contiguous()
            for name, tensor in state.items()
        }
        self._fill()

    def misfits(self, state: State, prefix: str = "") -> list[str]:
        """Why saved tensors cannot be this module's: that of another kind has other slots."""
        slots = dict(zip(KEYS, (5, 0) if self.attends else (3, 2), strict=True))
        found = ((name, _misfit(name, saved, slots)) for name, saved in state.items())
        return [f"[{self.module_type}] got {prefix}{name} {why}" for name, why in found if why]

    def prepare(self) -> None:
        """Before a forward: state that waits for its quantizers."""
        enabled, calibrating, recipe = _octavo.current_autocast()
        self._note(recipe.name if enabled and recipe is not None else "", recipe is not None)
        if not self._waiting or not (enabled or calibrating) or recipe is None:
            return
        if not self.attends or recipe.fp8_dpa or recipe.fp8_mha:
            self.use(recipe)
            if self._waiting:
                self.handle.warn_unused_state(recipe)

    def _note(self, recipe: str, has_scope: bool) -> None:
        """Raises where a backward (activation checkpointing) recomputes a forward without its
        recipe: gradients would be those of another product."""
        self.has_run = self.has_run or bool(recipe)
        if not in_backward():
            self._ran_under = recipe
        elif self._ran_under and not has_scope and torch.is_grad_enabled():
            raise RuntimeError(
                f"[{self.module_type}] ran under {self._ran_under} and runs again inside a "
                "backward, where no scope is open: a checkpoint of torch's does not keep the one "
                "around it. Use octavo.torch.checkpoint, or enter autocast inside the function "
                "that is computed again; autocast(enabled=False) there multiplies values"
            )

    def use(self, recipe: _octavo.Recipe) -> None:
        """Quantizers for a recipe, with the state that waits for them."""
        self.handle.use(recipe, self._stream())
        self._fill()

    def _stream(self) -> int:
        return TORCH.stream(self.device.index or 0 if self.device.type == "cuda" else -1)

    def _fill(self) -> None:
        for key in KEYS:
            made = self.handle.at(key)
            if made is None or made.amax_history is None:
                continue
            parts = [self._waiting.get(f"{key}.{part}") for part in _PARTS]
            if all(part is None for part in parts):
                continue
            arrays = [None if saved is None else TORCH.describe(saved, key) for saved in parts]
            history, inv_scale, calls = (
                None if one is None else one.view(value_kind(one, key)) for one in arrays
            )
            made.restore(history, inv_scale, calls, self._stream())
            for part in _PARTS:
                self._waiting.pop(f"{key}.{part}", None)


def _misfit(name: str, saved: Any, slots: dict[str, int]) -> str:
    """Why this cannot be the state of that name; nothing where it can."""
    key, _, part = name.partition(".")
    if not isinstance(saved, torch.Tensor):
        return f"of type {type(saved).__name__}; expected a torch tensor"
    if not saved.dtype.is_floating_point:
        return f"of {saved.dtype}; expected torch.float32"
    if part == "calls":
        fits = saved.shape == (1,) and not saved.is_meta and bool(saved >= 0)
        return "" if fits else "that is no count of steps; expected one number of at least zero"
    if saved.dim() == 0 or saved.shape[-1] != slots[key]:
        return (
            f"of shape {tuple(saved.shape)}; expected {slots[key]} slots, one for each tensor that "
            "it quantizes; it may be the state of another kind of module"
        )
    is_scale = part == "scale"
    if saved.dim() != (1 if is_scale else 2) or saved.shape[0] == 0:
        wanted = "one number" if is_scale else "the amaxes of one step and more"
        return f"of shape {tuple(saved.shape)}; expected {wanted} for each of {slots[key]} slots"
    if saved.is_meta:
        return "on the device meta, which has no numbers"
    if is_scale and not bool((saved.isfinite() & (saved > 0)).all()):
        return f"= {saved.tolist()}; expected positive, finite numbers"
    if not is_scale and bool((saved < 0).any()):
        return f"with {float(saved.min())}; expected magnitudes"
    return ""


def _allocator(device: torch.device) -> Any:
    """State is in torch's memory on any device."""

    def allocate(nbytes: int) -> tuple[int, torch.Tensor]:
        memory = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return memory.data_ptr(), memory

    return allocate


def _list_of(made: _octavo.QuantizerSet) -> list[Quantizer]:
    found = [of_handle(made.at(slot)) for slot in range(len(made))]
    own_history, own_inv_scale, own_last = made.amax_history, made.inv_scale, made.last_amax
    if own_history is None or own_inv_scale is None or own_last is None:
        return found
    history, inv_scale = TORCH.take(own_history), TORCH.take(own_inv_scale)
    last = TORCH.take(own_last)
    for slot, quantizer in enumerate(found):
        if isinstance(quantizer, Float8Quantizer):
            quantizer.scale = inv_scale[slot : slot + 1]
            quantizer._amax = history[0, slot : slot + 1]
            quantizer._last_amax = last[slot : slot + 1]
            quantizer.amax_history = history[:, slot]
    return found


_CLASSES: dict[str, type[Quantizer]] = {
    kind.__name__: kind
    for kind in (
        Float8Quantizer,
        Float8CurrentScalingQuantizer,
        Float8BlockQuantizer,
        MXFP8Quantizer,
        NVFP4Quantizer,
    )
}


def of_handle(handle: _octavo.Quantizer) -> Quantizer:
    """A quantizer that the library has: the object that it was made by, where that is one of these
    (a custom recipe's), else one around it."""
    known = quantizers.of_handle(handle)
    if isinstance(known, Quantizer):
        return known
    cls = _CLASSES[handle.name]
    made = cls.__new__(cls)
    quantizers.Quantizer.__init__(made, handle)
    if isinstance(known, quantizers.Float8Quantizer) and isinstance(made, Float8Quantizer):
        made.scale, made._amax = known.inv_scale, known.amax
    return made
