"""octavo quantize --compare: several recipes side by side, and no model written."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import tiny_model  # noqa: E402

RECIPES = ("fp8-channel", "mxfp8", "nvfp4")
LINEARS = 14


@pytest.fixture
def model(octavo):
    return tiny_model.llama(octavo.folder / "model")


def test_table_and_page(octavo, model):
    before = octavo.files()
    done = octavo.good("quantize", "model", "--compare", ",".join(RECIPES), "--report", "r.html")
    assert done.err == "wrote r.html\n"
    assert set(octavo.files()) - set(before) == {"r.html"}
    rows = [line.split() for line in done.out.splitlines()]
    for recipe in RECIPES:
        (row,) = [row for row in rows if row[:1] == [recipe] and "%" in row]
        assert "vllm," in row
        assert sum(row[:1] == [recipe] for row in rows) == 1 + 3  # and the worst three tensors
    assert "no data was seen" in done.out
    page = (octavo.folder / "r.html").read_text()
    assert "model.<wbr>layers.<wbr>1.<wbr>mlp.<wbr>down_proj" in page
    assert all(f">{recipe}<" in page for recipe in RECIPES)


def test_numbers_are_those_of_quantizing(octavo, model):
    seen = octavo.good("quantize", "model", "--compare", "fp8-block,mxfp4", "--json").json
    for outcome in seen["recipes"]:
        name = outcome["recipe"]
        written = octavo.good("quantize", "model", "-o", name, "--recipe", name, "--json").json
        assert outcome["bytes_after"] == written["bytes_after"]
        assert outcome["loads"] == written["servers"]["loads"]
        assert outcome["worst"] == written["worst"]
        sqnr = {t["name"]: t["metrics"]["sqnr"] for t in written["tensors"] if "metrics" in t}
        assert {t["name"]: t["sqnr"] for t in outcome["tensors"]} == sqnr
        assert len(sqnr) == LINEARS
        # Normal weights, in rows of 256 and 512: what is expected of them. The sums are over 2^16
        # values, which is good for 0.1 dB.
        assert all(abs(t["sqnr"] - t["expected_sqnr"]) < 0.3 for t in outcome["tensors"])


def test_what_a_target_cannot_hold_is_said(octavo, model):
    done = octavo.good("quantize", "model", "--compare", "nvfp4,fp8-block", "--target", "deepseek")
    (line,) = [line for line in done.out.splitlines() if "nvfp4" in line]
    assert "cannot: " in line and "fp8-block" in done.out
    octavo("quantize", "model", "--compare", "nvfp4", "--target", "deepseek").refused(1, "nvfp4")
    # An option that fits one recipe and not the other.
    done = octavo.good("quantize", "model", "--compare", "mxfp8,fp8-channel", "--scale", "e8m0",
                       "--scale-rule", "floor")  # fmt: skip
    assert "mxfp8" in done.out


def test_mistakes(octavo, model):
    octavo("quantize", "model", "--compare", "mxfp8,mxpf4").refused(2, "Did you mean 'mxfp4'?")
    octavo("quantize", "model", "--compare", "mxfp8,mxfp8").refused(1, "twice")
    for more, said in (
        (("--recipe", "mxfp8"), "--recipe"),
        (("-o", "out"), "writes no model"),
        (("--dry-run",), "--dry-run"),
        (("--fail-if", "cosine<0.9"), "--fail-if"),
        (("--exclude", "("), "--exclude"),
        (("--report", "r.txt"), ".html"),
    ):
        octavo("quantize", "model", "--compare", "mxfp8,mxfp4", *more).refused(2, said)
    octavo.save("x.npy", np.zeros((4, 4), np.float32))
    octavo("quantize", "x.npy", "--compare", "mxfp8").refused(2, "--compare")
    assert not (octavo.folder / "out").exists()
