"""The list of public headers, cmake/public_headers.txt, and what it is held against.

A public header is named in the list, exists, includes no internal header, and octavo/octavo.h leads
to it. Only public headers have OCTAVO_API. examples/ and the consumer test include public headers
only; the programs may also include what the list names for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

LIST = "cmake/public_headers.txt"
UMBRELLA = "octavo/octavo.h"
PROGRAMS = ("cli", "python")
STRANGERS = ("examples", "tests/consumer")
API = re.compile(r"^(?!\s*#).*\bOCTAVO_API\b")

# Yields (line number, opening bracket, target) of each #include of a file.
Includes = Callable[[Path], Iterable[tuple[int, str, str]]]


@dataclass
class PublicHeaders:
    lines: dict[str, int] = field(default_factory=dict)  # header -> its line in the list
    for_programs: tuple[str, ...] = ()  # headers, and folders that end in "/"
    wrong: list[str] = field(default_factory=list)

    def __contains__(self, header: str) -> bool:
        return header in self.lines

    def is_for_programs(self, header: str) -> bool:
        return header in self or any(
            header == one or (one.endswith("/") and header.startswith(one))
            for one in self.for_programs
        )


def read_list(text: str) -> PublicHeaders:
    found = PublicHeaders()
    for number, line in enumerate(text.splitlines(), start=1):
        line, _, reason = (part.strip() for part in line.partition("#"))
        if not line:
            continue
        word, colon, name = line.partition(":")
        if colon and word == "programs":
            if not reason:
                found.wrong.append(f"{LIST}:{number}: {name.strip()} has no reason behind a '#'")
            found.for_programs += (name.strip(),)
        elif not re.fullmatch(r"octavo/\S+\.h", line):
            found.wrong.append(
                f"{LIST}:{number}: expected a header or 'programs: NAME  # why', got {line!r}"
            )
        elif line in found.lines:
            found.wrong.append(
                f"{LIST}:{number}: {line} is listed in line {found.lines[line]} already"
            )
        else:
            found.lines[line] = number
    return found


def check_headers(root: Path, public: PublicHeaders, includes: Includes) -> list[str]:
    """The listed headers themselves."""
    wrong = list(public.wrong)
    targets: dict[str, list[str]] = {}
    for header, number in public.lines.items():
        if not (root / header).is_file():
            wrong.append(f"{LIST}:{number}: {header} is listed, but there is no such file")
            continue
        targets[header] = []
        for line, _, target in includes(root / header):
            if target in public:
                targets[header].append(target)
            elif target.startswith("octavo/"):
                wrong.append(
                    f"{header}:{line}: is public, but includes {target}, which {LIST} does not list"
                )
    reached, waiting = {UMBRELLA}, [UMBRELLA]
    while waiting:
        for target in targets.get(waiting.pop(), []):
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    for header in sorted(targets.keys() - reached):
        wrong.append(
            f"{LIST}:{public.lines[header]}: {header} is listed, but {UMBRELLA} does not lead to it"
        )
    return wrong


def check_api(root: Path, public: PublicHeaders, headers: Iterable[Path]) -> list[str]:
    """OCTAVO_API outside of the listed headers: a symbol that no user has a declaration of."""
    wrong = []
    for file in headers:
        name = file.relative_to(root).as_posix()
        if name in public:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if API.match(line.partition("//")[0]):
                wrong.append(f"{name}:{number}: OCTAVO_API, but {LIST} does not list {name}")
    return wrong


def check_outside(
    root: Path, public: PublicHeaders, includes: Includes, sources: Callable[[Path], Iterable[Path]]
) -> list[str]:
    wrong = []
    for folder in PROGRAMS + STRANGERS:
        for file in sources(root / folder):
            for number, _, target in includes(file):
                if not target.startswith("octavo/"):
                    continue
                allowed = (
                    target in public if folder in STRANGERS else public.is_for_programs(target)
                )
                if not allowed:
                    name = file.relative_to(root).as_posix()
                    wrong.append(f"{name}:{number}: {target} is not a public header ({LIST})")
    return wrong
