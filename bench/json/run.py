"""Our JSON and patterns, or a library's? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

from bench.json import build_side, json_side, pattern_side
from bench.json.sandbox import BUILD

PARTS = {"json": json_side, "pattern": pattern_side, "build": build_side}
PACKAGES = ("nlohmann-json3-dev", "libre2-dev", "g++")


def machine() -> dict[str, object]:
    lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    model = [line.split(":")[1].strip() for line in lines.splitlines() if "Model name" in line]
    query = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES]
    packages = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    return {
        "cpu": model[0] if model else platform.machine(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": packages.splitlines(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--only", choices=PARTS, action="append", help="only these parts")
    arguments = parser.parse_args()
    if not (BUILD / "bench_json").exists():
        print("no bench_json: build it with -DOCTAVO_BUILD_BENCH=ON", file=sys.stderr)
        return 1
    results: dict[str, object] = {"question": "json", "machine": machine()}
    for name in arguments.only or PARTS:
        print(f"-- {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="octavo-bench-") as folder:
            results[name] = PARTS[name].measure(pathlib.Path(folder), arguments.quick)
        PARTS[name].print_all(results[name])
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
