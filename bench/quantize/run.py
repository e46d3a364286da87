"""How fast is quantization? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from importlib.metadata import version

import octavo

HERE = pathlib.Path(__file__).resolve().parent
PER_TENSOR_CLAIM = 1.1  # per cent that MXFP8 was once said to cost


def run_worker(cores: list[int]) -> list[dict]:
    """One process per number of cores, because OpenMP decides its threads when it is loaded."""
    count = str(len(cores))
    env = dict(os.environ, OMP_NUM_THREADS=count, OMP_WAIT_POLICY="passive", OCTAVO_THREADS=count)
    command = [sys.executable, HERE / "worker.py", "--threads", count]
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
    if "time_percent" in row:
        print(
            f"{row['case']}: {row['time_percent']:+.1f} % time, {row['bytes_percent']:+.1f} % bytes "
            f"(claimed elsewhere: {PER_TENSOR_CLAIM} %)",
            flush=True,
        )
        return
    beside = f"{row['ratio']:6.2f} x {row['rival']:<10}" if row["rival"] else f"{'':20}"
    wanted = f">= {row['at_least']:g}" + ("" if row["rival"] else " Gel/s a core")
    print(
        f"{row['case']:<38}{row['gel_per_s']:6.2f} Gel/s  {beside} {wanted:<18}"
        f"{'' if row['holds'] else 'MISSED'}",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    args = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    results = {
        "question": "quantize",
        "machine": octavo.doctor(),
        "versions": {name: version(name) for name in ("octavo", "torch", "torchao", "numpy")}
        | {"python": platform.python_version()},
        "runs": {},
    }
    for cores in [available[-1:]] if len(available) == 1 else [available[-1:], available]:
        print(f"-- {len(cores)} core{'s' if len(cores) > 1 else ''}")
        results["runs"][str(len(cores))] = run_worker(cores)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    held = [row["holds"] for rows in results["runs"].values() for row in rows if "holds" in row]
    print(f"{sum(held)} of {len(held)} hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
