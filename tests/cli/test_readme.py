"""The README's shell blocks: commands of the program run, targets of make exist. Its Python is run
by python/tests/test_readme.py, its C++ by tests/readme; nothing else may stand in a block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def shell_lines() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.S | re.M)
    return [line for block in blocks for line in block.splitlines() if line]


def test_every_block_is_tested():
    fences = re.findall(r"^```(.*)$", README, re.M)
    assert set(fences[::2]) == {"sh", "python", "cpp"} and set(fences[1::2]) == {""}


def test_shell_blocks(octavo):
    bin_folder = octavo.folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "octavo").symlink_to(octavo.path)
    octavo.save("weights.npy", np.linspace(-4, 4, 1000, dtype=np.float32))
    tiny_model.llama(octavo.folder / "model")
    env = octavo.environment({"PATH": f"{bin_folder}:{os.environ['PATH']}"})
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    programs = set()
    for line in shell_lines():
        program, argument = line.split()[:2]
        programs.add(program)
        if program == "make":  # minutes, and this very test among what it runs
            assert argument in targets, line
            continue
        assert program == "octavo", line
        done = subprocess.run(
            ["bash", "-c", line], cwd=octavo.folder, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"$ {line}\n{done.stderr}"
    assert programs == {"make", "octavo"}
