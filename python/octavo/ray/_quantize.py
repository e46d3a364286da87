"""octavo.ray.quantize: a process on each node, which divide the files of a plan."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo._checkpoint import quantize_checkpoint
from octavo._checkpoint_arguments import Path
from octavo._checkpoint_report import CheckpointReport, limits_of, within
from octavo.ray._tasks import Bar, Board, OnProgress, Teller, on_node, places, ray_of, results
from octavo.ray._tasks import start as start_ray

_OP = "ray.quantize"


class _Told:
    """The report of another process, as far as CheckpointReport asks."""

    def __init__(self, said: dict[str, Any]):
        self._said = said

    def json(self) -> str:
        return str(self._said["json"])

    def html(self) -> str:
        return str(self._said["html"])

    def missed(self, limits: list[str]) -> list[tuple[str, str]]:
        return [(limit, what) for limit, what in self._said["missed"]]


def _task(
    plan: str, model: str | None, out: str, rank: int, world: int, board: Any, options: dict
) -> dict[str, Any]:
    """In a process of a node. The plan comes with the task: not every node sees its file."""
    limits = options.pop("fail_if")
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / "plan.json"
        file.write_text(plan)
        report = quantize_checkpoint(
            model,
            out,
            plan=file,
            rank=rank,
            world=world,
            progress=Teller(ray_of(_OP), board, rank, "bytes of the whole"),
            **options,
        )
    said = {"json": report.json(), "finished": not report.finished_by_another}
    if said["finished"]:
        said["html"] = report.html()
    if said["finished"] or report.was_complete:  # by what a complete folder keeps
        said["missed"] = report._handle.missed(limits)
    return said


def of_the_whole(said: list[dict[str, Any]], limits: list[str]) -> dict[str, Any]:
    """What the task says that finished the folder; where an earlier call did that, or a task whose
    node was lost afterwards, what one says that found it complete."""
    last = [one for one in said if one["finished"]]
    last += [one for one in said if "missed" in one]
    if not last and limits:
        raise RuntimeError(
            f"[{_OP}] the folder is complete, and the task that knew its errors was lost, so that "
            "fail_if was not judged; the same call again does, from what the folder keeps"
        )
    return {"html": "", "missed": []} | (last or said)[0]


def quantize(
    model: Path | None,
    out: Path,
    recipe: str | None = None,
    *,
    plan: Path | None = None,
    workers: int | None = None,
    cpus: int | None = None,
    retries: int = 3,
    takeover_after: float = 120.0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    fail_if: Iterable[str] = (),
    progress: bool | OnProgress | None = True,
    **options: Any,
) -> CheckpointReport:
    """Quantizes a checkpoint on a Ray cluster; the bytes are those of quantize_checkpoint.

    model, out: folders that all nodes see under these names. recipe and other options are those of
    quantize_checkpoint, which the plan depends on (target, include, shard_bytes ...). plan: a plan
    file instead; model may then be None. There is a task on each node with all of its cores, or
    `workers` tasks of `cpus` cores. Each begins with its share of the files, by bytes, and goes on
    with those that no task has begun. Where a node is lost, Ray starts its task elsewhere,
    `retries` times, and others take its files over, at the latest after `takeover_after` seconds.
    progress: a bar on a terminal, or a function that is called with bytes done, bytes in all,
    seconds and a tensor's name. The same call goes on where an earlier one ended; resume says that
    another number of tasks goes on, and that none of the earlier ones is left.
    """
    limits = limits_of(_OP, fail_if)
    target = os.path.abspath(checked.path(_OP, "out", out))
    source = None if model is None else os.path.abspath(checked.path(_OP, "model", model))
    if plan is not None:
        if recipe is not None or options:
            given = ", ".join((["recipe"] if recipe is not None else []) + sorted(options))
            raise ValueError(f"[{_OP}] got {given}, which the plan says for all tasks; leave it")
        text = FilePath(checked.plan_file(_OP, plan)).read_text()
    elif source is None:
        raise TypeError(f"[{_OP}] got no model; say which, or give a plan, which says it")
    else:
        text = quantize_checkpoint(source, recipe=recipe, dry_run=True, **options).json()
    retries = checked.count(_OP, "retries", retries, 0, 1000)
    bar = Bar(_OP, progress)
    ray = start_ray(_OP)
    # More tasks than files would have nothing to do.
    where = places(ray, _OP, workers, cpus)[: max(1, len(json.loads(text)["shards"]))]
    board = ray.remote(Board).options(num_cpus=0, max_restarts=-1).remote()
    kept = ray.put(text)
    tasks = [
        ray.remote(_task)
        .options(
            name=f"octavo quantize {rank} of {len(where)}",
            num_cpus=cores,
            max_retries=retries,
            scheduling_strategy=on_node(node),
        )
        .remote(
            kept,
            source,
            target,
            rank,
            len(where),
            board,
            {
                "threads": cores,
                "max_memory": max_memory,
                "resume": resume,
                "takeover_after": takeover_after,
                "fail_if": limits,
            },
        )
        for rank, (node, cores) in enumerate(where)
    ]
    # Each knows what all have finished, and what is in its own hands.
    said = results(ray, tasks, board, bar, lambda of: max(of.values()))
    return within(_OP, CheckpointReport(_Told(of_the_whole(said, limits))), limits)
