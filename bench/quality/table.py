"""Means over models and texts: KL of a case beside that of the same recipe with policy `max`."""

from __future__ import annotations

import statistics


def means_of(rows: list[dict]) -> list[dict]:
    at_max = {
        (r["recipe"], r["model"], r["text"]): r["kl"]
        for r in rows
        if (r["tool"], r["policy"]) == ("octavo", "max")
    }
    out = []
    for case in dict.fromkeys((r["tool"], r["recipe"], r["policy"]) for r in rows):
        ratios = {
            (r["model"], r["text"]): r["kl"] / at_max[(r["recipe"], r["model"], r["text"])]
            for r in rows
            if (r["tool"], r["recipe"], r["policy"]) == case
            and at_max.get((r["recipe"], r["model"], r["text"]), 0) > 0
        }
        if not ratios:
            continue
        tool, recipe, policy = case
        out.append(
            {
                "tool": tool,
                "recipe": recipe,
                "policy": policy,
                "kl_beside_max": statistics.geometric_mean(ratios.values()),
                "worst": max(ratios.values()),
                "runs": len(ratios),
            }
        )
    return out


def text_of(means: list[dict]) -> str:
    return "\n".join(
        f"{mean['tool']:14} {mean['recipe']:11} {mean['policy']:7} "
        f"KL {mean['kl_beside_max']:.3f} x that of max "
        f"(worst {mean['worst']:.3f}, {mean['runs']} runs)"
        for mean in means
    )
