"""Training runs that change their recipe, and one that does not."""

from __future__ import annotations

import dataclasses
import warnings

import torch

import octavo.torch as te
from octavo.recipe import DelayedScaling, MXFP8BlockScaling, Recipe


@dataclasses.dataclass(frozen=True)
class Task:
    widths: tuple[int, ...] = (256, 1024, 1024, 64)
    batch: int = 64
    steps: int = 320
    changes: tuple[int, int] = (120, 220)  # to MXFP8, and back
    every: int = 5  # steps between losses
    noise: float = 0.3

    @property
    def parameters(self) -> int:
        return sum(a * b for a, b in zip(self.widths, self.widths[1:], strict=False))


def recipe_at(task: Task, step: int, changes: bool) -> Recipe:
    first, back = task.changes
    return MXFP8BlockScaling() if changes and first <= step < back else DelayedScaling()


def losses(task: Task, changes: bool, as_codes: bool = False) -> list[tuple[int, float]]:
    """(step, loss on held-out values). as_codes: weights are codes only."""
    torch.manual_seed(0)
    first, last = task.widths[0], task.widths[-1]
    teacher = torch.nn.Sequential(
        torch.nn.Linear(first, 64), torch.nn.Tanh(), torch.nn.Linear(64, last)
    )
    with torch.no_grad():
        teacher[2].weight.mul_(4)
    with te.quantized_model_init(enabled=as_codes, recipe=DelayedScaling()):
        layers = [
            te.Linear(a, b, bias=False, device="cpu", init_method=torch.nn.init.kaiming_normal_)
            for a, b in zip(task.widths, task.widths[1:], strict=False)
        ]
    model = torch.nn.Sequential(*(x for one in layers for x in (one, torch.nn.ReLU())))[:-1]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(1)

    def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(n, first, generator=data)
        with torch.no_grad():
            y = teacher(x)
        return x, y + task.noise * torch.randn(n, last, generator=data)

    held_x, held_y = batch(512)
    found, before = [], recipe_at(task, 0, changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of changes, and of values of codes
        for step in range(task.steps + 1):
            recipe = recipe_at(task, step, changes)
            if as_codes and type(recipe) is not type(before):
                for layer in layers:
                    layer.requantize_weight(recipe)
            before = recipe
            if step % task.every == 0:
                with torch.no_grad(), te.autocast(recipe=recipe):
                    loss = torch.nn.functional.mse_loss(model(held_x), held_y)
                found.append((step, float(loss)))
            x, y = batch(task.batch)
            with te.autocast(recipe=recipe):
                out = model(x)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(out, y).backward()
            optimizer.step()
    return found


def worst(task: Task, curve: list[tuple[int, float]], plain: list[tuple[int, float]]) -> float:
    """The largest relative distance from the run without changes, 20 steps after each change."""
    there, here = dict(plain), dict(curve)
    return max(abs(here[at + 20] / there[at + 20] - 1) for at in task.changes)
