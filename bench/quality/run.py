"""Perplexity and KL of models after every recipe and scale policy (README.md beside this file)."""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

from bench.quality.cases import CASES, Case

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"


def octavo(program: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"octavo {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def named(pairs: list[str]) -> dict[str, pathlib.Path]:
    out = {}
    for pair in pairs:
        name, _, path = pair.partition("=")
        if not path:
            raise SystemExit(f"got '{pair}'; expected NAME=PATH")
        out[name] = pathlib.Path(path)
    return out


def quantized(
    arguments: argparse.Namespace,
    case: Case,
    model: pathlib.Path,
    seen: pathlib.Path | None,
    out: pathlib.Path,
) -> dict[str, float]:
    """The folder, and the weights' error as the report has it."""
    more = ["--statistics", str(seen)] if case.needs_statistics else []
    text = octavo(
        arguments.octavo,
        *("--json", "quantize", str(model), "-o", str(out), "--target", "octavo"),
        *("--recipe", case.recipe, "--scale-policy", case.policy, *more),
    )
    report = json.loads(text)
    return {"bits_per_weight": report.get("bits_per_weight", float("nan"))}


def evaluated(
    arguments: argparse.Namespace,
    model: pathlib.Path,
    folders: list[pathlib.Path],
    text: pathlib.Path,
) -> dict:
    return json.loads(
        octavo(
            arguments.octavo,
            *("--json", "eval", *map(str, folders), "--against", str(model)),
            *("--text", str(text), "--tokens", str(arguments.tokens)),
        )
    )


def rows_of(arguments: argparse.Namespace, work: pathlib.Path) -> list[dict]:
    """One row for a model, a case and a text."""
    rows = []
    cases = [case for case in CASES if not arguments.only or case.name in arguments.only]
    for model_name, model in named(arguments.model).items():
        seen = None
        if any(case.needs_statistics for case in cases):
            if arguments.calibration is None:
                raise SystemExit("policy wmse needs statistics; give --calibration, a text")
            seen = work / f"{model_name}.statistics.safetensors"
            octavo(
                arguments.octavo,
                *("calibrate", str(model), "--text", str(arguments.calibration), "-o", str(seen)),
                *("--hessians", "none", "--tokens", str(arguments.tokens)),
            )
        for case in cases:
            folder = work / f"{model_name}-{case.recipe}-{case.policy}"
            made = quantized(arguments, case, model, seen, folder)
            for text_name, text in named(arguments.text).items():
                report = evaluated(arguments, model, [folder], text)
                row = {
                    "model": model_name,
                    "recipe": case.recipe,
                    "policy": case.policy,
                    "text": text_name,
                    **made,
                    **figures_of(report),
                }
                rows.append(row)
                print(line_of(row), flush=True)
            shutil.rmtree(folder)
    return rows


def figures_of(report: dict) -> dict[str, float]:
    """Of the one model beside its original: totals over its tokens."""
    original = next(one["total"] for one in report["models"] if one["is_original"])
    model = next(one["total"] for one in report["models"] if not one["is_original"])
    return {
        "tokens": model["scored"],
        "perplexity": model["perplexity"]["value"],
        "perplexity_error": model["perplexity"]["standard_error"],
        "original_perplexity": original["perplexity"]["value"],
        "kl": model["kl"]["value"],
        "kl_error": model["kl"]["standard_error"],
    }


def line_of(row: dict) -> str:
    return (
        f"{row['model']:12} {row['text']:10} {row['recipe']:11} {row['policy']:7} "
        f"ppl {row['perplexity']:8.3f} +- {row['perplexity_error']:.3f} "
        f"(original {row['original_perplexity']:.3f})  KL {row['kl']:.4f} +- {row['kl_error']:.4f}"
    )


def means_of(rows: list[dict]) -> list[dict]:
    """Over models and texts, each KL relative to policy max of the same recipe, model and text."""
    at_max = {(r["recipe"], r["model"], r["text"]): r["kl"] for r in rows if r["policy"] == "max"}
    out = []
    for recipe, policy in dict.fromkeys((r["recipe"], r["policy"]) for r in rows):
        ratios = [
            r["kl"] / at_max[(recipe, r["model"], r["text"])]
            for r in rows
            if (r["recipe"], r["policy"]) == (recipe, policy)
            and at_max.get((recipe, r["model"], r["text"]), 0) > 0
        ]
        if ratios:
            out.append(
                {
                    "recipe": recipe,
                    "policy": policy,
                    "kl_beside_max": statistics.geometric_mean(ratios),
                    "worst": max(ratios),
                    "runs": len(ratios),
                }
            )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--text", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--calibration", type=pathlib.Path, help="a text of another family")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--only", action="append", metavar="'RECIPE POLICY'")
    parser.add_argument("--octavo", type=pathlib.Path, default=OCTAVO)
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-quality-") as folder:
        rows = rows_of(arguments, pathlib.Path(folder))
    means = means_of(rows)
    for mean in means:
        print(
            f"{mean['recipe']:11} {mean['policy']:7} KL {mean['kl_beside_max']:.3f} x that of max "
            f"(worst {mean['worst']:.3f}, {mean['runs']} runs)"
        )
    if arguments.output:
        result = {"machine": platform.processor(), "rows": rows, "means": means}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
