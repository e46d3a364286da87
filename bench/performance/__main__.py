"""Writes docs/performance.md, the table of speeds of README.md and the curves of the guide from the
newest of bench/results.

python -m bench.performance            write all
python -m bench.performance --check    write nothing; fail where one differs
"""

from __future__ import annotations

import argparse
import sys

from .page import filled, performance
from .results import ROOT, newest, results
from .switch import drawing


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail where a page is out of date")
    check = parser.parse_args().check
    readme, page = ROOT / "README.md", ROOT / "docs" / "performance.md"
    pages = {readme: filled(readme.read_text()), page: performance()}
    if results("switch"):
        pages[ROOT / "docs" / "guide" / "recipe-switch.svg"] = drawing(newest("switch"))
    different = [
        path for path, text in pages.items() if not path.exists() or path.read_text() != text
    ]
    for path in different:
        if check:
            print(f"{path.relative_to(ROOT)} is out of date; run: python -m bench.performance")
        else:
            path.write_text(pages[path])
    return int(check and bool(different))


if __name__ == "__main__":
    sys.exit(main())
