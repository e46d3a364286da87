"""Checks the symbols that liboctavo.so exports against the installed headers.

    check_symbols.py --prefix DIR [--nm PROGRAM]

Every exported name must belong to namespace octavo, and its outermost part (octavo::encode,
octavo::Tensor) must be declared with OCTAVO_API in an installed header: a name that is exported but
not declared is an accident that users will come to rely on. The other way round, a function that
an installed header declares and does not define must have OCTAVO_API, or no user can link it.

Nor may it use what the static libstdc++ of wheels has only with a newer glibc than they promise.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from declarations import hidden_declarations

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
# OCTAVO_API, then a class (`class OCTAVO_API Error`) or a function or variable. Of the latter the
# name is the last word before the first of ( ; = { that is not inside template brackets.
API_TYPE = re.compile(r"\b(?:class|struct|union)\s+OCTAVO_API\s+(\w+)")
API_OTHER = re.compile(
    r"(?<!class )(?<!struct )(?<!union )\bOCTAVO_API\s+([^;{}()=]*?)\b(\w+)\s*[(;={]"
)
# What of libstdc++ needs glibc after 2.34, by how its names begin, and what there is instead.
NEWER = {"std::random_device": "octavo::random_bits (base/random_bits.h)"}
PREFIXES = ("typeinfo name for ", "typeinfo for ", "vtable for ", "VTT for ")


def declared_names(header_text: str) -> set[str]:
    text = COMMENT.sub(" ", header_text)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    names = set(API_TYPE.findall(text))
    names |= {name for _, name in API_OTHER.findall(text)}
    # `OCTAVO_API bool operator==(...)`: the word before the parenthesis is not a word.
    if re.search(r"\bOCTAVO_API[^;{}()]*\boperator", text):
        names.add("operator")
    return names


def outermost(symbol: str) -> str | None:
    """`octavo::Tensor::data() const` -> `Tensor`; None if it is not of namespace octavo."""
    for prefix in PREFIXES:
        symbol = symbol.removeprefix(prefix)
    # A function template's demangled name begins with its return type. Namespaces within octavo
    # have names in lower case, types do not.
    found = re.match(r"(?:[^(]*[ &*])?octavo::(?:[a-z]\w*::)*(\w+)", symbol)
    if not found:
        return None
    return "operator" if found[1].startswith("operator") else found[1]


def check(symbols: list[str], declared: set[str]) -> list[str]:
    wrong = []
    for symbol in symbols:
        name = outermost(symbol)
        if name is None:
            wrong.append(f"exported, but not of namespace octavo: {symbol}")
        elif name not in declared:
            wrong.append(f"exported, but no installed header declares it OCTAVO_API: {symbol}")
    return wrong


def check_imports(symbols: list[str]) -> list[str]:
    return [
        f"used, but wheels promise glibc 2.34, and it needs a newer one: {symbol}; use {instead}"
        for symbol in symbols
        for start, instead in NEWER.items()
        if symbol.startswith(start)
    ]


def symbols_of(nm: str, library: Path, which: str) -> list[str]:
    command = [nm, "--dynamic", which, "--demangle", str(library)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # "0000 T octavo::version()": an address if it is defined, a kind, the name with its spaces.
    return [line[16:].strip().split(maxsplit=1)[1] for line in lines]


def main() -> int:
    parser = argparse.ArgumentParser(description="check the exported names of liboctavo.so")
    parser.add_argument("--prefix", type=Path, required=True)
    parser.add_argument("--nm", default="nm")
    options = parser.parse_args()
    libraries = sorted(options.prefix.glob("lib*/**/liboctavo.so"))
    if len(libraries) != 1:
        print(f"expected one liboctavo.so below {options.prefix}, found {len(libraries)}")
        return 1
    symbols = symbols_of(options.nm, libraries[0], "--defined-only")
    declared: set[str] = set()
    wrong = []
    for header in sorted((options.prefix / "include").rglob("*.h")):
        text = header.read_text(encoding="utf-8")
        declared |= declared_names(text)
        name = header.relative_to(options.prefix / "include").as_posix()
        wrong += [
            f"{name}: declared without OCTAVO_API, so that users cannot link it: {function}"
            for function in hidden_declarations(text)
        ]
    wrong += check(symbols, declared)
    wrong += check_imports(symbols_of(options.nm, libraries[0], "--undefined-only"))
    for line in wrong:
        print(line)
    print(f"{len(symbols)} exported names, {len(wrong)} mistakes")
    return 1 if wrong or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
