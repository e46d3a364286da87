"""Perplexity and KL of models after every recipe and scale policy (README.md beside this file)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from bench.quality.cases import CASES, Case
from bench.quality.table import means_of, text_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"
PEERS = ROOT / ".venv-peers" / "bin" / "python"


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def named(pairs: list[str]) -> dict[str, pathlib.Path]:
    out = {}
    for pair in pairs:
        name, _, path = pair.partition("=")
        if not path:
            raise SystemExit(f"got '{pair}'; expected NAME=PATH")
        out[name] = pathlib.Path(path)
    return out


class Maker:
    """Quantizes one model by every case. A folder that is there already is taken as it is, so that
    a run that was stopped goes on."""

    def __init__(self, arguments: argparse.Namespace, model: pathlib.Path, work: pathlib.Path):
        self.arguments, self.model, self.work = arguments, model, work

    def statistics(self) -> pathlib.Path:
        out = self.work / "statistics.safetensors"
        if not out.exists():
            run(
                *(self.arguments.octavo, "calibrate", self.model, "-o", out, "--hessians", "none"),
                *self.calibration(),
            )
        return out

    def calibration(self) -> list[object]:
        if self.arguments.calibration is None:
            raise SystemExit("policies wmse and gptq need --calibration, a text")
        tokens, window = self.arguments.calibration_tokens, self.arguments.window
        return ["--text", self.arguments.calibration, "--tokens", tokens, "--window", window]

    def make(self, case: Case) -> pathlib.Path:
        out = self.work / case.name.replace(" ", "-")
        if not (out / "made.json").exists():
            start = time.monotonic()
            (self.by_octavo if case.tool == "octavo" else self.by_peer)(case, out)
            made = {"seconds": round(time.monotonic() - start, 1)}
            (out / "made.json").write_text(json.dumps(made))
        return out

    def by_octavo(self, case: Case, out: pathlib.Path) -> None:
        command = [self.arguments.octavo, "quantize", self.model, "-o", out, "--target", "octavo"]
        command += ["--recipe", case.recipe]
        if case.policy == "gptq":
            command += ["--scale-policy", "mse", "--method", "gptq", *self.calibration()]
        else:
            command += ["--scale-policy", case.policy]
        if case.needs_statistics:
            command += ["--statistics", self.statistics()]
        run(*command)

    def by_peer(self, case: Case, out: pathlib.Path) -> None:
        script = pathlib.Path(__file__).with_name("peers.py")
        run(
            *(self.arguments.peers, script, case.tool, case.recipe, case.policy),
            *(self.model, out, *self.calibration()),
        )


def evaluated(
    arguments: argparse.Namespace,
    model: pathlib.Path,
    folders: list[pathlib.Path],
    text: pathlib.Path,
) -> list[dict]:
    """The original, then the folders, side by side in one walk of the layers."""
    report = run(
        *(arguments.octavo, "--json", "eval", *folders, "--against", model, "--text", text),
        *("--tokens", arguments.tokens, "--window", arguments.window),
    )
    return json.loads(report)["models"]


def rows_of(arguments: argparse.Namespace, work: pathlib.Path) -> list[dict]:
    """One row for a model, a case and a text."""
    rows = []
    cases = [case for case in CASES if not arguments.only or case.name in arguments.only]
    for model_name, model in named(arguments.model).items():
        folder = work / model_name
        folder.mkdir(parents=True, exist_ok=True)
        maker = Maker(arguments, model, folder)
        made = {}
        for case in cases:
            made[case] = maker.make(case)
            print(f"{model_name}: {case.name} is made", file=sys.stderr, flush=True)
        for text_name, text in named(arguments.text).items():
            reports = evaluated(arguments, model, list(made.values()), text)
            original = next(one["total"] for one in reports if one["is_original"])
            others = [one for one in reports if not one["is_original"]]
            for (case, where), other in zip(made.items(), others, strict=True):
                rows.append(
                    {
                        "model": model_name,
                        "tool": case.tool,
                        "recipe": case.recipe,
                        "policy": case.policy,
                        "text": text_name,
                        "seconds": json.loads((where / "made.json").read_text())["seconds"],
                        **figures_of(original, other["total"]),
                    }
                )
                print(line_of(rows[-1]), flush=True)
    return rows


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
        f"{row['model']:12} {row['text']:10} {row['tool']:14} {row['recipe']:11} "
        f"{row['policy']:7} ppl {row['perplexity']:8.3f} +- {row['perplexity_error']:.3f} "
        f"(original {row['original_perplexity']:.3f})  KL {row['kl']:.4f} +- {row['kl_error']:.4f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--text", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--calibration", type=pathlib.Path, help="a text of another family")
    parser.add_argument("--calibration-tokens", type=int, default=16384)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--only", action="append", metavar="'[TOOL] RECIPE POLICY'")
    parser.add_argument("--octavo", type=pathlib.Path, default=OCTAVO)
    parser.add_argument("--peers", type=pathlib.Path, default=PEERS, help="a Python with the peers")
    parser.add_argument("--work", type=pathlib.Path, help="kept, and gone on with")
    parser.add_argument("--output", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-quality-") as folder:
        rows = rows_of(arguments, arguments.work or pathlib.Path(folder))
    means = means_of(rows)
    print(text_of(means))
    if arguments.output:
        machine = os.environ.get("OCTAVO_MACHINE") or platform.machine()
        result = {"machine": machine, "rows": rows, "means": means}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
