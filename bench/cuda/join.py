"""Joins two results: octavo's rows with the peers' beside them, as JSON and as a table."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys


def joined(ours: dict, larger: dict | None, peers: dict | None, facts: dict) -> dict:
    beside: dict[str, list[dict]] = {}
    for row in (peers or {}).get("results", []):
        beside.setdefault(row["case"], []).append({k: v for k, v in row.items() if k != "case"})
    again = {(r["group"], r["case"]): r for r in (larger or {}).get("results", [])}
    for row in ours["results"]:
        twin = again.get((row["group"], row["case"]), {})
        if "of_copy" in twin:
            row["larger"] = {key: twin[key] for key in ("us", "gbps", "of_copy")}
        if row["group"] in ("cast", "format", "quantize") and row["case"] in beside:
            row["peers"] = beside[row["case"]]
    versions = {"torch": (peers or {}).get("torch")}
    sizes = {key: larger[key] for key in ("rows", "cols", "copy_gbps")} if larger else None
    return facts | versions | ours | {"larger": sizes, "torch_copy": beside.get("copy")}


def table(result: dict) -> list[str]:
    ceiling = result["copy_gbps"]
    lines = [
        f"{result['device']}; copy {ceiling:.0f} GB/s; {result['rows']} x {result['cols']}",
        f"{'case':<46}{'us':>9}{'GB/s':>7}{'of copy':>9}{'bar':>6}  {'4x':<6}peers (of copy)",
    ]
    for row in result["results"]:
        name = f"{row['group']} {row['case']}"
        if row.get("failed"):
            lines.append(f"{name:<46}   failed")
            continue
        bar = f"{row['bar']:.2f}" if row["bar"] else ""
        mark = "!" if row["bar"] and row["of_copy"] < row["bar"] else " "
        peers = ", ".join(
            f"{peer['how']} {peer['gbps'] / ceiling:.2f}" if "gbps" in peer else f"{peer['how']} -"
            for peer in row.get("peers", [])
        )
        speed = f"{row['us']:>9.1f}{row['gbps']:>7.0f}{row['of_copy']:>9.3f}"
        more = f"{row['larger']['of_copy']:.3f}" if "larger" in row else ""
        lines.append(f"{name:<46}{speed}{bar:>6}{mark} {more:<6}{peers}")
    held = [row for row in result["results"] if row.get("bar")]
    missed = [row for row in held if row["of_copy"] < row["bar"]]
    lines.append(f"below their bar: {len(missed)} of {len(held)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ours", type=pathlib.Path, help="what bench_cuda --json wrote")
    parser.add_argument("--larger", type=pathlib.Path, help="the same of a larger matrix")
    parser.add_argument("--peers", type=pathlib.Path, help="what peers.py --json wrote")
    parser.add_argument("--facts", type=json.loads, default={}, help="more to keep, as JSON")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()

    def read(path: pathlib.Path | None) -> dict | None:
        return json.loads(path.read_text()) if path and path.exists() else None

    result = joined(read(args.ours), read(args.larger), read(args.peers), args.facts)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join(table(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
