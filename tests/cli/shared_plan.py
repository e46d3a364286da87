"""Processes that share a plan: what tests of them start and compare."""

from __future__ import annotations

import subprocess
from pathlib import Path

SHARDED = ("--recipe", "nvfp4", "--shard-size", "200K")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def started(octavo, *arguments: object, env: dict[str, str] | None = None, **more):
    return subprocess.Popen(
        [octavo.path, *map(str, arguments)],
        cwd=octavo.folder,
        env=octavo.environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def shared(octavo, rank: int, world: int, *more: object, **options):
    words = ("quantize", "--plan", "plan.json", "-o", "out", "--threads", 1)
    return started(octavo, *words, "--rank", rank, "--world", world, *more, **options)
