"""What do the scale policies that search cost beside max? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question


def print_row(row: dict) -> None:
    limit = "" if row["at_most"] is None else f"<= {row['at_most']:g}"
    print(
        f"{row['case']:<42}{row['ns']:7.2f} ns  max {row['max_ns']:5.2f} ns "
        f"{row['ratio']:6.2f} x  {limit:<6}{'' if row.get('holds', True) else 'MISSED'}",
        flush=True,
    )


if __name__ == "__main__":
    packages = ("torch", "numpy")  # octavo.doctor says which octavo
    sys.exit(run_question("policy", __doc__, packages, print_row, has_quick=True))
