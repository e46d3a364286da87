"""The pages beside the report: recipes side by side, and attention's rungs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]
import tiny_model  # noqa: E402
from conftest import find_program  # noqa: E402
from pages import CONTRAST, CUT_TABLES, Outline, open_and_look, running_chromium  # noqa: E402

browser = pytest.fixture(scope="module")(running_chromium)

RECIPES = ("fp8-channel", "mxfp8", "nvfp4")
RUNGS = ("auto", "bf16", "strict", "balanced", "fast", "naive")


def run(*command) -> None:
    subprocess.run([find_program(), *command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def recipes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    tiny_model.llama(folder / "model", tiny_model.llama_weights(2))
    page = folder / "recipes.html"
    run("quantize", folder / "model", "--compare", ",".join(RECIPES), "--report", page)
    return page


@pytest.fixture(scope="module")
def attention(tmp_path_factory) -> Path:
    page = tmp_path_factory.mktemp("attention") / "attention.html"
    run("attention-report", "--tokens", "256", "--html", page)
    return page


@pytest.fixture(params=["recipes", "attention"])
def page(request) -> Path:
    return request.getfixturevalue(request.param)


def test_reads_without_a_browser(page):
    Outline(page).check_asks_for_nothing()


def test_every_recipe_and_rung_is_named(recipes, attention):
    heads = Outline(recipes).text
    assert all(name in heads for name in RECIPES)
    assert "model.layers.1.mlp.down_proj.weight" in heads
    rungs = Outline(attention).text
    assert all(name in rungs for name in RUNGS)


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_fits_and_can_be_read(browser, page, width, dark):
    shown = open_and_look(browser, page, width, dark)
    assert shown.evaluate(CONTRAST) == []
    assert width < 1280 or shown.evaluate(CUT_TABLES) == []
