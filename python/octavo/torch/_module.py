"""Base class of layers with quantizers: their state is copied and saved with them."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import torch

from octavo.torch._state import KEYS, STATE_NAMES, ModuleState
from octavo.torch.quantizers import Quantizer


class QuantizingModule(torch.nn.Module):
    """A module whose quantizers are in _state."""

    _state: ModuleState

    @property
    def quantizers(self) -> dict[str, list[Quantizer]]:
        """By "scaling_fwd" and "scaling_bwd". Empty before the first forward under a recipe."""
        return {key: self._state.quantizers(key) for key in KEYS}

    @property
    def scaling_fwd(self) -> SimpleNamespace:
        """The state of delayed scaling as tensors, by the names that state_dict has: scale and
        amax_history. They are those that the library updates. Empty where there is none."""
        return self._named_state("scaling_fwd")

    @property
    def scaling_bwd(self) -> SimpleNamespace:
        """The same of gradients."""
        return self._named_state("scaling_bwd")

    def _named_state(self, direction: str) -> SimpleNamespace:
        start = direction + "."
        state = self._state.state().items()
        return SimpleNamespace(
            **{key.removeprefix(start): part for key, part in state if key.startswith(start)}
        )

    def _replace_state(self, state: ModuleState) -> None:
        self._state = state

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Also of a class that torch derived from this one, which copies fields alone."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        fields = {key: value for key, value in self.__dict__.items() if key != "_state"}
        made.__dict__.update(copy.deepcopy(fields, memo))
        made._replace_state(self._state.moved(self._state.device))
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: without the library's objects, with their state."""
        kept = dict(self.__dict__)
        tensors = {key: tensor.clone() for key, tensor in self._state.state().items()}
        kept["_state"] = (self._state.identity(), tensors)
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        identity, tensors = kept["_state"]
        super().__setstate__({key: value for key, value in kept.items() if key != "_state"})
        state = ModuleState(*identity)
        state.load(tensors)
        self._replace_state(state)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key, tensor in self._state.state().items():
            destination[prefix + key] = tensor.clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Quantizer state may be there or not: recipes without state save none."""
        state = taken(state_dict, prefix, STATE_NAMES)
        super()._load_from_state_dict(state_dict, prefix, *args)
        misfits = self._state.misfits(state, prefix)
        args[-1].extend(misfits)  # what torch raises of at the end
        if state and not misfits:
            self._state.load(state)


def taken(state_dict: Any, prefix: str, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """What is there of these names; torch does not see it any more."""
    return {name: state_dict.pop(prefix + name) for name in names if prefix + name in state_dict}
