"""Random regular expressions as Python's re has them, and texts to match them on."""

from __future__ import annotations

import random
import re
import signal
import warnings

ATOMS = ["a", "b", "1", r"\.", ".", r"\d", r"\w", r"\s", r"\W", "[ab]", "[^a]", "[.-1]", r"[\da]"]
ATOMS += [r"[\w.-]", r"\-", r"\n", r"\x61", "_", "é", "中", r"\D", r"\S", r"[^\w]", "[b-]"]
REPEATS = ["", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "{0,3}", "*?", "+?"]
# Syntax that octavo refuses, and what Python refuses.
WIDE = [r"\A", r"\Z", "[]a]", "[^]a]", "a{,2}", "b{", "(?P<n>a)", "(?i:A)", r"\1", "{", r"[\d-a]"]
WIDE += [
    "a*+",
    "a**",
    r"\z",
    "(?<=a)b",
    "(?<!a)b",
    "[[:alpha:]]",
    r"\_",
    "]",
    "(?=a)*",
    "[é]",
    "(?#c)",
]


class RandomExpressions:
    def __init__(self, seed: int, letters: str, wide: bool = False) -> None:
        self.random = random.Random(seed)
        self.letters = letters
        self.wide = wide

    def text(self) -> str:
        """Not empty: on empty text \\B is false before Python 3.14 and true from then on."""
        return "".join(self.random.choices(self.letters, k=self.random.randrange(1, 9)))

    def expression(self, depth: int = 2) -> str:
        out = self.sequence(depth)
        while self.random.random() < 0.25:
            out += "|" + self.sequence(depth)
        return out

    def sequence(self, depth: int) -> str:
        return "".join(self.atom(depth) for _ in range(self.random.randrange(1, 4)))

    def atom(self, depth: int) -> str:
        kind = self.random.random()
        if kind < 0.1:
            return self.random.choice(["^", "$", r"\b", r"\B"])
        if kind < 0.17:
            return self.random.choice(["(?=", "(?!"]) + self.expression(max(depth - 1, 0)) + ")"
        if self.wide and kind < 0.25:
            return self.random.choice(WIDE)
        out = self.random.choice(ATOMS)
        if depth > 0 and kind > 0.8:
            out = self.random.choice(["(", "(?:"]) + self.expression(depth - 1) + ")"
        return out + self.random.choice(REPEATS)


def python_verdicts(expression: str, texts: list[str]) -> str:
    """For every text "-", "s" (re.search) or "m" (re.match too); "refused"; or "slow" where Python,
    which backtracks, takes more than two seconds."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = re.compile(expression)
        return "".join("m" if one.match(t) else "s" if one.search(t) else "-" for t in texts)
    except (re.error, OverflowError):
        return "refused"
    except TimeoutError:
        return "slow"
    finally:
        signal.alarm(0)
