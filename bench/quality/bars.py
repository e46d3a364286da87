"""What recipes and policies are held to, by their KL (cases.py, table.py)."""

from __future__ import annotations

import math
import statistics

from bench.quality.table import case_of, relative_error

SEARCHES = ("4over6", "mse", "wmse")
GPTQ = ("gptq max", "gptq wmse", "gptq mse")
WORST = 0.95  # of a single model and text, where a whole recipe is to gain


def bars_of(rows: list[dict], means: list[dict]) -> list[dict]:
    """A row for each bar: its figure and limit, and whether it holds. Without a figure where
    nothing was measured; held by none that was measured on a part of the models and texts."""
    octavo = {(mean["recipe"], mean["policy"]): mean for mean in means if mean["tool"] == "octavo"}
    runs = len({(row["model"], row["text"]) for row in rows})

    def best(name: str, recipe: str, policies: tuple[str, ...], limit: float, worst: float) -> dict:
        there = [octavo[recipe, policy] for policy in policies if (recipe, policy) in octavo]
        if not there:
            return absent(name, limit)
        most = max(mean["runs"] for mean in there)  # means over fewer runs are of other models
        whole = [mean for mean in there if mean["runs"] == most]
        mean = min(whole, key=lambda mean: mean["kl_beside_max"])
        holds = mean["kl_beside_max"] <= limit and mean["worst"] <= worst and mean["runs"] == runs
        return bar(name, limit, mean["kl_beside_max"], mean, holds) | {
            "worst": mean["worst"],
            "of_runs": runs,
        }

    return [
        best("NVFP4, scales searched, beside max", "nvfp4", SEARCHES, 0.85, WORST),
        best("NVFP4, gptq, beside max", "nvfp4", GPTQ, 0.65, WORST),
        beside_peer("NVFP4, gptq, beside llm-compressor's", rows, "nvfp4", runs),
        best("MXFP4, gptq, beside max", "mxfp4", GPTQ, 0.65, WORST),
        # Beside NVFP4 max, which has 4.5 bits.
        best("mixed at 4.5 bits", "mixed", plans("4.5"), 1.0, 1.0),
        best("mixed at 5.0 bits", "mixed", plans("5.0"), 0.85, 1.0),
        best("mixed at 5.5 bits", "mixed", plans("5.5"), 0.7, 1.0),
    ]


def plans(bits: str) -> tuple[str, str]:
    return f"{bits}bpw", f"{bits}bpw statistics"


def beside_peer(name: str, rows: list[dict], recipe: str, runs: int) -> dict:
    """The best of octavo's on what both have run; equal is within one standard error of the two."""
    theirs = by_run(rows, ("llm-compressor", recipe, "gptq"))
    out = absent(name, 1.0)
    for policy in GPTQ:
        ours = by_run(rows, ("octavo", recipe, policy))
        both = sorted(ours.keys() & theirs.keys())
        if not both:
            continue
        ratio = statistics.geometric_mean(ours[run]["kl"] / theirs[run]["kl"] for run in both)
        if out["value"] is not None and ratio >= out["value"]:
            continue
        error = math.hypot(
            *(relative_error([side[run] for run in both]) for side in (ours, theirs))
        )
        holds = ratio <= 1.0 + error and len(both) == runs
        out = bar(name, 1.0, ratio, {"policy": policy, "runs": len(both)}, holds)
        out |= {"standard_error": error, "of_runs": runs}
    return out


def by_run(rows: list[dict], case: tuple[str, str, str]) -> dict[tuple[str, str], dict]:
    return {(row["model"], row["text"]): row for row in rows if case_of(row) == case}


def bar(name: str, limit: float, value: float, mean: dict, holds: bool) -> dict:
    found = {"policy": mean["policy"], "runs": mean["runs"], "holds": holds}
    return {"bar": name, "at_most": limit, "value": value} | found


def absent(name: str, limit: float) -> dict:
    return {"bar": name, "at_most": limit, "value": None, "holds": False}


def text_of(bars: list[dict]) -> str:
    def line(one: dict) -> str:
        if one["value"] is None:
            return f"{one['bar']:38} not measured"
        more = f"worst {one['worst']:.3f}" if "worst" in one else f"+- {one['standard_error']:.3f}"
        return (
            f"{one['bar']:38} {one['value']:.3f}, at most {one['at_most']:g}  "
            f"({one['policy']}, {more}, {one['runs']} runs){'' if one['holds'] else '  MISSED'}"
        )

    return "\n".join(map(line, bars))
