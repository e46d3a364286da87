"""Perplexity and KL of models after every recipe and scale policy (README.md beside this file)."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import sys
import tempfile

from bench.quality import bars, table
from bench.quality.cases import BATCHES, CASES, Case
from bench.quality.make import CommandFailed, Maker, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"
PEERS = ROOT / ".venv-peers" / "bin" / "python"


def named(pairs: list[str]) -> dict[str, pathlib.Path]:
    out = {}
    for pair in pairs:
        name, _, path = pair.partition("=")
        if not path:
            raise SystemExit(f"got '{pair}'; expected NAME=PATH")
        out[name] = pathlib.Path(path)
    return out


def made_of(maker: Maker, batch: list[Case], missing: list[dict]) -> list[Case]:
    """Those of a batch that could be made; a peer that is not there stops nothing."""
    made = []
    for case in batch:
        try:
            maker.make(case)
        except CommandFailed as failure:
            print(f"{case.name}: {failure}", file=sys.stderr, flush=True)
            missing.append({"model": maker.work.name, "case": case.name, "why": str(failure)})
            continue
        made.append(case)
        print(f"{maker.work.name}: {case.name} is made", file=sys.stderr, flush=True)
    return made


def evaluate(
    arguments: argparse.Namespace, maker: Maker, cases: list[Case], name: str, text: pathlib.Path
) -> list[dict]:
    """What was evaluated before is read from the folder."""
    kept = {case: maker.folder(case) / f"eval-{name}.json" for case in cases}
    new = [case for case in cases if not kept[case].exists()]
    if new and not arguments.kept:
        try:
            evaluate_together(arguments, maker, new, name, text)
        except CommandFailed as failure:
            print(f"together: {failure}", file=sys.stderr, flush=True)
            for case in new if len(new) > 1 else []:  # one that does not run stops no other
                try:
                    evaluate_together(arguments, maker, [case], name, text)
                except CommandFailed as failure:
                    print(f"{case.name}: {failure}", file=sys.stderr, flush=True)
    return [json.loads(path.read_text()) for path in kept.values() if path.exists()]


def evaluate_together(
    arguments: argparse.Namespace, maker: Maker, cases: list[Case], name: str, text: pathlib.Path
) -> None:
    """The original and the folders, side by side in one walk of the layers."""
    report = run(
        *(arguments.octavo, "--json", "eval", *(maker.folder(case) for case in cases)),
        *("--against", maker.model, "--text", text),
        *("--tokens", arguments.tokens, "--window", maker.window),
    )
    reports = json.loads(report)["models"]
    original = next(one["total"] for one in reports if one["is_original"])
    others = [one["total"] for one in reports if not one["is_original"]]
    for case, other in zip(cases, others, strict=True):
        row = {
            "model": maker.work.name,
            "tool": case.tool,
            "recipe": case.recipe,
            "policy": case.policy,
            "text": name,
            **json.loads((maker.folder(case) / "made.json").read_text()),
            **figures_of(original, other),
        }
        (maker.folder(case) / f"eval-{name}.json").write_text(json.dumps(row))


def figures_of(original: dict, model: dict) -> dict[str, float]:
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
        f"{row['model']:12} {row['text']:8} {row['tool']:14} {row['recipe']:11} "
        f"{row['policy']:17} ppl {row['perplexity']:8.3f} +- {row['perplexity_error']:.3f} "
        f"(original {row['original_perplexity']:.3f})  KL {row['kl']:.4f} +- {row['kl_error']:.4f}"
    )


def rows_of(arguments: argparse.Namespace, work: pathlib.Path, missing: list[dict]):
    """One row for a model, a case and a text; after each batch of cases all there are."""
    rows: list[dict] = []
    makers = []
    for name, model in named(arguments.model).items():
        (work / name).mkdir(parents=True, exist_ok=True)
        makers.append(Maker(arguments, model, work / name))
    for batch in BATCHES:
        chosen = [case for case in batch if not arguments.only or case.name in arguments.only]
        for maker in makers:
            cases = chosen if arguments.kept else made_of(maker, chosen, missing)
            for text_name, text in named(arguments.text).items():
                found = evaluate(arguments, maker, cases, text_name, text)
                for row in found:
                    print(line_of(row), flush=True)
                rows += found
                there = {(row["tool"], row["recipe"], row["policy"]) for row in found}
                missing += [
                    {"model": maker.work.name, "text": text_name, "case": case.name}
                    for case in cases
                    if (case.tool, case.recipe, case.policy) not in there
                ]
        yield rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--text", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--calibration", type=pathlib.Path, help="a text of another family")
    parser.add_argument("--calibration-tokens", type=int, default=16384)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=2048, help="or a model's own, if shorter")
    parser.add_argument("--only", action="append", metavar="'[TOOL] RECIPE POLICY'")
    parser.add_argument("--octavo", type=pathlib.Path, default=OCTAVO)
    parser.add_argument("--peers", type=pathlib.Path, default=PEERS, help="a Python with the peers")
    parser.add_argument("--work", type=pathlib.Path, help="kept, and gone on with")
    parser.add_argument("--kept", action="store_true", help="a table of what is in --work already")
    parser.add_argument("--output", type=pathlib.Path, help="written after each batch of cases")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bar is missed")
    arguments = parser.parse_args()
    unknown = set(arguments.only or []) - {case.name for case in CASES}
    if unknown:
        raise SystemExit(f"got --only {sorted(unknown)}; expected one of cases.py")
    missing: list[dict] = []
    machine = os.environ.get("OCTAVO_MACHINE") or platform.machine()
    with tempfile.TemporaryDirectory(prefix="octavo-quality-") as folder:
        for rows in rows_of(arguments, arguments.work or pathlib.Path(folder), missing):
            means = table.means_of(rows)
            held = bars.bars_of(rows, means)
            result = {
                "question": "quality",
                "machine": machine,
                "date": datetime.date.today().isoformat(),
                "tokens": arguments.tokens,
                "calibration_tokens": arguments.calibration_tokens,
                "rows": rows,
                "means": means,
                "bars": held,
                "missing": missing,
            }
            if arguments.output:
                arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(table.text_of(means), bars.text_of(held), sep="\n")
    return int(arguments.check and not all(bar["holds"] for bar in held))


if __name__ == "__main__":
    sys.exit(main())
