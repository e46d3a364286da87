"""Runs every question of bench/ and keeps what it printed.

A question is a folder with a run.py that takes --json FILE, which is here
bench/results/<question>-<machine>-<date>.json. Run one alone with `python -m bench.convert.run`.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import platform
import subprocess
import sys

# These take models and texts, which they cannot choose: run them alone.
NEED_ARGUMENTS = {"eval", "generate", "quality", "tokenizer"}
HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions", nargs="*", help="folders of bench/ (default: many)")
    parser.add_argument("--machine", default=platform.machine(), help="a name for this machine")
    args = parser.parse_args()
    questions = args.questions or sorted(
        {path.parent.name for path in HERE.glob("*/run.py")} - NEED_ARGUMENTS
    )
    date = datetime.date.today().isoformat()
    for question in questions:
        result = HERE / "results" / f"{question}-{args.machine}-{date}.json"
        print(f"== {question} -> {result.relative_to(HERE.parent)}", flush=True)
        command = [sys.executable, "-m", f"bench.{question}.run", "--json", result]
        subprocess.run(command, cwd=HERE.parent, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
