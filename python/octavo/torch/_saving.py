"""What a layer saves beside plain parameters, all of it plain tensors: a weight that is codes as
its parts, and the state of quantizers."""

from __future__ import annotations

from typing import Any

import torch

from octavo._quantized import _PARTS as PARTS
from octavo.torch._codes import empty_like, parts_of
from octavo.torch._quantized_tensor import QuantizedTensor

__all__ = ["PARTS", "load_weight", "weight_parts"]


def weight_parts(weight: QuantizedTensor) -> dict[str, torch.Tensor]:
    """Codes as bytes, and scales."""
    return parts_of(weight.quantized)


def load_weight(weight: QuantizedTensor, saved: dict[str, torch.Tensor]) -> None:
    """The parts of a weight that was quantized the same way."""
    made = empty_like(weight.quantized, weight.device)
    memory = parts_of(made)
    for part in {**memory, **saved}:
        got, want = _described(saved.get(part)), _described(memory.get(part))
        if got != want:
            raise RuntimeError(
                f"[Linear] got a saved weight with {part} of {got}; expected {want}: it was "
                "quantized another way; make the layer with the same recipe in quantized_model_init"
            )
        memory[part].copy_(saved[part])
    weight._replace_codes(made)


def _described(tensor: torch.Tensor | None) -> Any:
    return "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
