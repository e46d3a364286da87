"""Does a change of recipe disturb training, and what do quantizers cost? See README.md."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import torch

import octavo
from bench.switch.share import RECIPES, share
from bench.switch.train import Task, losses, worst

AT_MOST = 0.01


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    args = parser.parse_args()
    quick = Task(widths=(64, 128, 64), batch=32, steps=60, changes=(20, 40))
    task = quick if args.quick else Task()
    curves = {"unswitched": losses(task, changes=False)}
    rows = {}
    for name, as_codes in (("switched", False), ("switched, weights as codes", True)):
        plain = curves["unswitched"]
        if as_codes:
            plain = curves["unswitched, weights as codes"] = losses(task, False, True)
        curves[name] = losses(task, True, as_codes)
        rows[name] = worst(task, curves[name], plain)
        if args.json:  # also where the rest does not end
            args.json.write_text(json.dumps({"curves": curves, "worst": rows}, indent=1) + "\n")
        print(
            f"{name:<30}{100 * rows[name]:6.2f} % from the run without changes, 20 steps after one"
            f"  <= {100 * AT_MOST:g} %  {'' if rows[name] <= AT_MOST else 'MISSED'}",
            flush=True,
        )
    shares = []
    for recipe in RECIPES:
        row = share(recipe, 256 if args.quick else 1024, 1024, 3 if args.quick else 5)
        shares.append(row)
        documented = row["documented_percent"]
        print(
            f"{row['recipe']:<24}step {row['step_ms']:8.1f} ms  quantizers "
            f"{row['quantizers_ms']:7.1f} ms {row['share_percent']:6.1f} %"
            + (f"  (documented on a GPU: {documented} %)" if documented else ""),
            flush=True,
        )
    results = {
        "question": "switch",
        "machine": octavo.doctor(),
        "versions": {"torch": torch.__version__},
        "quick": args.quick,
        "parameters": task.parameters,
        "steps": task.steps,
        "changes": list(task.changes),
        "curves": curves,
        "worst": rows,
        "at_most": AT_MOST,
        "shares": shares,
    }
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(value <= AT_MOST for value in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
