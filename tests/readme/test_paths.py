"""Files and folders that pages name in backticks exist, and so does what they link to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Their paths are from the root, or from octavo/, whose rooms they speak of.
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "HACKING.md",
    "RELEASING.md",
    "docs/glossary.md",
    "tests/README.md",
    "docs/design/overview.md",
    "octavo/exec/README.md",
    "octavo/backend/cuda/hopper/README.md",
]
TOP = {path.name for path in ROOT.iterdir()} | {path.name for path in (ROOT / "octavo").iterdir()}
MADE = {"build", ".venv", ".venv-peers"}  # by make
SOURCES = (".h", ".cc", ".cu", ".cuh", ".py", ".cmake")


def source_names() -> set[str]:
    folders = ("octavo", "cli", "python", "tests", "bench", "examples", "tools", "cmake")
    return {path.name for folder in folders for path in (ROOT / folder).rglob("*")}


def exists(path: str, page: Path) -> bool:
    """From the root, from octavo/ or from the page's folder; `*` is any name."""
    bases = (ROOT, ROOT / "octavo", page.parent)
    return any(next(base.glob(path), None) is not None for base in bases)


def missing(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    names = source_names()
    found = []
    for quoted in re.findall(r"`([^`\n]+)`", text):
        if not re.fullmatch(r"[\w.*/-]+", quoted):
            continue  # code, not a path
        if quoted.startswith("_"):
            continue  # the end of a name
        path = quoted.rstrip("/")
        first = path.split("/")[0]
        if "/" in quoted and first in TOP - MADE and "NAME" not in path:
            if not exists(path, page):
                found.append(quoted)
        elif "/" not in path and path.endswith(SOURCES) and "*" not in path and path not in names:
            found.append(quoted)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_paths_in_backticks_exist(name):
    assert missing(ROOT / name) == []


def test_a_path_that_is_not_there_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`octavo/format/format.h`, `format/no_such.h`, `no_such.cc`, `tests/exact/`, `x / y`"
    )
    assert missing(page) == ["format/no_such.h", "no_such.cc"]


def test_every_room_is_on_the_map():
    """The tree in overview.md: every folder of octavo/ with sources is in it, and no other."""
    text = (ROOT / "docs/design/overview.md").read_text()
    tree = re.search(r"^```\n(base/.*?)^```", text, re.S | re.M)[1]
    shown = set(re.findall(r"(?<![\w/.])([a-z_0-9]+)/", tree)) | set(
        re.search(r"isa/ +(.*?):", tree)[1].split(", ")
    )
    folders = {path.parent for path in (ROOT / "octavo").rglob("*.*") if path.suffix in SOURCES}
    rooms = {part for path in folders for part in path.relative_to(ROOT / "octavo").parts}
    assert shown == rooms


def pages() -> list[Path]:
    folders = ("docs", "octavo", "bench", "tests", "python")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.md"))]
    return [*sorted(ROOT.glob("*.md")), *found]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if not link.startswith(("http:", "https:"))]
    assert [link for link in local if not (page.parent / link).exists()] == []
