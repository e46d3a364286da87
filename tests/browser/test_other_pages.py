"""The pages beside the report: recipes side by side, a mix, a sweep, models on a text, and
attention's rungs."""

from __future__ import annotations

import json
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


@pytest.fixture(scope="module")
def mix(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("mix")
    tiny_model.llama(folder / "model", tiny_model.llama_weights(2))
    page = folder / "mix.html"
    run("quantize", folder / "model", "-o", folder / "out", "--budget", "5.0", "--report", page)
    return page


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    tiny_model.llama(folder / "model", tiny_model.llama_weights(2))
    page = folder / "sweep.html"
    run("quantize", folder / "model", "--sweep", "recipe=mxfp8,mxfp4", "--report", page)
    return page


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory) -> Path:
    """Two models beside their original, on two texts."""
    folder = tmp_path_factory.mktemp("evaluation")
    tiny_model.runnable(folder / "model")
    for recipe in RECIPES[1:]:
        run("quantize", folder / "model", "-o", folder / recipe, "--recipe", recipe)
    ids = [(7 * i * i + 3) % 64 for i in range(300)]
    for name, some in (("a.json", ids), ("b.json", ids[::-1])):
        (folder / name).write_text(json.dumps(some))
    page = folder / "evaluation.html"
    models = [folder / recipe for recipe in RECIPES[1:]]
    texts = ["--ids", folder / "a.json", "--ids", folder / "b.json"]
    run("eval", *models, "--against", folder / "model", *texts, "--report", page)
    return page


@pytest.fixture(params=["recipes", "mix", "sweep", "evaluation", "attention"])
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


def test_every_model_and_text_is_named(evaluation):
    shown = Outline(evaluation).text
    assert all(name in shown for name in (*RECIPES[1:], "a.json", "b.json", "Perplexity"))


def test_a_mix_is_called_one(mix):
    assert "Quantized to a mix of " in Outline(mix).text


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_fits_and_can_be_read(browser, page, width, dark):
    shown = open_and_look(browser, page, width, dark)
    assert shown.evaluate(CONTRAST) == []
    assert width < 1280 or shown.evaluate(CUT_TABLES) == []


def test_every_table_is_searched_by_itself(browser, mix, sweep):
    shown = browser.open(mix.as_uri())
    ids = shown.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    visible = "[...document.querySelectorAll('#{} tbody tr')].filter(r => !r.hidden).length"
    before = shown.evaluate(visible.format("parts"))
    search = "{ const s = document.getElementById('tensors-search'); s.value = 'no such tensor'; "
    shown.evaluate(search + "s.dispatchEvent(new Event('input')) }")
    assert shown.evaluate(visible.format("tensors")) == 0
    assert shown.evaluate(visible.format("parts")) == before > 0
    counts = "[...document.querySelectorAll('.tools span')].map(s => s.textContent)"
    assert browser.open(sweep.as_uri()).evaluate(counts) == ["2 settings"]


# Labels of a chart that cover each other: their text as it is drawn.
OVERLAPS = """
(() => {
  const labels = [...document.querySelectorAll('#mix svg text')]
      .map(t => [t.textContent, t.getBoundingClientRect()]), found = [];
  labels.forEach(([a, p], i) => labels.slice(i + 1).forEach(([b, q]) => {
    if (p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom)
      found.push(a + ' on ' + b);
  }));
  return found;
})()
"""


def test_labels_of_a_mix_keep_apart(browser, mix):
    assert browser.open(mix.as_uri(), width=1280).evaluate(OVERLAPS) == []
