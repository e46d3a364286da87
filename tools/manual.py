"""Makes the manual page docs/man/octavo.1 from what the program says with --help.

    manual.py PROGRAM            writes it
    manual.py PROGRAM --check    exit status 1 if it is not what the program says

Help has one form (cli/text/help_format.cc): headings that end in a colon, names from column 2,
descriptions from column 32.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "man" / "octavo.1"
COLUMN = 32
TAIL = """.SH ENVIRONMENT
.TP
.B OCTAVO_BACKEND
The backend to use, by the name that \\fBoctavo doctor\\fR gives it.
.TP
.B OCTAVO_THREADS
The most threads that a command uses.
.SH EXIT STATUS
0 good, 1 failed, 2 wrong usage, 3 a quality limit that was set was missed.
.SH SEE ALSO
The guide and the numerics of octavo, in its folder docs.
"""


def help_of(program: str, *command: str) -> list[str]:
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def entries(lines: list[str]) -> list[tuple[str, str]]:
    """Names with their descriptions, of the lines below a heading."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(" " * COLUMN):
            name, what = found.pop()
            found.append((name, f"{what} {line.strip()}".strip()))
        elif len(line) > COLUMN and line[COLUMN - 1] == " ":
            found.append((line[:COLUMN].strip(), line[COLUMN:].strip()))
        else:
            found.append((line.strip(), ""))
    return found


def sections(lines: list[str]) -> tuple[str, dict[str, list[str]], list[str]]:
    """The description, the lines below each heading, and what follows the last of them."""
    usage = next(i for i, line in enumerate(lines) if line.startswith("Usage:"))
    headed: dict[str, list[str]] = {}
    at = usage + 1
    while at < len(lines):
        heading = lines[at]
        if not heading:
            at += 1
        elif re.fullmatch(r"[A-Z][A-Za-z ]*:", heading) and heading != "Examples:":
            at += 1
            below = headed.setdefault(heading[:-1], [])
            while at < len(lines) and lines[at].startswith("  "):
                below.append(lines[at])
                at += 1
        else:
            break
    return lines[usage], headed, lines[at:]


def listed(entries_: list[tuple[str, str]]) -> str:
    return "".join(f".TP\n.B {roff(name)}\n{roff(what)}\n" for name, what in entries_)


def page(program: str) -> str:
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    lines = help_of(program)
    usage, headed, rest = sections(lines)
    commands = entries(headed.pop("Subcommands"))
    out = '.\\" Made by tools/manual.py from the help of the program, never by hand.\n'
    out += f'.TH OCTAVO 1 "" "{version.stdout.strip()}" "octavo"\n.SH NAME\n'
    out += "octavo \\- floating point of eight bits and fewer: convert, quantize, verify, measure\n"
    out += (
        f".SH SYNOPSIS\n{roff(usage.removeprefix('Usage: '))}\n.SH DESCRIPTION\n{roff(lines[0])}\n"
    )
    out += ".SH COMMANDS\n" + listed(commands)
    for heading, below in headed.items():
        out += f".SH {heading.upper()}\n" + listed(entries(below))
    out += ".SH EXAMPLES\n.nf\n" + "".join(roff(line) + "\n" for line in rest) + ".fi\n"
    for name, what in commands:
        usage, headed, rest = sections(help_of(program, name))
        out += f'.SH "OCTAVO {name.upper()}"\n{roff(what)}\n.PP\n.B {roff(usage)}\n'
        for heading, below in headed.items():
            out += f".SS {heading}\n" + listed(entries(below))
        if rest:
            out += ".PP\n.nf\n" + "".join(roff(line) + "\n" for line in rest) + ".fi\n"
    return out + TAIL


def main() -> int:
    program = sys.argv[1]
    made = page(program)
    if "--check" not in sys.argv:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(made)
        return 0
    if not PAGE.exists() or PAGE.read_text() != made:
        print(f"{PAGE} is not what {program} says; make it again: tools/manual.py {program}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
