"""Argument checks of the checkpoint functions: an error names its argument."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from octavo import _octavo

Path = str | os.PathLike[str]
# Called a few times a second with bytes done, bytes in all, seconds, and the name of a tensor.
OnProgress = Callable[[int, int, float, str], object]


def path(op: str, what: str, given: Path) -> str:
    """The name of a file or folder as text."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise TypeError(
            f"[{op}] got {what}={given!r}; expected a path: a str or an os.PathLike of one"
        )
    return _text(op, what, path, "a path")


def _text(op: str, what: str, given: str, wanted: str) -> str:
    """A text that a system can have for a name: bytes of UTF-8 without NUL."""
    if "\0" in given:  # the system would take what stands before it
        raise ValueError(f"[{op}] got {what}={given!r}; expected {wanted} without NUL")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"[{op}] got {what}={given!r}; expected {wanted} that is UTF-8, not bytes of something "
            "else"
        ) from None
    return given


def word(op: str, what: str, given: str | None) -> str:
    """A word, or "" for None."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"[{op}] got {what}={given!r}; expected a str")
    return _text(op, what, given, "a str") if given else ""


def tile(op: str, given: str | int | None) -> str:
    """A tile, or the size of a block, as text."""
    if isinstance(given, bool):
        raise TypeError(f"[{op}] got tile={given!r}; expected a str or a number")
    return str(given) if isinstance(given, int) else word(op, "tile", given)


def flag(op: str, what: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"[{op}] got {what}={given!r}; expected True or False")
    return given


def count(op: str, what: str, given: int, least: int, most: int) -> int:
    wanted = f"; expected an int from {least} to {most}"
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    count = operator.index(given)
    if not least <= count <= most:
        raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
    return count


def threads(op: str, given: int) -> int:
    return count(op, "threads", given, 0, _octavo.most_threads())


def called(op: str, given: OnProgress | None) -> OnProgress | None:
    if given is not None and not callable(given):
        raise TypeError(f"[{op}] got progress={given!r}; expected a function or None")
    return given


def size(op: str, what: str, given: int | str) -> int:
    """A number of bytes, or what the command line takes: "64M", "5GiB"."""
    wanted = "; expected a number of bytes below 2^63, or a size such as '256M' or '5GiB'"
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s?(?:([KMGT])(?:iB|B)?|B)?\s*", given, re.I)
        if found is None:
            raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
        power = " KMGT".index((found[2] or " ").upper())
        size = int(float(found[1]) * 1024**power) if len(found[1]) < 20 else 1 << 63
        if size >= 1 << 63:
            raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
        return size
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    size = operator.index(given)
    if not 0 <= size < 1 << 63:
        raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
    return size


def names(op: str, what: str, given: Iterable[str]) -> list[str]:
    wanted = "; expected a list of expressions"
    # Of a text, its letters are not meant.
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"[{op}] got {name!r} in {what}{wanted}")
        _text(op, f"an entry of {what}", name, "a str")
    return names


def recipes(op: str, given: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"[{op}] got recipe_for={given!r}; expected a dict of expression to preset")
    for pair in given.items():
        if not all(isinstance(one, str) for one in pair):
            raise TypeError(f"[{op}] got {pair!r} in recipe_for; expected a str for a str")
        for one in pair:
            _text(op, "an entry of recipe_for", one, "a str")
    return list(given.items())


@dataclass(frozen=True)
class Budget:
    """Bits per weight or bytes, the other 0, and what there is to choose from."""

    bits: float
    bytes: int
    candidates: list[str]


def budget(
    op: str, bits: float | str | None, fit: int | str | None, candidates: Iterable[str]
) -> Budget | None:
    choices = names(op, "candidates", candidates)
    if bits is None and fit is None:
        if choices:
            raise ValueError(f"[{op}] got candidates without budget or fit; give one of them")
        return None
    if bits is not None and fit is not None:
        raise ValueError(f"[{op}] got budget and fit; expected one of them")
    if fit is not None:
        whole = size(op, "fit", fit)
        if whole == 0:
            raise ValueError(f"[{op}] got fit={fit!r}; expected a number of bytes above 0")
        return Budget(0.0, whole, choices)
    if isinstance(bits, bool) or not isinstance(bits, (int, float, str)):
        raise TypeError(f"[{op}] got budget={bits!r}; expected bits per weight: 4.5 or '4.5bpw'")
    return Budget(_octavo.parse_bits_per_weight(str(bits)), 0, choices)


@dataclass(frozen=True)
class Shared:
    """One of several processes with a plan; -1: as the launcher says. No plan: alone."""

    plan: str = ""
    rank: int = -1
    world: int = -1
    takeover_after: float = 120.0


NOT_SHARED = Shared()


def plan_file(op: str, given: Path) -> str:
    """The name of a plan file. An empty one is a mistake, and not "no plan"."""
    name = path(op, "plan", given)
    if not name:
        raise ValueError(f"[{op}] got plan=''; expected the name of a plan file, or None")
    return name


def shared(
    op: str, plan: Path, rank: int | None, world: int | None, takeover_after: float
) -> Shared:
    if isinstance(takeover_after, bool) or not isinstance(takeover_after, (int, float)):
        raise TypeError(f"[{op}] got takeover_after={takeover_after!r}; expected seconds")
    most = _octavo.most_world()
    return Shared(
        plan_file(op, plan),
        -1 if rank is None else count(op, "rank", rank, 0, most - 1),
        -1 if world is None else count(op, "world", world, 1, most),
        float(takeover_after),
    )
