"""One result out of two: octavo's rows with the peers' beside them, as JSON and as a table."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys


def joined(ours: dict, peers: dict | None, facts: dict) -> dict:
    beside: dict[str, list[dict]] = {}
    for row in (peers or {}).get("results", []):
        beside.setdefault(row["case"], []).append({k: v for k, v in row.items() if k != "case"})
    for row in ours["results"]:
        if row["group"] in ("cast", "format", "quantize") and row["case"] in beside:
            row["peers"] = beside[row["case"]]
    versions = {"torch": (peers or {}).get("torch")}
    return facts | versions | ours | {"torch_copy": beside.get("copy")}


def table(result: dict) -> list[str]:
    ceiling = result["copy_gbps"]
    lines = [
        f"{result['device']}; copy {ceiling:.0f} GB/s; {result['rows']} x {result['cols']}",
        f"{'case':<46}{'us':>9}{'GB/s':>7}{'of copy':>9}{'bar':>6}  peers (of copy)",
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
        lines.append(f"{name:<46}{speed}{bar:>6}{mark} {peers}")
    held = [row for row in result["results"] if row.get("bar")]
    missed = [row for row in held if row["of_copy"] < row["bar"]]
    lines.append(f"below their bar: {len(missed)} of {len(held)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ours", type=pathlib.Path, help="what bench_cuda --json wrote")
    parser.add_argument("--peers", type=pathlib.Path, help="what peers.py --json wrote")
    parser.add_argument("--facts", type=json.loads, default={}, help="more to keep, as JSON")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    peers = None
    if args.peers and args.peers.exists():
        peers = json.loads(args.peers.read_text())
    result = joined(json.loads(args.ours.read_text()), peers, args.facts)
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join(table(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
