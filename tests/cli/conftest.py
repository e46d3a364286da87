"""Shared by the tests of the octavo program: where it is, and how to run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402
from shared_plan import SHARDED, contents  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PLACES = ["build/release/bin/octavo", "build/release/cli/octavo", ".venv/bin/octavo"]


def find_program() -> Path:
    given = os.environ.get("OCTAVO_CLI")
    for place in [given] if given else PLACES:
        if (ROOT / place).exists():
            return (ROOT / place).resolve()
    raise FileNotFoundError(f"no octavo program: set OCTAVO_CLI or build one of {PLACES}")


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)

    def refused(self, code: int, *words: str) -> None:
        """One line on stderr in the house form, nothing on stdout, and the given texts in it."""
        assert self.code == code, self
        assert self.out == ""
        assert self.err.startswith("octavo: ["), self.err
        assert self.err.count("\n") == 1, self.err
        for word in words:
            assert word in self.err, self.err


class Program:
    """Runs octavo in a folder of its own, with a clean environment."""

    def __init__(self, folder: Path):
        self.path = find_program()
        self.folder = folder

    def environment(self, changes: dict[str, str] | None = None) -> dict[str, str]:
        switches = ("OCTAVO_", "NO_COLOR")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(switches)}
        return clean | {"TERM": "xterm"} | (changes or {})

    def __call__(self, *arguments: object, env: dict[str, str] | None = None, **more) -> Result:
        done = subprocess.run(
            [self.path, *map(str, arguments)],
            cwd=self.folder,
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=120,
            **more,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def good(self, *arguments: object, **more) -> Result:
        result = self(*arguments, **more)
        assert result.code == 0, result.err
        return result

    def save(self, name: str, array: np.ndarray) -> Path:
        np.save(self.folder / name, array)
        return self.folder / name

    def load(self, name: str) -> np.ndarray:
        return np.load(self.folder / name)

    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


@pytest.fixture
def octavo(tmp_path: Path) -> Program:
    return Program(tmp_path)


# A model of three files, its plan, and what one call without a plan makes of it.
@pytest.fixture
def model(octavo) -> Path:
    return tiny_model.llama(octavo.folder / "model", shards=3)


@pytest.fixture
def plan(octavo, model) -> Path:
    result = octavo.good("plan", "model", "-o", "plan.json", *SHARDED)
    assert "to read" in result.out and "wrote plan.json" in result.err
    return octavo.folder / "plan.json"


@pytest.fixture
def whole(octavo, model) -> dict[str, bytes]:
    octavo.good("quantize", "model", "-o", "whole", *SHARDED)
    return contents(octavo.folder / "whole")
