"""Writes sources that include several others, so that headers are parsed once for all of them.

    unity_groups.py ROOT FOLDER MOST FILE...

FOLDER receives files named for their text, so that build trees may share it and ccache knows their
objects; what is to be compiled is printed, a path a line. Two sources are joined only if neither
mentions a name that the other declares for itself (in an anonymous namespace, static, by `using`,
or as a macro): so a name means in a joined source what it means in each. Includes come first,
before any of those names. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
ATTRIBUTE = re.compile(r"^\[\[.*?\]\]\s*")
INCLUDE = re.compile(r'#\s*include\s*([<"][^>"]+[>"])')
OPENS, CLOSES = re.compile(r"namespace\s*\{"), re.compile(r"\}\s*//\s*namespace\s*$")
TYPE = re.compile(r"(?:struct|class|union|enum class|enum)\s+(?:alignas\([^)]*\)\s*)?(\w+)")
ALIAS = re.compile(r"using\s+(?:namespace\s+)?(?:.*?)(\w+)\s*(?:=.*|;)$")
# A variable, or several: no parenthesis before its first = or ;.
VARIABLE = re.compile(r"[^(=]*[={;\[]")
NAMES_OF_VARIABLES = re.compile(r"(\w+)\s*(?:=|\{|;|\[|,)")
FUNCTION = re.compile(r"(\w+)\s*\(")
# What a compiler is told about the rest of a file would be told about the next one.
ALONE = re.compile(r"#\s*pragma\s+GCC|__attribute__\(\(constructor")
TESTS = re.compile(r"(?:TYPED_)?TEST(?:_[FP])?\(|(?:INSTANTIATE|TYPED|REGISTER)_\w+\(")
WORDS_OF_THE_LANGUAGE = frozenset(
    WORD.findall("""
    alignas auto bool char class const constexpr default double else false float for if inline int
    long namespace operator return short signed sizeof static std string struct switch template
    true typename unsigned using void while""")
)


@dataclass
class Source:
    path: str
    own: set[str] = field(default_factory=set)  # names that it declares for itself
    words: set[str] = field(default_factory=set)
    includes: list[str] = field(default_factory=list)  # those under no #if
    alone: bool = False


def names_declared(line: str) -> set[str]:
    """By a declaration up to its ; or {, as one line."""
    if found := TYPE.match(line):
        return {found[1]}
    if line.startswith("using "):
        found = ALIAS.match(line)
        return {found[1]} if found else set()
    if line.startswith("template"):
        return set()  # the next line has the name
    if VARIABLE.match(line):
        return set(NAMES_OF_VARIABLES.findall(line))
    found = FUNCTION.search(line)
    # Neither: a return type with its function's name on the next line.
    return {found[1]} if found else set(WORD.findall(line))


def read(path: str) -> Source:
    raw = Path(path).read_text(encoding="utf-8")
    source = Source(path, alone=ALONE.search(raw) is not None)
    inside, defines, depth = False, False, 0
    declared = ""
    for line in raw.splitlines():
        if OPENS.match(line):
            inside = True
        elif CLOSES.match(line):
            inside = False
        code = ATTRIBUTE.sub("", COMMENT.sub("", TEXT.sub('""', line))).rstrip()
        if found := INCLUDE.match(line):
            # What it defines before an include is meant for that header.
            source.alone |= defines
            # One without a folder is beside its source, and found from there alone.
            if depth == 0 and (found[1][0] == "<" or "/" in found[1]):
                source.includes.append(found[1])
            continue
        if code.startswith("#"):
            depth += len(re.findall(r"^#\s*if", code)) - len(re.findall(r"^#\s*endif", code))
            if found := re.match(r"#\s*define\s+(\w+)", code):
                source.own.add(found[1])
                defines = True
            continue
        # Declarations begin in the first column; what is indented continues them.
        if code != "" and code[0] not in " }#)/":
            declared = "" if TESTS.match(code) else code
            if not inside and not code.startswith(("static ", "using ")):
                declared = ""
        elif declared != "":
            declared += " " + code.strip()
        if declared != "":
            # What it has so far counts too: it may end in a raw string.
            source.own |= names_declared(declared)
            if re.search(r"[;{]", declared):
                declared = ""
    source.own -= WORDS_OF_THE_LANGUAGE
    source.words = set(WORD.findall(TEXT.sub('""', COMMENT.sub("", raw))))
    return source


def join(sources: list[Source], most: int) -> list[list[Source]]:
    """Each goes into the first group that it fits; the order of files decides, so it is the same
    everywhere."""
    groups: list[tuple[list[Source], set[str], set[str]]] = []
    for source in sources:
        for members, own, words in groups:
            fits = len(members) < most and not source.alone and not members[0].alone
            # Headers of another room may declare what this one has in another namespace.
            fits = fits and Path(members[0].path).parent == Path(source.path).parent
            if fits and not source.own & words and not own & source.words:
                members.append(source)
                own |= source.own
                words |= source.words
                break
        else:
            groups.append(([source], set(source.own), set(source.words)))
    return [members for members, _, _ in groups]


def text_of(group: list[Source], root: Path) -> str:
    includes = dict.fromkeys(name for source in group for name in source.includes)
    files = [Path(source.path).relative_to(root).as_posix() for source in group]
    return "".join(f"#include {name}\n" for name in [*includes, *(f'"{file}"' for file in files)])


def main(arguments: list[str]) -> int:
    root, folder, most = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    folder.mkdir(parents=True, exist_ok=True)
    for group in join([read(path) for path in arguments[3:]], most):
        if len(group) == 1:
            print(group[0].path)
            continue
        text = text_of(group, root)
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        to = folder / f"{Path(group[0].path).stem}_and_{len(group) - 1}_{name}.cc"
        if not to.exists():
            to.write_text(text, encoding="utf-8")
        print(to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
