"""Command lines and what they print, as data: golden/cases.tsv names them, golden/<name>.out and
<name>.err hold the output. After a change that is meant, run this with OCTAVO_UPDATE_GOLDEN=1 and
read the difference."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parent / "golden"


def cases() -> list[tuple[str, int, str]]:
    lines = (GOLDEN / "cases.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return [(name, int(code), arguments) for name, code, arguments in rows]


def compare(path: Path, got: str) -> None:
    if os.environ.get("OCTAVO_UPDATE_GOLDEN"):
        if got:
            path.write_text(got)
        else:
            path.unlink(missing_ok=True)
    assert got == (path.read_text() if path.exists() else "")


@pytest.mark.parametrize(("name", "code", "arguments"), cases(), ids=[row[0] for row in cases()])
def test_golden(octavo, name, code, arguments):
    octavo.save("x.npy", np.float32([[0, 1, -2.5, 300], [1e-9, 5000, -0.3, np.inf]]))
    octavo.save("nan.npy", np.float32([1, np.nan]))
    octavo.save("y.npy", np.float32([[6, -2.5, 0.2, 0], [1, 4, 100, 70]]))
    octavo.save("codes.npy", np.uint8([[0x00, 0x38, 0x7E], [0x01, 0xFE, 0x7F]]))
    octavo.save("big.npy", np.zeros(3, ">f4"))
    result = octavo(*shlex.split(arguments))
    compare(GOLDEN / f"{name}.out", result.out)
    compare(GOLDEN / f"{name}.err", result.err)
    assert result.code == code


def test_no_golden_file_is_forgotten():
    known = {row[0] for row in cases()}
    assert {path.stem for path in GOLDEN.iterdir() if path.suffix in (".out", ".err")} <= known
