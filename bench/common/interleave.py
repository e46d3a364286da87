"""Timing of several functions that take turns, so that all meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def in_turns(functions: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median seconds of each, called one after the other so that all meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn > 0:  # the first call of each touches its memory
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(samples) for name, samples in times.items()}
