"""What does a layer cost beyond its kernels? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question


def print_row(row: dict) -> None:
    asked = ", ".join(f">= {least:g} {name}" for name, least in row["at_least"].items())
    verdict = f"{asked} {'' if row['holds'] else 'MISSED'}" if "holds" in row else ""
    line = f"{row['recipe']}, {row['sums']}"
    print(
        f"{line:<30}{row['ms']:8.1f} ms  {row['in_kernels']:6.3f} of it in kernels  "
        f"{row['beside_f32']:5.2f} x nn.Linear f32  {verdict}".rstrip(),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(run_question("linear", __doc__, ("octavo", "torch", "numpy"), print_row))
