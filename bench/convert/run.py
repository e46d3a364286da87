"""How fast are value conversions? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys

import ml_dtypes
import numpy
import octavo
import torch

HERE = pathlib.Path(__file__).resolve().parent


def run_worker(cores: list[int]) -> list[dict]:
    """One process per number of cores, because OpenMP decides its threads when it is loaded."""
    # Passive: threads of OpenMP that spin after torch's turn would take a core from the next one.
    count = str(len(cores))
    env = dict(os.environ, OMP_NUM_THREADS=count, OMP_WAIT_POLICY="passive", OCTAVO_THREADS=count)
    command = [sys.executable, HERE / "worker.py", "--threads", str(len(cores))]
    rows = []
    with subprocess.Popen(
        command,
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


def print_row(row: dict) -> None:
    beside = f"{row['ratio']:6.2f} x {row['rival']:<12}" if row["rival"] else f"{'':22}"
    wanted = f">= {row['at_least']:g}" + ("" if row["rival"] else " Gel/s a core")
    print(
        f"{row['case']:<36}{row['gel_per_s']:7.2f} Gel/s  {100 * row['of_copy']:4.0f} % of copy  {beside} "
        f"{wanted:<8} {'' if row['holds'] else '  MISSED'}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    args = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    results = {
        "question": "convert",
        "machine": octavo.doctor(),
        "versions": {
            "octavo": octavo.__version__,
            "torch": torch.__version__,
            "ml_dtypes": ml_dtypes.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "runs": {},
    }
    for cores in ([available[-1:]] if len(available) == 1 else [available[-1:], available]):
        print(f"-- {len(cores)} core{'s' if len(cores) > 1 else ''}")
        results["runs"][str(len(cores))] = run_worker(cores)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    missed = sum(not row["holds"] for rows in results["runs"].values() for row in rows)
    total = sum(len(rows) for rows in results["runs"].values())
    print(f"{total - missed} of {total} hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
