"""The Python guide says the truth: every example on the page runs and prints what stands there."""

from __future__ import annotations

import doctest
import pathlib

import pytest

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "python.md"


def test_guide(ml_dtypes, torch):
    if not GUIDE.exists():
        pytest.skip("the tests run without the documentation beside them")
    # Fences go, line by line, so that a failure still names the line on the page.
    lines = ["" if line.startswith("```") else line for line in GUIDE.read_text().splitlines()]
    test = doctest.DocTestParser().get_doctest("\n".join(lines), {}, "python.md", str(GUIDE), 0)
    assert len(test.examples) > 40
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


def test_guide_names_every_public_function():
    if not GUIDE.exists():
        pytest.skip("the tests run without the documentation beside them")
    import octavo as ov

    text = GUIDE.read_text()
    for name in ov.__all__:
        if not name.startswith("_") and name not in ("Backend", "int32_to_bfloat16"):
            assert name in text, name
