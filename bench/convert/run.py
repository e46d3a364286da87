"""How fast are value conversions? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question


def print_row(row: dict) -> None:
    beside = f"{row['ratio']:6.2f} x {row['rival']:<12}" if row["rival"] else f"{'':22}"
    wanted = f">= {row['at_least']:g}" + ("" if row["rival"] else " Gel/s a core")
    print(
        f"{row['case']:<36}{row['gel_per_s']:7.2f} Gel/s  "
        f"{100 * row['of_copy']:4.0f} % of copy  {beside} "
        f"{wanted:<8} {'' if row['holds'] else '  MISSED'}",
        flush=True,
    )


if __name__ == "__main__":
    packages = ("octavo", "torch", "ml_dtypes", "numpy")
    sys.exit(run_question("convert", __doc__, packages, print_row))
