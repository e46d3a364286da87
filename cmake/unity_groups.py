"""Writes sources that include several others, so that headers are parsed once for all of them.

    unity_groups.py ROOT FOLDER MOST FILE...

FOLDER receives files named for their text, so that build trees may share it and ccache knows their
objects; what is to be compiled is printed, a path a line. A name that a source declares for itself
(in an anonymous namespace, static, by `using`, or as a macro) must mean in a joined source what it
means alone. So one that another source of the group mentions gets a name of its own there, by a
macro around its source; where that could change what something else means (`not_to_rename`), the
two are not joined. Includes come first, before any of those names. Standard library only.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
RAW_TEXT = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
ATTRIBUTE = re.compile(r"^\[\[.*?\]\]\s*")
INCLUDE = re.compile(r'#\s*include\s*([<"][^>"]+[>"])')
# What compilers add: __global__, __launch_bounds__(kThreads, 2).
RESERVED = re.compile(r"\b__\w+__(?:\((?:[^()]|\([^()]*\))*\))?\s*")
OPENS, CLOSES = re.compile(r"namespace\s*\{"), re.compile(r"\}\s*//\s*namespace\s*$")
TYPE = re.compile(r"(?:struct|class|union|enum class|enum)\s+(?:alignas\([^)]*\)\s*)?(\w+)")
ALIAS = re.compile(r"using\s+(?:namespace\s+)?(?:.*?)(\w+)\s*(?:=.*|;)$")
# A variable, or several: no parenthesis before its first = or ;.
VARIABLE = re.compile(r"[^(=]*[={;\[]")
# What stands between a name and the next one.
INITIAL_VALUE = re.compile(r"=[^,]*")
WITHIN = re.compile(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>")
FUNCTION = re.compile(r"(\w+)\s*\(")
# What a compiler is told about the rest of a file would be told about the next one.
ALONE = re.compile(r"#\s*pragma\s+GCC|__attribute__\(\(constructor")
TESTS = re.compile(r"(?:TYPED_)?TEST(?:_[FP])?\(|(?:INSTANTIATE|TYPED|REGISTER)_\w+\(")
# A member, or a name of another namespace; a part of a test's name.
OF_ANOTHER = re.compile(r"(?:\.|->|::)\s*(\w+)")
NAMES_OF_TESTS = re.compile(rf"^(?:{TESTS.pattern})[^{{;]*", re.M)
# What opens a namespace, or only says that there is such a class.
NO_DEFINITION = re.compile(r"namespace\b|(?:class|struct|enum class)\s+\w+;")
WORDS_OF_THE_LANGUAGE = frozenset(
    WORD.findall("""
    alignas auto bool char class const constexpr default double else false float for if inline
    int long namespace nullptr operator return short signed sizeof static static_assert std
    string struct switch template true typename unsigned using void while""")
)


@dataclass
class Source:
    path: str
    own: set[str] = field(default_factory=set)  # names that it declares for itself
    words: set[str] = field(default_factory=set)
    renamed: set[str] = field(default_factory=set)  # of its own, those that may get another name
    includes: list[str] = field(default_factory=list)  # those under no #if
    alone: bool = False
    headers: set[str] = field(default_factory=set)  # of this project, that it reaches


def names_declared(line: str) -> set[str]:
    """By a declaration up to its ; or {, as one line."""
    line = RESERVED.sub("", line)
    if found := TYPE.match(line):
        return {found[1]}
    if line.startswith("using "):
        found = ALIAS.match(line)
        return {found[1]} if found else set()
    if line.startswith("template"):
        return set()  # the next line has the name
    if VARIABLE.match(line):
        return names_of_variables(line)
    found = FUNCTION.search(line)
    # Neither: a return type with its function's name on the next line.
    return {found[1]} if found else set(WORD.findall(line))


def names_of_variables(line: str) -> set[str]:
    """The last word of each declarator, without what it is initialized with."""
    while (shorter := WITHIN.sub("", line)) != line:
        line = shorter
    declarators = INITIAL_VALUE.sub("", re.split(r"[{;]", line)[0]).split(",")
    return {words[-1] for part in declarators if (words := WORD.findall(part))}


def read(path: str) -> Source:
    raw = RAW_TEXT.sub('""', Path(path).read_text(encoding="utf-8"))
    source = Source(path, alone=ALONE.search(raw) is not None)
    inside, defines, depth = False, False, 0
    macros: set[str] = set()
    includes_inside = False  # where names of its own are others for a header too
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
            else:
                includes_inside = True
            continue
        if code.startswith("#"):
            depth += len(re.findall(r"^#\s*if", code)) - len(re.findall(r"^#\s*endif", code))
            if found := re.match(r"#\s*define\s+(\w+)", code):
                source.own.add(found[1])
                macros.add(found[1])
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
            source.own |= names_declared(declared)
            if re.search(r"[;{]", declared):
                declared = ""
    source.own -= WORDS_OF_THE_LANGUAGE
    code = TEXT.sub('""', COMMENT.sub("", raw))
    source.words = set(WORD.findall(code))
    if not includes_inside:
        source.renamed = source.own - macros - not_to_rename(code)
    return source


def not_to_rename(code: str) -> set[str]:
    """Names that stand for something else too, somewhere in this source, or that people see."""
    names = set(OF_ANOTHER.findall(code))
    for test in NAMES_OF_TESTS.findall(code):
        names |= set(WORD.findall(test))
    return names


@dataclass
class Header:
    words: set[str]
    declares: set[str]  # at the level of a namespace
    includes: list[str]


class Headers:
    """Those of this project, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, Header] = {}

    def __getitem__(self, name: str) -> Header:
        if name not in self._known:
            try:
                raw = (self._root / name).read_text(encoding="utf-8")
            except OSError:  # of another project
                raw = ""
            code = COMMENT.sub("", TEXT.sub('""', raw))
            declares: set[str] = set()
            for line in code.splitlines():
                line = ATTRIBUTE.sub("", line)
                if line != "" and line[0] not in " }#)/" and not NO_DEFINITION.match(line):
                    declares |= names_declared(line)
            included = [found[1].strip('"<>') for found in INCLUDE.finditer(raw)]
            self._known[name] = Header(set(WORD.findall(code)), declares, included)
        return self._known[name]

    def declared_in(self, names: set[str]) -> set[str]:
        return set().union(*(self[name].declares for name in names))

    def reached_by(self, source: Source) -> set[str]:
        reached: set[str] = set()
        left = [name.strip('"<>') for name in source.includes]
        while left:
            name = left.pop()
            if name not in reached:
                reached.add(name)
                left += self[name].includes
        return reached


@dataclass
class Group:
    members: list[Source] = field(default_factory=list)
    own: set[str] = field(default_factory=set)  # of members, without those that get another name
    words: set[str] = field(default_factory=set)
    headers: set[str] = field(default_factory=set)


def names_change(source: Source, headers: set[str], known: Headers) -> bool:
    """May a name of the source mean something else where these headers are included too? One may
    declare it as well, in another namespace that the source sees, or in a nearer one."""
    from_elsewhere = known.declared_in(source.headers) & source.words
    names = from_elsewhere | (source.own - source.renamed)
    return bool(names & known.declared_in(headers - source.headers))


def fits(source: Source, group: Group, most: int, known: Headers) -> bool:
    first = group.members[0]
    if len(group.members) == most or source.alone or first.alone:
        return False
    if Path(first.path).suffix != Path(source.path).suffix:
        return False
    if (source.own - source.renamed) & group.words or group.own & (source.words - source.renamed):
        return False
    both = group.headers | source.headers
    return not any(names_change(one, both, known) for one in [*group.members, source])


def join(sources: list[Source], most: int, known: Headers) -> list[list[Source]]:
    """Each goes into the first group that it fits; the order of files decides, so it is the same
    everywhere."""
    groups: list[Group] = []
    for source in sources:
        group = next((group for group in groups if fits(source, group, most, known)), None)
        if group is None:
            group = Group()
            groups.append(group)
        group.members.append(source)
        group.own |= source.own - source.renamed
        group.words |= source.words - source.renamed
        group.headers |= source.headers
    return [group.members for group in groups]


def text_of(group: list[Source], root: Path, known: Headers) -> str:
    headers = set().union(*(source.headers for source in group))
    lines = [
        f"#include {name}"
        for name in dict.fromkeys(name for source in group for name in source.includes)
    ]
    for number, source in enumerate(group):
        others = set().union(*(other.words for other in group if other is not source))
        others |= known.declared_in(headers - source.headers)
        names = sorted(source.renamed & others)
        lines += [f"#define {name} {name}_{number}" for name in names]
        lines.append(f'#include "{Path(source.path).relative_to(root).as_posix()}"')
        lines += [f"#undef {name}" for name in names]
    return "".join(f"{line}\n" for line in lines)


def main(arguments: list[str]) -> int:
    root, folder, most = Path(arguments[0]), Path(arguments[1]), int(arguments[2])
    folder.mkdir(parents=True, exist_ok=True)
    sources, known = [read(path) for path in arguments[3:]], Headers(root)
    for source in sources:
        source.headers = known.reached_by(source)
        for name in source.headers:  # an overload of what a header declares needs the same name
            source.renamed -= known[name].words
    for group in join(sources, most, known):
        if len(group) == 1:
            print(group[0].path)
            continue
        text = text_of(group, root, known)
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        first = Path(group[0].path)
        to = folder / f"{first.stem}_and_{len(group) - 1}_{name}{first.suffix}"
        if not to.exists():
            to.write_text(text, encoding="utf-8")
        print(to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
