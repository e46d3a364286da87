"""The README's shell blocks: commands of the program run, targets of make exist. Its Python is run
by python/tests/test_readme.py, its C++ by tests/readme; nothing else may stand in a block."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


# A tokenizer whose tokens are the bytes of a line of small letters.
LETTERS = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
    "model": {
        "type": "BPE",
        "vocab": {t: i for i, t in enumerate("\u0120\u010aabcdefghijklmnopqrstuvwxyz")},
        "merges": [],
    },
}


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
    tiny_model.runnable(octavo.folder / "model")
    (octavo.folder / "model" / "tokenizer.json").write_text(json.dumps(LETTERS))
    (octavo.folder / "wiki.txt").write_text("a few words and no more\n" * 20)
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


LOADERS = {
    "transformers": "transformers",
    "vLLM": "vllm",
    "SGLang": "sglang",
    "TensorRT-LLM": "trtllm",
}


def recipe_rows() -> list[dict[str, str]]:
    """The table of recipes and servers: a dict for each recipe, by the names of its columns."""
    lines = README.split("## Which recipe, for which server\n", 1)[1].strip().splitlines()
    table = [line for line in lines[: lines.index("")] if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def test_the_table_of_recipes_is_what_verify_says(octavo):
    tiny_model.llama(octavo.folder / "model")
    rows = recipe_rows()
    assert len(rows) == 6
    for row in rows:
        (recipe,) = re.findall(r"`(.*)`", row["recipe"])
        usual = re.findall(r"`([\w-]+)`", row["`--target`"])
        loads: dict[str, set[str]] = {}
        for target in ("compressed-tensors", "deepseek", "modelopt"):
            words = ["quantize", "model", "-o", target, "--recipe", recipe, "--target", target]
            made = octavo(*words, "--json")
            if target not in usual and made.code == 1 and not made.out:
                continue  # a target that cannot hold the recipe
            for loader in LOADERS.values():
                if octavo("verify", target, "--for", loader).code == 0:
                    loads.setdefault(loader, set()).add(target)
            if target == "compressed-tensors":
                bits = made.json["bits_per_weight"]
                # Scales of rows, and of 128 x 128, are below 0.2 bits in a model this small.
                assert 0 <= bits - float(row["bits"]) < 0.2, recipe
            shutil.rmtree(octavo.folder / target)
        for column, loader in LOADERS.items():
            others = set(re.findall(r"`([\w-]+)`", row[column]))
            if row[column] == "yes":
                assert set(usual) <= loads[loader], (recipe, loader)
            elif row[column] in ("no", "experts"):  # of these the model has none
                assert loader not in loads, (recipe, loader)
            else:
                assert others and loads[loader] == others, (recipe, loader)
