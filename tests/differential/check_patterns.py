"""octavo's regular expressions against Python's re on random input.

    check_patterns.py PATTERN_VERDICTS

What octavo accepts must be an expression in Python too, with the same verdict on every text:
loaders match with Python's re. Expressions of octavo's subset must be accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys

from random_expressions import RandomExpressions, python_verdicts

SETS = (
    # letters of texts, everything of Python's or the subset, how many may be refused
    ("ab.1-_", False, 0.0),
    ("ab.1-_\n\r\t", False, 0.0),
    ("ab.1é中", False, 0.0),
    ("ab.1-_", True, 0.5),
)
COUNT = 5000


def main() -> int:
    wrong = 0
    for seed, (letters, wide, refusable) in enumerate(SETS):
        made = RandomExpressions(seed, letters, wide)
        cases = [[made.expression(), *[made.text() for _ in range(5)]] for _ in range(COUNT)]
        done = subprocess.run(
            [sys.argv[1]],
            input="".join(json.dumps(case) + "\n" for case in cases),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        refused = compared = 0
        for case, ours in zip(cases, done.stdout.splitlines(), strict=True):
            theirs = python_verdicts(case[0], case[1:])
            refused += ours == "refused" != theirs
            if ours == "refused" or theirs == "slow":
                continue
            compared += 1
            if ours != theirs:
                wrong += 1
                print(f"{case}: octavo {ours}, Python {theirs}")
        print(f"{letters!r}: {compared} of {COUNT} expressions compared, {refused} refused")
        if refused > refusable * COUNT:
            wrong += 1
            print(f"octavo refuses {refused} expressions, expected at most {refusable * COUNT:.0f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
