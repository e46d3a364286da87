"""Holds the #include lines of octavo/ against the arrows in arrows.txt, and the public headers
against their list, cmake/public_headers.txt.

    check_layering.py [--root DIR] [--arrows FILE]

A folder of octavo/, cli/ or python/ has at most 40 sources, its tests apart: more are two rooms.

Prints one line per violation, `file:line: what is wrong`, and exits 1 if there is any. Unit tests
(*_test.cc), bench/ and tests/ may include anything.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection
from pathlib import Path

import public_headers

SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
MOST_SOURCES = 40  # of one folder: a reader finds a file by looking at the list
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


class ArrowsError(Exception):
    """arrows.txt itself is wrong: a typing mistake, an unknown name, a circle."""


def read_arrows(text: str) -> dict[str, set[str]]:
    arrows: dict[str, set[str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, arrow, targets = line.partition("->")
        room = room.strip()
        if not arrow or not room or " " in room:
            raise ArrowsError(f"line {number}: expected 'room -> rooms', got {line!r}")
        arrows.setdefault(room, set()).update(targets.split())
    for room, targets in arrows.items():
        for target in targets - arrows.keys():
            raise ArrowsError(f"{room} -> {target}, but {target} has no line of its own")
    return arrows


def close_arrows(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """For each room all rooms it may include: itself, base, and everything down its arrows."""
    closed: dict[str, set[str]] = {}

    def visit(room: str, path: tuple[str, ...]) -> set[str]:
        if room in path:
            raise ArrowsError("a circle: " + " -> ".join((*path[path.index(room) :], room)))
        if room not in closed:
            reached = {room, "base"}
            for target in arrows[room]:
                reached |= visit(target, (*path, room))
            closed[room] = reached
        return closed[room]

    for room in arrows:
        visit(room, ())
    return closed


def room_of(path: str, rooms: Collection[str]) -> str:
    """The name arrows.txt uses for a file: itself if it has a line, else the folder it is in."""
    name = path.removeprefix("octavo/")
    if name in rooms:
        return name
    if "/" not in name:
        return re.sub(r"\.cc$", ".h", name)  # version.h and version.cc are one
    return name.rpartition("/")[0]


def includes(file: Path):
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        found = INCLUDE.match(line)
        if found:
            yield number, found[1], found[2]


def sources(folder: Path):
    if folder.is_dir():
        yield from sorted(f for f in folder.rglob("*") if f.suffix in SOURCE_SUFFIXES)


def check_library(root: Path, closed: dict[str, set[str]]) -> list[str]:
    wrong = []
    for file in sources(root / "octavo"):
        name = file.relative_to(root).as_posix()
        if file.stem.endswith("_test"):
            continue
        room = room_of(name, closed)
        if room not in closed:
            wrong.append(f"{name}:1: {room} has no line in arrows.txt")
            continue
        for number, bracket, target in includes(file):
            where = f"{name}:{number}:"
            if bracket == '"' and not target.startswith("octavo/"):
                wrong.append(f'{where} "{target}" is not named from the root ("octavo/...")')
            elif target.startswith("octavo/") and room_of(target, closed) not in closed[room]:
                wrong.append(
                    f"{where} {room} must not include {target} ({room_of(target, closed)})"
                )
    return wrong


def check_folders(root: Path) -> list[str]:
    """One line for each folder that has too many sources to find one by looking."""
    counts: dict[Path, int] = {}
    for top in ("octavo", "cli", "python"):
        for file in (root / top).rglob("*"):
            if file.suffix not in SOURCE_SUFFIXES | {".py"} or file.stem.endswith("_test"):
                continue
            if "tests" not in file.relative_to(root).parts:
                counts[file.parent] = counts.get(file.parent, 0) + 1
    return [
        f"{folder.relative_to(root).as_posix()}/:1: {count} sources, at most {MOST_SOURCES}"
        for folder, count in sorted(counts.items())
        if count > MOST_SOURCES
    ]


def check(root: Path, arrows_text: str, list_text: str) -> list[str]:
    closed = close_arrows(read_arrows(arrows_text))
    public = public_headers.read_list(list_text)
    headers = [file for file in sources(root / "octavo") if file.suffix in (".h", ".cuh")]
    return [
        *check_library(root, closed),
        *check_folders(root),
        *public_headers.check_headers(root, public, includes),
        *public_headers.check_api(root, public, headers),
        *public_headers.check_outside(root, public, includes, sources),
    ]


def main() -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="check #include lines against arrows.txt")
    parser.add_argument("--root", type=Path, default=here.parent.parent)
    parser.add_argument("--arrows", type=Path, default=here / "arrows.txt")
    options = parser.parse_args()
    try:
        arrows, listed = (
            file.read_text(encoding="utf-8")
            for file in (options.arrows, options.root / public_headers.LIST)
        )
        wrong = check(options.root, arrows, listed)
    except ArrowsError as error:
        wrong = [f"{options.arrows}: {error}"]
    for line in wrong:
        print(line)
    print(f"layering: {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
