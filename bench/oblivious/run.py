"""What does the data-oblivious mode cost? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question


def print_row(row: dict) -> None:
    print(
        f"{row['case']:<44}{row['ms']:10.3f} ms, oblivious {row['oblivious_ms']:10.3f} ms, "
        f"{row['ratio']:6.2f} x",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(run_question("oblivious", __doc__, ("numpy",), print_row, has_quick=True))
