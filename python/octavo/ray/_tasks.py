"""Tasks of a Ray cluster: where they go, what they say on the way, and waiting for them."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from octavo import _checkpoint_arguments as checked

# Called about once a second with bytes done, bytes in all, seconds, and what is worked on.
OnProgress = Callable[[int, int, float, str], object]
_BETWEEN = 0.5  # seconds between two polls of the tasks


def ray_of(op: str) -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(
            f"[{op}] got no ray; install it on all nodes (pip install octavo[ray])"
        ) from error


def start(op: str) -> Any:
    """Ray, connected to the cluster that RAY_ADDRESS names, else to one on this machine."""
    ray = ray_of(op)
    if not ray.is_initialized():
        ray.init()
    return ray


def places(ray: Any, op: str, workers: int | None, cpus: int | None) -> list[tuple[str, int]]:
    """Nodes, each with the cores of a task there: one task a node with all of its cores, or
    `workers` tasks of `cpus` in turn over the nodes."""
    nodes = sorted(
        (node["NodeID"], int(node["Resources"].get("CPU", 0)))
        for node in ray.nodes()
        if node["Alive"]
    )
    nodes = [node for node in nodes if node[1] > 0]
    if not nodes:
        raise RuntimeError(f"[{op}] got a Ray cluster without a free CPU; expected one at least")
    if cpus is not None:
        cpus = checked.count(op, "cpus", cpus, 1, 1 << 16)
        nodes = [(name, cpus) for name, has in nodes for _ in range(has // cpus)]
        if not nodes:
            raise ValueError(f"[{op}] got cpus={cpus}; expected at most those of a node")
    if workers is None:
        return nodes
    workers = checked.count(op, "workers", workers, 1, 1 << 16)
    return [nodes[i % len(nodes)] for i in range(workers)]


def on_node(node: str) -> Any:
    """A task begins there, and elsewhere where that node is lost."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(node, soft=True)


class Board:
    """What tasks say of their progress: an actor that needs no core."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[int, int, str]] = {}

    def say(self, task: int, done: int, total: int, current: str) -> None:
        self._said[task] = (done, total, current)

    def said(self) -> dict[int, tuple[int, int, str]]:
        return self._said


class Teller:
    """Carries a task's progress to the board, and to the metrics of Ray's dashboard."""

    def __init__(self, ray: Any, board: Any, task: int, of: str):
        metrics = importlib.import_module("ray.util.metrics")
        self._gauge = metrics.Gauge(
            "octavo_done", description=f"{of} done", tag_keys=("octavo_task",)
        )
        self._gauge.set_default_tags({"octavo_task": str(task)})
        self._board, self._task, self._told = board, task, 0.0

    def __call__(self, done: int, total: int, seconds: float, current: str) -> None:
        now = time.monotonic()
        if now - self._told < _BETWEEN and done < total:
            return
        self._told = now
        self._gauge.set(done)
        self._board.say.remote(self._task, done, total, current)


class Bar:
    """A line on a terminal, or the caller's function."""

    def __init__(self, op: str, progress: bool | OnProgress | None):
        if isinstance(progress, bool) or progress is None:
            self._call: OnProgress | None = None
            self._draw = bool(progress) and sys.stderr.isatty()
        else:
            self._call, self._draw = checked.called(op, progress), False
        self._op, self._start = op, time.monotonic()

    def wanted(self) -> bool:
        return self._draw or self._call is not None

    def show(self, done: int, total: int, current: str) -> None:
        seconds = time.monotonic() - self._start
        if self._call is not None:
            self._call(done, total, seconds, current)
        if self._draw and total > 0:
            filled = 30 * done // total
            shown = current if len(current) < 40 else "..." + current[-37:]
            bar = "#" * filled + "." * (30 - filled)
            sys.stderr.write(f"\r\x1b[K{self._op} [{bar}] {100 * done // total} % {shown}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._draw:
            sys.stderr.write("\r\x1b[K")


def results(
    ray: Any,
    tasks: Sequence[Any],
    board: Any,
    bar: Bar,
    together: Callable[[dict[int, tuple[int, int, str]]], tuple[int, int, str]],
) -> list[Any]:
    """Of all tasks, in their order. The first error ends the others."""
    pending = list(tasks)
    try:
        while pending:
            done, pending = ray.wait(pending, timeout=_BETWEEN)
            ray.get(done)  # raises what a task raised
            if bar.wanted():
                try:
                    said = ray.get(board.said.remote(), timeout=10)
                    if said:
                        bar.show(*together(said))
                except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                    pass  # its node was lost: the work goes on without a bar
        return list(ray.get(list(tasks)))
    except BaseException:
        for task in pending:
            ray.cancel(task, force=True)
        raise
    finally:
        bar.end()
