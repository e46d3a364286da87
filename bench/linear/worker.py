"""Times the layer on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

import octavo as ov
import octavo.recipe
import octavo.torch as te
from bench.common.turns import in_turns
from bench.common.workers import worker_threads

ROWS, SIZE, TURNS = 512, 1024, 9
ASKED = {"of it in kernels": 0.85, "x nn.Linear f32": 1.0}
# A recipe, and the preset that it has for all three operands.
BY_HAND = {"MXFP8BlockScaling": (octavo.recipe.MXFP8BlockScaling, "mxfp8")}


def layer_side(layer: torch.nn.Module, recipe: object, x: torch.Tensor, dy: torch.Tensor):
    def step() -> None:
        layer.zero_grad()
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            y = layer(x)
        y.backward(dy)

    return step


def hand_side(preset: str, x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, threads: int):
    both = ov.preset(preset).replace(columnwise=True)
    bias = torch.zeros(w.shape[0])

    def step() -> None:
        qx, qw, qdy = (ov.quantize(one, both, threads=threads) for one in (x, w, dy))
        ov.gemm(qx, qw, bias=bias, threads=threads)
        ov.gemm(qdy, ov.transposed(qw), threads=threads)
        ov.gemm(ov.transposed(qdy), ov.transposed(qx), threads=threads)
        dy.sum(0)

    return step


def main() -> None:
    threads = worker_threads()
    torch.set_num_threads(threads)
    x, dy = torch.randn(ROWS, SIZE, requires_grad=True), torch.randn(ROWS, SIZE)
    plain = torch.nn.Linear(SIZE, SIZE)
    for name, (recipe, preset) in BY_HAND.items():
        layer = te.Linear(SIZE, SIZE, device="cpu")
        functions: dict[str, Callable[[], object]] = {
            "layer": layer_side(layer, recipe(), x, dy),
            "hand": hand_side(preset, x.detach(), layer.weight.detach(), dy, threads),
            "f32": layer_side(plain, None, x, dy),
        }
        seconds = in_turns(functions, TURNS)
        shares = {
            "of it in kernels": seconds["hand"] / seconds["layer"],
            "x nn.Linear f32": seconds["f32"] / seconds["layer"],
        }
        row = {
            "recipe": name,
            "ms": 1e3 * seconds["layer"],
            "hand_ms": 1e3 * seconds["hand"],
            "f32_ms": 1e3 * seconds["f32"],
            "in_kernels": shares["of it in kernels"],
            "beside_f32": shares["x nn.Linear f32"],
            "at_least": ASKED,
            "holds": all(shares[one] >= least for one, least in ASKED.items()),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
