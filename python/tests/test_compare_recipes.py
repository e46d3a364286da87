"""Recipes side by side from Python: what the command line has, and nothing written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import octavo as ov

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402


@pytest.fixture
def model(tmp_path):
    return tiny_model.llama(tmp_path / "model")


def test_numbers_are_those_of_quantizing(model, tmp_path):
    calls = []
    seen = ov.compare_recipes(
        model, ["fp8-channel", "mxfp4"], progress=lambda *a: calls.append(a[0])
    )
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert calls == sorted(calls) and calls
    for outcome in seen.recipes:
        report = ov.quantize_checkpoint(model, tmp_path / outcome["recipe"], outcome["recipe"])
        sqnr = {t["name"]: t["metrics"]["sqnr"] for t in report.tensors if "metrics" in t}
        assert {t["name"]: t["sqnr"] for t in outcome["tensors"]} == sqnr
    assert json.loads(seen.json())["recipes"] == seen.recipes
    assert seen.html().startswith("<!DOCTYPE html>")
    assert repr(seen) == "RecipeComparison('model' for compressed-tensors: fp8-channel, mxfp4)"
    with pytest.raises(AttributeError, match="has no 'tensors'"):
        _ = seen.tensors


def test_mistakes(model):
    with pytest.raises(ValueError, match="no recipes to compare"):
        ov.compare_recipes(model, [])
    with pytest.raises(ValueError, match="mxpf8"):
        ov.compare_recipes(model, ["mxpf8"])
    with pytest.raises(TypeError, match="recipes"):
        ov.compare_recipes(model, [1])
    seen = ov.compare_recipes(model, ["nvfp4", "fp8-block"], "deepseek")
    assert "deepseek" in seen.recipes[0]["why_not"] and "why_not" not in seen.recipes[1]
