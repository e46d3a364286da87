"""The HTML report page: well-formed XML, and interactive in a browser where one is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]
import tiny_model  # noqa: E402
from conftest import find_program  # noqa: E402
from pages import CONTRAST, CUT_TABLES, Outline, open_and_look, running_chromium  # noqa: E402

browser = pytest.fixture(scope="module")(running_chromium)

LAYERS = 12
EVIL = "model.layers.3.mlp.<img src=x onerror=alert(1)>\"'.weight"
LONG = "model.layers.5." + "a_module_of_a_very_long_name" * 6 + ".proj.weight"  # and the worst


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    tensors = tiny_model.llama_weights(LAYERS)
    tensors[EVIL] = tensors["model.layers.3.mlp.up_proj.weight"]
    # One value of every block is far above the others, of which little is left.
    uneven = np.random.default_rng(1).standard_normal((256, 256), np.float32)
    uneven[:, ::32] *= 12
    tensors[LONG] = tiny_model.bf16(uneven)
    tiny_model.llama(folder / "model", tensors)
    subprocess.run(
        [find_program(), "quantize", folder / "model", "-o", folder / "out", "--recipe", "mxfp4",
         "--include", "proj|img", "--target", "octavo", "--report", folder / "report.html"],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder / "report.html"


def test_reads_without_a_browser(page):
    outline = Outline(page)
    outline.check_asks_for_nothing()
    assert EVIL in outline.text
    for layer in range(LAYERS):
        assert f"model.layers.{layer}.mlp.down_proj.weight" in outline.text


def test_normal_tensors_are_calm_and_an_uneven_one_is_marked(page):
    outline = Outline(page)
    cells = [a for tag, a in outline.tags if tag == "rect" and a.get("class", "").startswith("hit")]
    first_map = cells[: len(cells) // 2]
    worst = [a["data-m"] for a in first_map if a["class"] in ("hit g0", "hit g1", "hit g2")]
    assert worst == [LONG.removesuffix(".weight")]
    assert {a["class"] for a in first_map if a["data-m"] not in worst} == {"hit g4"}
    assert (
        sum(a.get("class") == "mark" for tag, a in outline.tags if tag == "path") == 2
    )  # two maps
    assert "Far from normal weights" in outline.text and "it has seen no data" in outline.text


def test_says_each_thing_once(page):
    text = page.read_text(encoding="utf-8")
    for key in ("recipe", "target", "version"):
        assert text.count(f"<dt>{key}</dt>") == 1


@pytest.mark.parametrize("width", [420, 800, 1280, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_fits_and_is_quiet(browser, page, width, dark):
    shown = open_and_look(browser, page, width, dark)
    assert shown.evaluate("document.querySelectorAll('#tensors tbody tr').length") == 7 * LAYERS + 2
    assert shown.evaluate(CONTRAST) == []
    assert width < 1280 or shown.evaluate(CUT_TABLES) == []
    # No content overflows its card, even with long names.
    wider = (
        "[...document.querySelectorAll('.card, .hist')].filter(c => c.scrollWidth > c.clientWidth)"
    )
    assert shown.evaluate(wider + ".length") == 0
    assert (
        shown.evaluate(
            "Math.max(...[...document.querySelectorAll('.card')].map(c => c.offsetHeight))"
        )
        < 220
    )


def test_before_and_after_can_be_compared(browser, page):
    shown = browser.open(page.as_uri())
    boxes = shown.evaluate(
        "[...document.querySelectorAll('.hist')].slice(0, 6)"
        ".map(h => [...h.querySelectorAll('figure')]"
        ".slice(0, 2).map(f => [f.querySelector('figcaption').textContent.split(':')[0],"
        " f.querySelector('svg').getAttribute('viewBox'), f.querySelector('.ends').textContent]))"
    )
    assert len(boxes) == 6
    for (before, *axis), (after, *same_axis) in boxes:
        assert (before, after) == ("Before", "After") and axis == same_axis
    # One height for both: the largest bar of the two fills the picture.
    areas = shown.evaluate(
        "[...document.querySelectorAll('.hist figure')].slice(0, 2).map(f => Math.max("
        "...[...f.querySelectorAll('rect')].map(r => +r.getAttribute('height'))))"
    )
    assert max(areas) == 60


def test_sorts_and_searches(browser, page):
    shown = browser.open(page.as_uri())
    column = "[...document.querySelectorAll('#tensors tbody tr')].map(r => +r.cells[4].dataset.v)"
    shown.evaluate("document.querySelectorAll('#tensors th button')[4].click()")
    rising = shown.evaluate(column)
    assert rising == sorted(rising) and len(set(rising)) > 2
    shown.evaluate("document.querySelectorAll('#tensors th button')[4].click()")
    assert shown.evaluate(column) == rising[::-1]
    search = "const s = document.getElementById('tensors-search'); s.value = '{}'; "
    search += "s.dispatchEvent(new Event('input')); "
    visible = "[...document.querySelectorAll('#tensors tbody tr')].filter(r => !r.hidden).length"
    assert shown.evaluate("{" + search.format("layers.7. proj") + visible + "}") == 7
    assert shown.evaluate("{" + search.format("no such tensor") + visible + "}") == 0
    # A click in the heat map searches for that module.
    shown.evaluate("document.querySelector('.map rect.hit').dispatchEvent("
                   "new MouseEvent('click', {bubbles: true}))")  # fmt: skip
    assert shown.evaluate(visible) >= 1
    assert shown.problems == []


def test_maps_alternate_without_scripts(browser, page):
    shown = browser.open(page.as_uri(), script=False)
    # Scripts of the page are off, so the picture alone can tell; the search box stays hidden.
    layout = shown.send("DOM.getDocument")["root"]["nodeId"]
    tools = shown.send("DOM.querySelector", nodeId=layout, selector="#tools")["nodeId"]
    with pytest.raises(RuntimeError, match="box model"):
        shown.send("DOM.getBoxModel", nodeId=tools)
    table = shown.send("DOM.querySelector", nodeId=layout, selector="#tensors")["nodeId"]
    assert shown.send("DOM.getBoxModel", nodeId=table)["model"]["height"] > 500
