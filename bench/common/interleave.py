"""Timing of several functions that take turns, so that all meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def in_turns(
    functions: dict[str, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each, called one after the other so that all meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(turns + 1):
        for name, function in functions.items():
            start = clock()
            function()
            if turn > 0:  # the first call of each touches its memory
                times[name].append(clock() - start)
    return {name: statistics.median(samples) for name, samples in times.items()}
