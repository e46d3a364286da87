"""Requantizers of a layer's weight."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

import octavo
from octavo import _octavo
from octavo._arrays.torch_arrays import TORCH
from octavo._quantize import value_kind
from octavo.torch._state import ModuleState
from octavo.torch.quantizers import Quantizer

_OP = "Linear"


class WeightQuantizer:
    """By the layer's own state. Delayed scaling uses the amaxes of earlier steps, which do not
    apply to values that are not a step of training: then a scale is computed from the values."""

    def __init__(self, state: ModuleState, recipe: _octavo.Recipe | None) -> None:
        self._state, self._recipe = state, recipe
        self._fits_anew = False

    @property
    def quantizer(self) -> Quantizer:
        return self._state.quantizers("scaling_fwd")[1]

    @contextlib.contextmanager
    def fitting_anew(self) -> Iterator[None]:
        """For values that are read from a file."""
        self._fits_anew = True
        try:
            yield
        finally:
            self._fits_anew = False

    def codes_of(self, values: torch.Tensor) -> octavo.QuantizedTensor:
        source = TORCH.describe(values.detach(), _OP)
        view, pool = source.view(value_kind(source, _OP)), TORCH.allocator(source.cuda)
        history = getattr(self.quantizer, "amax_history", None)
        if history is not None and self._recipe is not None and self._are_news(values):
            history.zero_()
            handle = self._state.handle.first_weight(self._recipe, view, source.stream, pool)
        else:
            handle = self._state.handle.next_weight(view, source.stream, pool)
        return octavo.QuantizedTensor(handle, TORCH, source.stream)

    def _are_news(self, values: torch.Tensor) -> bool:
        """Before the first step, from a file, or twice what the scale has room for."""
        if self._fits_anew or not self._state.has_run:
            return True
        quantizer: Any = self.quantizer
        largest = float(values.detach().abs().max()) if values.numel() else 0.0
        room = 2 * quantizer.scaling.format.max / float(quantizer.scale)
        return room < largest < float("inf")

    def copied(self) -> CopyQuantizer:
        return CopyQuantizer(self)


class CopyQuantizer:
    """For a copy of a weight that no longer belongs to the layer: it does not touch the layer's
    state and gets its own with the first values that are written."""

    def __init__(self, of: WeightQuantizer) -> None:
        self._by, self._is_own = of, False

    @property
    def quantizer(self) -> Quantizer:
        return self._by.quantizer

    def codes_of(self, values: torch.Tensor) -> octavo.QuantizedTensor:
        if not self._is_own:
            state = self._by._state.moved(values.device)
            if self._by._recipe is not None:
                state.use(self._by._recipe)
            self._by, self._is_own = WeightQuantizer(state, self._by._recipe), True
        return self._by.codes_of(values)

    def copied(self) -> CopyQuantizer:
        return CopyQuantizer(self._by)
