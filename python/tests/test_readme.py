"""The README's Python runs, and prints the numbers that its comments name."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re

import pytest

README = pathlib.Path(__file__).parents[2] / "README.md"


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", text)]


def test_python_blocks():
    if not README.exists():
        pytest.skip("the tests run without the documentation beside them")
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.S | re.M)
    promised = [
        numbers(comment)
        for block in blocks
        for comment in re.findall(r"^print\(.*\)\s*# ([\d., -]+)$", block, re.M)
    ]
    assert blocks and promised
    printed = io.StringIO()
    namespace: dict[str, object] = {}
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), namespace)
    assert [numbers(line) for line in printed.getvalue().splitlines()] == promised
