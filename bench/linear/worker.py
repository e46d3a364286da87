"""Times the layer on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch

import octavo.torch as te
from bench.common.workers import worker_threads
from octavo import _octavo
from octavo.recipe import MXFP8BlockScaling

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


# The recipe's accumulator, what it is called in the table, and what is asked of it.
LINES = (
    ("native", "f32 sums", ASKED),
    ("float16", "f16 sums", ASKED),
)


def main() -> None:
    torch.set_num_threads(worker_threads())
    x, dy = torch.randn(ROWS, SIZE, requires_grad=True), torch.randn(ROWS, SIZE)
    plain = step_of(torch.nn.Linear(SIZE, SIZE), None, x, dy)
    layers = [
        step_of(
            te.Linear(SIZE, SIZE, device="cpu"), MXFP8BlockScaling(accumulator=accumulator), x, dy
        )
        for accumulator, _, _ in LINES
    ]
    # Each line in turn beside a step of torch's, so that what else the machine does meets both.
    turns: list[list[tuple[float, float, float]]] = [[] for _ in LINES]
    for turn in range(TURNS + 1):
        for ours, taken in zip(layers, turns, strict=True):
            seconds, in_kernels = timed_with_kernels(ours)
            beside = timed(plain)
            if turn > 0:  # the first of each touches its memory
                taken.append((seconds, in_kernels / seconds, beside))
    for (accumulator, sums, asked), taken in zip(LINES, turns, strict=True):
        print(json.dumps(row_of(accumulator, sums, asked, taken)), flush=True)


def row_of(
    accumulator: str,
    sums: str,
    asked: dict[str, float],
    taken: list[tuple[float, float, float]],
) -> dict[str, object]:
    whole, shares, f32 = zip(*taken, strict=True)
    middle = {
        "of it in kernels": statistics.median(shares),
        "x nn.Linear f32": statistics.median(b / a for a, b in zip(whole, f32, strict=True)),
    }
    return {
        "recipe": MXFP8BlockScaling.__name__,
        "accumulator": accumulator,
        "sums": sums,
        "ms": 1e3 * statistics.median(whole),
        "f32_ms": 1e3 * statistics.median(f32),
        "in_kernels": middle["of it in kernels"],
        "in_kernels_least": min(shares),
        "in_kernels_most": max(shares),
        "beside_f32": middle["x nn.Linear f32"],
        "at_least": asked,
        "holds": all(middle[one] >= least for one, least in asked.items()),
    }


if __name__ == "__main__":
    main()
