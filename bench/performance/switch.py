"""Training that changes its recipe: the loss as a drawing, and quantizers' part of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .cpu import measured
from .results import Result, section, table

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 300, 56, 34, 14
COLOURS = {
    "unswitched": "#6b7280",
    "switched": "#2563eb",
    "unswitched, weights as codes": "#d4a017",
    "switched, weights as codes": "#c2410c",
}


def line(points: Iterable[tuple[float, float]], colour: str, dashed: bool) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "#374151") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def drawing(result: Result) -> str:
    """The loss on held-out values by step, its axis logarithmic; changes are vertical lines."""
    data = result.data
    losses = [loss for curve in data["curves"].values() for _, loss in curve]
    low, high = math.log2(min(losses)) - 0.05, math.log2(max(losses)) + 0.05

    def x_of(step: float) -> float:
        return LEFT + (WIDTH - LEFT - 12) * step / data["steps"]

    def y_of(loss: float) -> float:
        share = (math.log2(loss) - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        y = y_of(2.0**power)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 12}" stroke="#e5e7eb"/>')
        parts.append(text(LEFT - 6, y + 4, f"{2.0**power:g}", "end"))
    for step in range(0, data["steps"] + 1, 40):
        parts.append(text(x_of(step), HEIGHT - BOTTOM + 16, str(step)))
    for step, words in zip(data["changes"], ("to MXFP8", "and back"), strict=True):
        x = x_of(step)
        parts.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#9ca3af"/>')
        parts.append(text(x + 4, TOP + 10, words, "start"))
    for at, (name, curve) in enumerate(data["curves"].items()):
        points = [(x_of(step), y_of(loss)) for step, loss in curve]
        parts.append(line(points, COLOURS[name], name.startswith("unswitched")))
        parts.append(text(WIDTH - 20, TOP + 12 + 15 * at, name, "end", COLOURS[name]))
    parts.append(text((LEFT + WIDTH) / 2, HEIGHT - 4, "step"))
    parts.append(text(4, TOP + 2, "loss", "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def switch(result: Result) -> str:
    data = result.data
    rows = [
        [
            f"`{row['recipe']}`",
            f"{row['step_ms']:.1f}",
            f"{row['quantizers_ms']:.1f}",
            f"{row['share_percent']:.1f} %",
            f"{row['documented_percent']} %" if row["documented_percent"] else "",
        ]
        for row in data["shares"]
    ]
    worst = ", ".join(f"{100 * value:.2f} % ({name})" for name, value in data["worst"].items())
    return section(
        f"### Changes of recipe and quantizers in a step, {result.machine_name}",
        f"A network of {data['parameters'] / 1e6:.1f} million parameters trains for "
        f"{data['steps']} steps, with changes at {' and '.join(map(str, data['changes']))}. 20 "
        f"steps after a change the loss is this far from that of the run without: {worst}; at most "
        f"{100 * data['at_most']:g} % is asked for. [The curves](guide/recipe-switch.svg).",
        "What part of the CPU time of one layer's step (1024 x 1024, a batch of 1024, forward and "
        "backward) its quantizers take, rows and columns of inputs, weight and gradients; beside "
        "it what Transformer Engine's documents say of a GPU.",
        table(["recipe", "step, ms", "quantizers, ms", "share", "on a GPU"], rows),
        measured(result, "python -m bench.switch.run"),
    )
