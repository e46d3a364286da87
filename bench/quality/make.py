"""Quantizes a model by every case, and keeps what was made."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import time

from bench.quality.cases import Case


class CommandFailed(Exception):
    pass


def run(*command: object) -> str:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CommandFailed(str(error)) from error
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def window_of(arguments: argparse.Namespace, model: pathlib.Path) -> int:
    """The window that is asked for, or the longest that the model was made for."""
    config = json.loads((model / "config.json").read_text())
    return min(arguments.window, config.get("max_position_embeddings", arguments.window))


class Maker:
    """Quantizes one model by every case. A folder that is there already is taken as it is, so that
    a run that was stopped goes on."""

    def __init__(self, arguments: argparse.Namespace, model: pathlib.Path, work: pathlib.Path):
        self.arguments, self.model, self.work = arguments, model, work
        self.window = window_of(arguments, model)

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
            raise SystemExit("statistics and gptq need --calibration, a text")
        tokens = self.arguments.calibration_tokens
        return ["--text", self.arguments.calibration, "--tokens", tokens, "--window", self.window]

    def folder(self, case: Case) -> pathlib.Path:
        return self.work / case.name.replace(" ", "-")

    def make(self, case: Case) -> pathlib.Path:
        out = self.folder(case)
        if not (out / "made.json").exists():
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(f"{out}.gptq", ignore_errors=True)
            statistics = self.statistics() if case.needs_statistics else None
            start = time.monotonic()
            if case.tool == "octavo":
                said = self.by_octavo(case, out, statistics)
            else:
                said = self.by_peer(case, out)
            made = {"seconds": round(time.monotonic() - start, 1)} | said
            (out / "made.json").write_text(json.dumps(made))
        return out

    def by_octavo(self, case: Case, out: pathlib.Path, statistics: pathlib.Path | None) -> dict:
        command = [self.arguments.octavo, "--json", "quantize", self.model, "-o", out]
        command += ["--target", case.target]
        if case.recipe == "mixed":
            command += ["--budget", case.words[0]]
        else:
            command += ["--recipe", case.recipe]
            command += ["--scale-policy", case.scale_policy]
        if case.is_gptq:
            command += ["--method", "gptq", *self.calibration()]
        if statistics is not None:
            command += ["--statistics", statistics]
        run(*command)
        return {"loads": loaders_of(self.arguments.octavo, out)}

    def by_peer(self, case: Case, out: pathlib.Path) -> dict:
        script = pathlib.Path(__file__).with_name("peers.py")
        run(
            *(self.arguments.peers, script, case.tool, case.recipe, case.policy),
            *(self.model, out, *self.calibration()),
        )
        return {}


def loaders_of(octavo: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """Those that `octavo verify` says load it."""
    said = json.loads(run(octavo, "--json", "verify", folder))
    return [name for name, one in said["loaders"].items() if one["loads"]]
