"""A question that is timed by workers: one process per number of cores, a row of JSON per case."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

import octavo

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_worker(
    question: str,
    cores: list[int],
    print_row: Callable[[dict], None],
    quick: bool = False,
    more: Sequence[str] = (),
) -> list[dict]:
    """In a process of its own, because OpenMP decides its threads when it is loaded."""
    count = str(len(cores))
    # Passive: threads of OpenMP that spin after torch's turn would take a core from the next one.
    env = {"KMP_AFFINITY": "disabled"} | os.environ
    env |= {"OMP_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive", "OCTAVO_THREADS": count}
    rows = []
    with subprocess.Popen(
        [sys.executable, "-m", f"bench.{question}.worker", "--threads", count]
        + ["--quick"] * quick
        + [*more],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            rows.append(json.loads(line))
            print_row(rows[-1])
    if process.returncode != 0:
        raise SystemExit(f"the worker ended with status {process.returncode}")
    return rows


def run_question(
    question: str,
    description: str,
    packages: Sequence[str],
    print_row: Callable[[dict], None],
    has_quick: bool = False,
) -> int:
    """On one core, then on all: prints the rows, says how many hold, writes --json FILE.

    has_quick: the question has a --quick, smaller and on few turns, for a busy machine.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    if has_quick:
        parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    args = parser.parse_args()
    quick = has_quick and args.quick
    available = sorted(os.sched_getaffinity(0))
    results = {
        "question": question,
        "machine": octavo.doctor(),
        "versions": {name: version(name) for name in packages}
        | {"python": platform.python_version()},
        "runs": {},
    }
    if has_quick:
        results["quick"] = quick
    for cores in [available[-1:]] if len(available) == 1 else [available[-1:], available]:
        print(f"-- {len(cores)} core{'s' if len(cores) > 1 else ''}")
        results["runs"][str(len(cores))] = run_worker(question, cores, print_row, quick)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    held = [row["holds"] for rows in results["runs"].values() for row in rows if "holds" in row]
    print(f"{sum(held)} of {len(held)} hold")
    return 0


def worker_arguments() -> argparse.Namespace:
    """What a worker was started with: threads and quick."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def worker_threads() -> int:
    return int(worker_arguments().threads)
