"""Weights that are codes and cannot be cut or computed from others: shards of them, or what
pruning makes of them, would be plain values."""

from __future__ import annotations

import sys
from typing import Any

import torch

from octavo.torch._quantized_tensor import QuantizedTensor

_INSTEAD = (
    "which would be plain values from then on; make the layer outside of quantized_model_init: "
    "its values are sharded, and autocast quantizes them in each forward"
)


def refuse_shards(before: torch.Tensor | None, now: Any, op: str) -> None:
    """RuntimeError where a DTensor (fully_shard, distribute_tensor) takes the place of codes."""
    if not isinstance(before, QuantizedTensor):
        return
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is not None and isinstance(now, tensors.DTensor):
        raise RuntimeError(
            f"[{op}] got shards (a DTensor, as of fully_shard) in the place of a quantized weight, "
            + _INSTEAD
        )


def refuse_removal(weight: torch.Tensor | None, op: str) -> None:
    """RuntimeError where codes are taken out of their layer, to come back as something else."""
    if isinstance(weight, QuantizedTensor):
        raise RuntimeError(
            f"[{op}] a quantized weight is taken out of its layer (as FullyShardedDataParallel "
            f"does, which flattens it, and parametrizations do), {_INSTEAD}"
        )


def refuse_renaming(layer: torch.nn.Module, name: str, parameter: Any, op: str) -> None:
    """RuntimeError where codes become a parameter of another name (weight_orig, weight_v), from
    which a plain weight would be computed in each forward."""
    if not isinstance(parameter, QuantizedTensor):
        return
    # Some have taken it out by then, past __delattr__.
    if "weight" not in layer._parameters:
        layer._parameters["weight"] = parameter  # type: ignore[assignment]  # torch: a Parameter
    raise RuntimeError(
        f"[{op}] a quantized weight becomes {name} (as torch.nn.utils.prune, weight_norm and "
        f"spectral_norm do), to compute the weight from, {_INSTEAD}"
    )
