"""The guide's examples are run, and print what the guide says. In ```console blocks a line
"$ command" is run in one folder for the whole page; the lines below are its output, "..." standing
for any lines, or for the rest of a line and all after it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
PAGES = ["command-line.md", "checkpoints.md", "clusters.md"]


def examples(page: str) -> list[tuple[str, str]]:
    found = []
    text = (GUIDE / page).read_text()
    for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            while command.endswith("\\"):
                more, _, output = output.partition("\n")
                command = command[:-1] + more
            found.append((command, output))
    return found


def matches(wanted: str, got: str) -> bool:
    pattern = ""
    for line in wanted.splitlines():
        if line.endswith("..."):
            pattern += re.escape(line[:-3]) + "(?:.*\n)*"
        else:
            pattern += re.escape(line) + "\n"
    return re.fullmatch(pattern, got) is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_example(octavo, page):
    bin_folder = octavo.folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "octavo").symlink_to(octavo.path)
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (bin_folder / "python").chmod(0o755)
    work = octavo.folder / "work"
    work.mkdir()
    env = octavo.environment({"PATH": f"{bin_folder}:{os.environ['PATH']}"})
    tiny_model.llama(work / "model")
    commands = examples(page)
    assert len(commands) > 4
    for command, wanted in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=work,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not matches(wanted, done.stdout):
            pytest.fail(f"$ {command}\nprinted\n{done.stdout}\nthe guide says\n{wanted}")


def test_every_option_is_in_the_guide(octavo):
    text = "".join((GUIDE / page).read_text() for page in PAGES)
    verbs = ("quantize", "plan", "verify", "convert", "dequantize", "compare", "inspect")
    for command in ("formats", "cast", "attention-report", "doctor", *verbs):
        for option in re.findall(r"^  (--[a-z-]+)", octavo.good(command, "--help").out, re.M):
            assert option in text, f"{command} {option}"
