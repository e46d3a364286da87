"""No code compiled for a newer instruction set may end up in the part that runs everywhere.

    check_isa_symbols.py --nm PROGRAM --special OBJECT... --common OBJECT...

An inline function or template instance that several objects define is kept once by the linker, and
which copy that is, is chance. If an object compiled with extra -march flags defines one that a
common object defines too, a program may run the special copy on a machine without those
instructions.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

# GNU nm: weak functions, weak objects, unique globals. The linker merges these silently.
MERGED = set("WwVvu")
# Emitted by the compiler for exception handling, holds a pointer and no code.
IGNORED = {"DW.ref.__gxx_personality_v0"}


def merged_symbols(nm: str, objects: list[str]) -> dict[str, str]:
    """Mergeable names, with one object that defines each."""
    command = [nm, "--defined-only", "--print-file-name", *objects]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listing.splitlines():
        # "path/x.o:0000 W _ZN..."
        where, kind, name = line.rsplit(maxsplit=2)
        if kind in MERGED and name not in IGNORED:
            found[name] = where.rsplit(":", 1)[0]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="check that instruction sets do not leak")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--special", nargs="+", required=True)
    parser.add_argument("--common", nargs="+", required=True)
    options = parser.parse_args()
    special = merged_symbols(options.nm, options.special)
    common = merged_symbols(options.nm, options.common)
    leaks = sorted(special.keys() & common.keys())
    for name in leaks:
        print(f"{special[name]} and {common[name]} both define {name}")
    print(f"{len(special)} mergeable names in special objects, {len(leaks)} of them shared")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
