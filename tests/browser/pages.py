"""What the tests of every page share: its outline without a browser, and how it looks in one."""

from __future__ import annotations

import html.parser
from pathlib import Path

import pytest
from chromium import Chromium, Page, find_chromium

VOID = {"meta", "link", "input", "wbr", "br", "img"}


class Outline(html.parser.HTMLParser):
    """The elements of a page, each closed by its own end tag, and its text."""

    def __init__(self, page: Path):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(page.read_text(encoding="utf-8"))
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text += data

    def check_asks_for_nothing(self) -> None:
        """No picture, frame, handler or address: a page is one file and runs no foreign code."""
        names = [tag for tag, _ in self.tags]
        assert names.count("script") <= 1 and "img" not in names and "iframe" not in names
        for _, attributes in self.tags:
            assert not any(name.startswith("on") for name in attributes)
            assert "src" not in attributes and attributes.get("href", "data:,") == "data:,"


def running_chromium():
    """Of a fixture: browser = pytest.fixture(scope="module")(running_chromium)."""
    if find_chromium() is None:
        pytest.skip("Chromium is not installed")
    with Chromium() as running:
        yield running


def open_and_look(browser: Chromium, page: Path, width: int, dark: bool) -> Page:
    """Opens the page; it is as wide as the window, and dark where the user wants it dark."""
    shown = browser.open(page.as_uri(), width=width, dark=dark)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(background.removeprefix("rgb(").split(",")[0])
    assert (red < 64) == dark
    assert shown.problems == []
    return shown


# Tables wider than their box: what is right of it is out of sight, and heights are a riddle.
CUT_TABLES = """
[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.parentElement.clientWidth)
    .map(t => `${t.scrollWidth} > ${t.parentElement.clientWidth}: ${t.rows[0].textContent}`)
"""

# Text must stand out from what is behind it: WCAG's contrast of 4.5 for every visible text.
CONTRAST = """
(() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= .03928 ? v / 12.92
      : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.body.querySelectorAll('p, td, th, dt, dd, h1, h2, h3, li, code, a')) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found.push(`${e.tagName} ${ratio.toFixed(2)} ${e.textContent.slice(0, 40)}`);
  }
  return found;
})()
"""
