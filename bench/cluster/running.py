"""Runs the program, and what that took."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Took:
    out: str
    seconds: float
    cpu_seconds: float
    bytes: float  # at the peak


def run(program: Path, *words: object) -> Took:
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [program, *map(str, words)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(errors.read())
    cpu = usage.ru_utime + usage.ru_stime
    return Took(out, seconds, cpu, usage.ru_maxrss * 1024.0)


def together(
    program: Path, words: list[list[object]], cores: list[set[int]]
) -> tuple[float, list[float]]:
    """Seconds until all of these processes are done, each on its cores; and of CPU of each."""
    start = time.monotonic()
    running = []
    for one, on in zip(words, cores, strict=True):
        running.append(
            subprocess.Popen(
                [program, *map(str, one)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda on=on: os.sched_setaffinity(0, on),
            )
        )
    cpu = []
    for process in running:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
        cpu.append(usage.ru_utime + usage.ru_stime)
    return time.monotonic() - start, cpu
