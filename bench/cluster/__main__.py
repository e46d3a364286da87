"""Plans and simulates models of a trillion parameters, and times processes that share a plan; see
README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from bench.cluster.planned import planned
from bench.cluster.processes import processes

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/octavo")
    parser.add_argument("--folder", type=Path, help="where models are put")
    parser.add_argument("--only", choices=("planned", "processes"))
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bound is missed")
    arguments = parser.parse_args()
    machine = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }
    found: dict[str, object] = {"question": "cluster", "machine": machine}
    missed: list[str] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        for name, question in (("planned", planned), ("processes", processes)):
            if arguments.only in (None, name):
                rows, worse = question(arguments.program, Path(made))
                found[name] = rows
                missed += worse
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
