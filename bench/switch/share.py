"""What part of a layer's step its quantizers take, for each recipe."""

from __future__ import annotations

import time

import torch

import octavo as ov
import octavo.torch as te
from bench.common.interleave import in_turns
from octavo.recipe import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
)

# Of Transformer Engine's documents, in per cent.
DOCUMENTED = {"MXFP8BlockScaling": 1.1, "DelayedScaling": 0.6}
RECIPES = (
    DelayedScaling(),
    Float8CurrentScaling(),
    Float8BlockScaling(),
    MXFP8BlockScaling(),
    NVFP4BlockScaling(),
)


def share(recipe: Recipe, size: int, rows: int, turns: int) -> dict:
    torch.manual_seed(0)
    layer = te.Linear(size, size, bias=False, device="cpu")
    x = torch.randn(rows, size, requires_grad=True)
    dy = torch.randn(rows, size)

    def step() -> None:
        with te.autocast(recipe=recipe):
            y = layer(x)
        y.backward(dy)

    step()
    (inputs, weight, _), (gradient, _) = (
        layer.quantizers[key] for key in ("scaling_fwd", "scaling_bwd")
    )
    values = [(inputs, x.detach()), (weight, layer.weight.detach()), (gradient, dy)]
    for quantizer, _ in values:
        quantizer.set_usage(rowwise=True, columnwise=True)

    def quantize() -> None:
        for quantizer, tensor in values:
            ov.torch.Quantizer.quantize(quantizer, tensor)

    seconds = in_turns({"step": step, "quantize": quantize}, turns, time.process_time)
    name = type(recipe).__name__
    return {
        "recipe": name,
        "step_ms": 1e3 * seconds["step"],
        "quantizers_ms": 1e3 * seconds["quantize"],
        "share_percent": 100 * seconds["quantize"] / seconds["step"],
        "documented_percent": DOCUMENTED.get(name),
    }
