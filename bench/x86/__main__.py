"""How fast is octavo on an x86 CPU? See README.md beside this file."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
from importlib.metadata import PackageNotFoundError, version

import octavo
from bench.common.workers import run_worker
from bench.x86 import cases

MOST_CORES = 16
_group: list[str] = []


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def print_row(row: dict) -> None:
    if "peaks" in row:
        shown = ", ".join(f"{name} {rate:.0f}" for name, rate in row["peaks"].items())
        print(f"peak of a core, GFLOP/s: {shown or 'unknown, bench_probe is not built'}")
        return
    if "left_out" in row:
        print(f"{row['left_out']}: left out, because the time was over", flush=True)
        return
    if [row["group"]] != _group:
        _group[:] = [row["group"]]
        beside = ", ".join(f"{name} {rate:.1f}" for name, rate in row["rivals"].items())
        shown = f" ({row['unit']}: {beside})" if row["kind"] in ("product", "attention") else ""
        print(f"{row['group']}{shown}")
        for name, why in row.get("failed", {}).items():
            print(f"  left out: {name}: {why}")
    asked = f"asked {row['asked']:8.2f}" if "asked" in row else ""
    # Of products and attention, the other rivals' rates are in the line above.
    rivals = [row["rival"]] if row["kind"] in ("product", "attention") else list(row["rivals"])
    beside = "".join(
        f"{row['rate'] / row['rivals'][name]:6.2f} x {name}  "
        for name in rivals
        if name in row["rivals"]
    )
    share = f"{row['share']:4.0%} of peak  " if "share" in row else ""
    verdict = "" if row.get("holds", True) else "MISSED"
    rate = f"  {row['case']:<30}{row['rate']:9.2f} {row['unit']:<8}"
    print(f"{rate}{asked:<16}{beside:<22}{share}{verdict}".rstrip(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument(
        "--resume", action="store_true", help="keep the groups that are in --json, time the others"
    )
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for all of it, about")
    parser.add_argument(
        "--only", default="", help="groups that begin so: casts,quantizers,products of 16,attention"
    )
    parser.add_argument(
        "--isa", choices=cases.FORCED, help="hold both sides to this instruction set"
    )
    parser.add_argument("--commit", default="unknown", help="what is measured")
    parser.add_argument("--cpu", default=platform.machine(), help="and on what")
    args = parser.parse_args()
    if args.isa:  # before the backend is chosen; workers inherit it
        os.environ |= cases.FORCED[args.isa] | {"OCTAVO_BACKEND": f"cpu/{args.isa}"}
    available = sorted(os.sched_getaffinity(0))
    several = available[-MOST_CORES:]
    runs = [several[-1:]] if len(several) == 1 else [several[-1:], several]
    results: dict = {
        "question": "x86",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": args.commit,
        "cpu": args.cpu,
        "machine": octavo.doctor(),
        "versions": {name: version_of(name) for name in ("torch", "ml_dtypes", "numkong", "numpy")}
        | {"python": platform.python_version()},
        "quick": args.quick,
        "runs": {},
    }
    before = json.loads(args.json.read_text())["runs"] if args.resume else {}
    print(f"{args.cpu}, backend {results['machine']['backend']}")
    for cores in runs:
        print(f"-- {len(cores)} core{'s' if len(cores) > 1 else ''}")
        kept = [row for row in before.get(str(len(cores)), []) if "group" in row]
        known = sorted({row["group"] for row in kept})
        more = ("--seconds", str(args.seconds / len(runs)), "--only", args.only)
        more += ("--known", json.dumps(known))
        rows = run_worker("x86", cores, print_row, args.quick, more)
        results["runs"][str(len(cores))] = kept + rows
        if args.json:  # after each: what follows may run out of time
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    held = [row["holds"] for rows in results["runs"].values() for row in rows if "holds" in row]
    print(f"{sum(held)} of {len(held)} hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
