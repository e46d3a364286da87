"""Plans and simulates models of a trillion parameters, times processes that share a plan, and holds
their folders against those of one; see README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from bench.cluster.identical import identical
from bench.cluster.planned import planned
from bench.cluster.processes import processes
from bench.cluster.refused import refused

ROOT = Path(__file__).resolve().parents[2]
# Of a Cascade Lake core, where `processes` was not asked for.
RATE = 0.78e9


def rate(found: dict) -> float:
    return found.get("processes", {}).get("bytes_of_a_core_second", RATE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/octavo")
    parser.add_argument("--folder", type=Path, help="where models are put")
    parser.add_argument("--only", choices=("planned", "processes", "identical", "refused"))
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is missed")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="one that has octavo and ray"
    )
    arguments = parser.parse_args()
    machine = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }
    found: dict[str, object] = {"question": "cluster", "machine": machine}
    missed: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        questions = {
            "processes": processes,
            "planned": lambda program, made: planned(program, made, rate(found)),
            "identical": lambda program, made: identical(program, made, arguments.python),
            "refused": refused,
        }
        for name, question in questions.items():
            if arguments.only in (None, name):
                folder = Path(made) / name
                folder.mkdir()
                rows, worse = question(arguments.program, folder)
                found[name] = rows
                missed += worse
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
