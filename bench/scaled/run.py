"""What do casts with a factor cost? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question


def print_row(row: dict) -> None:
    compiled = row["compiled_ms"]
    beside = "   not there" if compiled is None else f"{compiled:9.2f} ms"
    print(
        f"{row['case']:<36}{row['ms']:8.2f} ms  eager {row['eager_ms']:8.2f} ms  compiled {beside}"
        f"{row['ratio']:7.2f} x  >= {row['at_least']:g}  {'' if row['holds'] else 'MISSED'}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(run_question("scaled", __doc__, ("torch", "numpy"), print_row, has_quick=True))
