"""Programs that a hostile input may end: run with limits of time, memory and stack."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release" / "bench" / "json"
MOST_BYTES = 8 << 30
STACK_BYTES = 8 << 20  # what Linux gives a program


@dataclasses.dataclass
class Outcome:
    lines: list[str]
    said: str
    ended: str  # "" or how it ended early: "SIGSEGV", "over 60 s", "exit 1"
    seconds: float


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_limited(command: list[str], timeout: float = 60, text: str = "") -> Outcome:
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            input=text.encode(),
            capture_output=True,
            timeout=timeout,
            check=False,
            preexec_fn=_limit,
        )
        code, out, said = done.returncode, done.stdout, done.stderr
        ended = signal.Signals(-code).name if code < 0 else f"exit {code}" if code else ""
    except subprocess.TimeoutExpired as stopped:
        out, said, ended = stopped.stdout or b"", stopped.stderr or b"", f"over {timeout:.0f} s"
    return Outcome(
        out.decode(errors="replace").splitlines(),
        said.decode(errors="replace").strip(),
        ended,
        time.perf_counter() - start,
    )
