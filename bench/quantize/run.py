"""How fast is quantization? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question

PER_TENSOR_CLAIM = 1.1  # per cent that MXFP8 was claimed to cost


def print_row(row: dict) -> None:
    if "time_percent" in row:
        print(
            f"{row['case']}: {row['time_percent']:+.1f} % time, "
            f"{row['bytes_percent']:+.1f} % bytes (claimed elsewhere: {PER_TENSOR_CLAIM} %)",
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


if __name__ == "__main__":
    packages = ("octavo", "torch", "torchao", "numpy")
    sys.exit(run_question("quantize", __doc__, packages, print_row))
