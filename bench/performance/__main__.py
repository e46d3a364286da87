"""Writes docs/performance.md, and tables of other pages, from the newest of bench/results.

python -m bench.performance            write them
python -m bench.performance --check    write nothing; fail where one differs
"""

from __future__ import annotations

import argparse
import sys

from .page import pages
from .results import ROOT


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail where a page is out of date")
    check = parser.parse_args().check
    made = pages(ROOT)
    different = [
        path for path, text in made.items() if not path.exists() or path.read_text() != text
    ]
    for path in different:
        if check:
            print(f"{path.relative_to(ROOT)} is out of date; run: python -m bench.performance")
        else:
            path.write_text(made[path])
    return int(check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
