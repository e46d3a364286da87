"""Times the layer on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch

import octavo.recipe
import octavo.torch as te
from bench.common.workers import worker_threads
from octavo import _octavo

ROWS, SIZE, TURNS = 512, 1024, 25
ASKED = {"of it in kernels": 0.85, "x nn.Linear f32": 1.0}


def step_of(layer: torch.nn.Module, recipe: object, x: torch.Tensor, dy: torch.Tensor):
    """Forward and backward, with the gradients of the last step let go."""

    def step() -> None:
        layer.zero_grad()
        x.grad = None
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            y = layer(x)
        y.backward(dy)

    return step


def timed(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def timed_with_kernels(step: Callable[[], None]) -> tuple[float, float]:
    """Seconds of one step, and how many of them the backend's calls took: a part of the first."""
    clock = _octavo.KernelClock()
    seconds = timed(step)
    return seconds, clock.seconds


def main() -> None:
    torch.set_num_threads(worker_threads())
    x, dy = torch.randn(ROWS, SIZE, requires_grad=True), torch.randn(ROWS, SIZE)
    layer, plain = te.Linear(SIZE, SIZE, device="cpu"), torch.nn.Linear(SIZE, SIZE)
    recipe = octavo.recipe.MXFP8BlockScaling()
    ours, theirs = step_of(layer, recipe, x, dy), step_of(plain, None, x, dy)
    whole, shares, f32 = [], [], []
    for turn in range(TURNS + 1):
        seconds, in_kernels = timed_with_kernels(ours)
        beside = timed(theirs)
        if turn > 0:  # the first of each touches its memory
            whole.append(seconds)
            shares.append(in_kernels / seconds)
            f32.append(beside)
    middle = {
        "of it in kernels": statistics.median(shares),
        # Of neighbours, so that what else the machine does meets both.
        "x nn.Linear f32": statistics.median(b / a for a, b in zip(whole, f32, strict=True)),
    }
    row = {
        "recipe": type(recipe).__name__,
        "ms": 1e3 * statistics.median(whole),
        "f32_ms": 1e3 * statistics.median(f32),
        "in_kernels": middle["of it in kernels"],
        "in_kernels_least": min(shares),
        "in_kernels_most": max(shares),
        "beside_f32": middle["x nn.Linear f32"],
        "at_least": ASKED,
        "holds": all(middle[one] >= least for one, least in ASKED.items()),
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
