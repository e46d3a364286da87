"""Means over models and texts: KL of a case beside that of octavo with policy `max` on the same
model, text and recipe; of a mixed plan, beside that of NVFP4."""

from __future__ import annotations

import math
import statistics


def means_of(rows: list[dict]) -> list[dict]:
    at_max = {
        (row["recipe"], row["model"], row["text"]): row
        for row in rows
        if (row["tool"], row["policy"]) == ("octavo", "max")
    }
    out = []
    for tool, recipe, policy in dict.fromkeys(map(case_of, rows)):
        base = "nvfp4" if recipe == "mixed" else recipe
        pairs = [
            (row, at_max[(base, row["model"], row["text"])])
            for row in rows
            if case_of(row) == (tool, recipe, policy)
            and (base, row["model"], row["text"]) in at_max
        ]
        pairs = [(row, beside) for row, beside in pairs if beside["kl"] > 0]
        if not pairs:
            continue
        ratios = [row["kl"] / beside["kl"] for row, beside in pairs]
        out.append(
            {
                "tool": tool,
                "recipe": recipe,
                "policy": policy,
                "kl": statistics.geometric_mean(row["kl"] for row, _ in pairs),
                "kl_error": relative_error([row for row, _ in pairs]),
                "kl_beside_max": statistics.geometric_mean(ratios),
                "worst": max(ratios),
                "perplexity_beside_original": statistics.geometric_mean(
                    row["perplexity"] / row["original_perplexity"] for row, _ in pairs
                ),
                "runs": len(ratios),
            }
        )
    return out


def case_of(row: dict) -> tuple[str, str, str]:
    return row["tool"], row["recipe"], row["policy"]


def relative_error(rows: list[dict]) -> float:
    """The standard error of the geometric mean of KL, relative to it: texts and models are
    independent of each other."""
    return math.sqrt(sum((row["kl_error"] / row["kl"]) ** 2 for row in rows)) / len(rows)


def text_of(means: list[dict]) -> str:
    return "\n".join(
        f"{mean['tool']:14} {mean['recipe']:11} {mean['policy']:17} "
        f"KL {mean['kl']:.4f} (+- {100 * mean['kl_error']:.1f} %), "
        f"{mean['kl_beside_max']:.3f} x that of max "
        f"(worst {mean['worst']:.3f}, {mean['runs']} runs)"
        for mean in means
    )
