"""The manual page says what the program says, and a help line fits a terminal of 100 columns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "formats cast quantize plan verify convert dequantize compare conform inspect generate eval "
    "calibrate attention-report doctor completion"
)


def test_no_command_is_missing_here(octavo):
    listed = octavo("--help").out.partition("Subcommands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == COMMANDS.split()


def test_a_plan_takes_statistics_for_a_budget_alone(octavo):
    """Its processes do not share them; a choice by them is in the plan."""
    tiny_model.llama(octavo.folder / "model")
    tiny_model.write(octavo.folder / "stats.safetensors", {}, {"format": "octavo.statistics"})
    refused = octavo("plan", "model", "--recipe", "nvfp4", "--statistics", "stats.safetensors")
    assert refused.code != 0
    for command in ("plan", "quantize"):
        assert "--statistics FILE" in octavo(command, "--help").out


def test_the_manual_page_is_that_of_this_program(octavo):
    made = [sys.executable, ROOT / "tools" / "manual.py", octavo.path, "--check"]
    done = subprocess.run(made, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["", *COMMANDS.split()])
def test_help_fits_a_hundred_columns(octavo, command):
    for line in octavo(*command.split(), "--help").out.splitlines():
        assert len(line) <= 100, line


def test_groff_finds_nothing_wrong():
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed; it is optional")
    page = ROOT / "docs" / "man" / "octavo.1"
    groff = ["groff", "-man", "-ww", "-z", "-Tutf8", page]
    done = subprocess.run(groff, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
