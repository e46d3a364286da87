"""Results that bench/ keeps, bench/results/<question>-<machine>-<date>.json, and tables of them."""

from __future__ import annotations

import json
import pathlib
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"


@dataclass
class Result:
    path: pathlib.Path
    machine: str  # as the file's name has it
    date: str

    @property
    def data(self) -> dict:
        return json.loads(self.path.read_text())

    @property
    def link(self) -> str:
        return f"[{self.path.name}](../bench/results/{self.path.name})"

    @property
    def machine_name(self) -> str:
        """neoverse-n1: Neoverse N1."""
        return {"h200": "NVIDIA H200", "xeon-amx": "Xeon with AMX"}.get(
            self.machine,
            " ".join(
                word.upper() if re.search(r"\d", word) else word.capitalize()
                for word in self.machine.split("-")
            ),
        )

    def measured(self, command: str) -> str:
        """The line below a table: machine, date, command, file."""
        return f"{self.machine_name}, {self.date}: `{command}`, kept in {self.link}."


def results(question: str) -> list[Result]:
    """The newest result of each machine, by the machines' names. A question is the beginning of a
    file's name; what stands between it and the date must be a machine, not another question."""
    found: dict[str, Result] = {}
    pattern = re.compile(
        rf"{question}-(?P<machine>(?!rates-|memory-|mean-|peers-|nvfp4-|forward-|backward-|decode-|\d{{4}}-).+)-(?P<date>[\d-]{{10}})\.json"
    )
    for path in sorted(RESULTS.glob(f"{question}-*.json")):
        match = pattern.fullmatch(path.name)
        if match is None:
            continue
        result = Result(path, match["machine"], match["date"])
        if result.machine not in found or found[result.machine].date < result.date:
            found[result.machine] = result
    return sorted(found.values(), key=lambda result: result.machine)


def newest(question: str) -> Result:
    """The result with the latest date, whatever the machine."""
    return max(results(question), key=lambda result: (result.date, result.machine))


def on_h200(question: str) -> Result:
    """h200-<date>.json, or <question>-h200-<date>.json."""
    if question:
        return next(result for result in results(question) if result.machine == "h200")
    path = max(RESULTS.glob("h200-*.json"), key=lambda path: path.name)
    return Result(path, "h200", path.stem[-10:])


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    head = list(head)
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def cores(count: str) -> str:
    return f"{count} core{'s' * (count != '1')}"


def times(ratio: float, digits: int = 2) -> str:
    return f"{ratio:.{digits}f} x"


def section(*parts: str) -> str:
    """Heading, paragraphs and tables, one below the other; paragraphs are broken into lines,
    but not inside `code`."""

    def broken(part: str) -> str:
        if part.startswith(("|", "#", "<!--")):
            return part
        whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\0"), part)
        made = textwrap.fill(whole, 112, break_long_words=False, break_on_hyphens=False)
        return made.replace("\0", " ")

    return "\n\n".join(map(broken, parts))


def missing(held: Iterable[bool]) -> str:
    """How many cases of a run miss the bar they are held to."""
    held = list(held)
    missed = len(held) - sum(held)
    verb = "miss" if missed > 1 else "misses"
    return f"Of {len(held)} cases that have a bar, {missed or 'none'} {verb} it."
