"""Texts from Debian's packages: python -m bench.quality.texts FOLDER

    apt-get install bible-kjv python3-doc anarchism fortunes dict-jargon

`gpl.txt`, `bible.txt` and `python.txt` are what models are measured on; `calibration.txt` is of no
family of these (prose, sayings, a dictionary of slang, a piece of each in turn, as one kind of text
tells GPTQ too little of the others); `training.txt` is what tests/peers/train_llama.py learns from:
the same families as the tests, other pieces, and everything else.
"""

from __future__ import annotations

import gzip
import html
import itertools
import pathlib
import re
import subprocess
import sys

PYTHON = pathlib.Path("/usr/share/doc/python3.11/html/_sources")
PROSE = pathlib.Path("/usr/share/doc/anarchism/html")
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
JARGON = pathlib.Path("/usr/share/dictd/jargon.dict.dz")
LICENCES = pathlib.Path("/usr/share/common-licenses")

TESTED = "tutorial"  # the part of Python's manual that is measured on, and never trained on
PIECE = 3000  # characters


def bible(verses: str) -> str:
    return subprocess.run(["bible", "-f", verses], capture_output=True, text=True).stdout


def of_pages(folder: pathlib.Path) -> str:
    out = []
    for page in sorted(folder.glob("*.html")):
        text = re.sub(r"(?s)<(script|style|head).*?</\1>", " ", page.read_text(errors="replace"))
        text = html.unescape(re.sub(r"<[^>]+>", " ", text))
        out.append(re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", text)).strip())
    return "\n\n".join(out)


def fortunes() -> str:
    files = [p for p in sorted(FORTUNES.iterdir()) if p.suffix == "" and p.is_file()]
    return "\n".join(p.read_text(errors="replace").replace("\n%\n", "\n\n") for p in files)


def jargon() -> str:
    return gzip.open(JARGON, "rt", errors="replace").read()


def manual(tested: bool) -> str:
    parts = [
        p.read_text() for p in sorted(PYTHON.rglob("*.txt")) if (p.parent.name == TESTED) == tested
    ]
    return "\n\n".join(parts)


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def in_turn(*texts: str, count: int) -> str:
    rows = itertools.islice(zip(*map(pieces, texts), strict=False), count)
    return "\n\n".join("\n\n".join(row) for row in rows)


def training() -> str:
    others = "\n\n".join(
        (LICENCES / name).read_text() for name in ("Apache-2.0", "MPL-2.0", "LGPL-2.1", "GFDL-1.3")
    )
    texts = [of_pages(PROSE), fortunes(), jargon(), bible("gen1:1-mal4:6"), manual(False), others]
    # No more than this of each, so that none drowns the rest.
    return "\n\n".join(text[:2_500_000] for text in texts)


def main(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "gpl": (LICENCES / "GPL-3").read_text(),
        "bible": bible("mat1:1-mat28:20"),
        "python": manual(True),
        "calibration": in_turn(of_pages(PROSE), fortunes(), jargon(), count=40),
        "training": training(),
    }
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
        print(f"{name}.txt: {len(text)} characters")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
