"""Weights that are codes and cannot be cut: a shard of them would be plain values."""

from __future__ import annotations

import sys
from typing import Any

import torch

from octavo.torch._quantized_tensor import QuantizedTensor


def refuse_shards(before: torch.Tensor | None, now: Any, op: str) -> None:
    """RuntimeError where a DTensor (fully_shard, distribute_tensor) takes the place of codes."""
    if not isinstance(before, QuantizedTensor):
        return
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is not None and isinstance(now, tensors.DTensor):
        raise RuntimeError(
            f"[{op}] got shards (a DTensor, as of fully_shard) in the place of a quantized weight, "
            "which would be plain values from then on; make the layer outside of "
            "quantized_model_init: its values are sharded, and autocast quantizes them in each "
            "forward"
        )
