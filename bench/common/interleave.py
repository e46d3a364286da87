"""Timing of several functions that take turns, so that all meet the same machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence


def in_turns(
    functions: dict[str, Callable[[], object]],
    turns: int,
    clock: Callable[[], float] = time.perf_counter,
    pick: Callable[[Sequence[float]], float] = statistics.median,
    seconds: float = float("inf"),
    before: Callable[[Callable[[], object]], object] = lambda function: None,
) -> dict[str, float]:
    """Seconds of each, called one after the other so that all meet the same machine.

    pick: of the samples, the median if nothing else is said. seconds: how long new turns may begin;
    one turn is taken in any case. before: called with each function, not timed.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    begin = time.monotonic()
    for turn in range(turns + 1):
        if turn > 1 and time.monotonic() - begin > seconds:
            break
        for name, function in functions.items():
            before(function)
            start = clock()
            function()
            if turn > 0:  # the first call of each touches its memory
                times[name].append(clock() - start)
    return {name: pick(samples) for name, samples in times.items()}
