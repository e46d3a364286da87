"""Messages of octavo quantize: the verdict, and the fix when it refuses."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.cli.test_plot import SVG
from tests.cli.test_quantize import measured, some_values


def test_verdict_of_tiny_values(octavo):
    """No smaller tile would help where the scale itself cannot be smaller."""
    octavo.save("x.npy", np.full((4, 32), 1e-45, np.float32))
    for recipe in ("fp8", "mxfp8", "nvfp4"):
        verdict = measured(octavo, "--recipe", recipe)["verdict"]
        assert "100 % of the values became zero: scales of" in verdict, recipe
        assert "multiply the array by a power of two" in verdict
    x = np.full((4, 32), 1e-6, np.float32)
    x[:, 0] = 1000
    octavo.save("x.npy", x)
    assert "beside larger ones" in measured(octavo, "--recipe", "fp8")["verdict"]


def test_verdict_of_few_parts(octavo):
    """One of two rows has half of the error by itself: that is no finding."""
    octavo.save("x.npy", np.random.default_rng(0).standard_normal((2, 64), np.float32))
    assert (
        "the error is spread evenly; the worst row"
        in measured(octavo, "--recipe", "fp8")["verdict"]
    )
    x = np.ones((8, 64), np.float32)
    x[5] += np.linspace(0, 1, 64, dtype=np.float32)
    octavo.save("x.npy", x)
    verdict = measured(octavo, "--recipe", "fp8-channel")["verdict"]
    assert verdict == "100 % of the squared error is in 1 of 8 tiles, the worst at [5, 0:64]"
    octavo.save("x.npy", np.float32([1.1]))
    verdict = measured(octavo, "--recipe", "mxfp8")["verdict"]
    assert verdict == "the error is that of rounding, all of it in one row"


def test_verdict_of_results_beyond_float32(octavo):
    octavo.save("x.npy", np.full((1, 32), 3.4e38, np.float32))
    verdict = measured(octavo, "--recipe", "mxfp8")["verdict"]
    assert "near the largest float32" in verdict and "float64" in verdict


def test_nan_advice_fits_the_arith(octavo):
    octavo.save("x.npy", np.float32([[1, np.nan]]))
    refused = octavo("quantize", "x.npy", "--recipe", "mxfp4", "--arith", "te")
    refused.refused(1, "--nan zero", "--arith te never poisons")
    assert "--non-finite" not in refused.err


def test_help_has_every_arith(octavo):
    out = octavo.good("quantize", "--help").out
    assert "modelopt, torchao_inference, modelopt_qtensor" in out


def test_outputs_are_checked_before_the_work(octavo):
    octavo.save("x.npy", some_values())
    for option, path, code, *words in (
        ("-o", "x.out", 2, "-o: got 'x.out'", "ends in .safetensors", "'x.safetensors'"),
        ("--plot", "x.png", 2, "--plot: got 'x.png'", "ends in .svg", "'x.svg'"),
        ("-o", "nope/x.safetensors", 1, "[quantize]", "nope/x.safetensors", "No such file"),
    ):
        result = octavo("quantize", "x.npy", "--recipe", "fp8", option, path)
        result.refused(code, *words)
        assert result.out == ""
    assert octavo.files() == {"x.npy"}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_integers_are_no_values(octavo, dtype):
    octavo.save("x.npy", np.arange(4).astype(dtype))
    result = octavo("quantize", "x.npy", "--recipe", "fp8")
    result.refused(2 if dtype != "int32" else 1, np.dtype(dtype).str, ".astype('float32')")
    assert ("--from bfloat16" in result.err) == (dtype == "int16")


def test_a_percentile_that_does_nothing_is_noted(octavo):
    octavo.save("x.npy", some_values())
    idle = octavo.good(
        "quantize", "x.npy", "--recipe", "mxfp8", "--scale-policy", "percentile:99.9"
    )
    assert "percentile 99.9 of a tile of 32 is the largest" in idle.err
    assert "at most 96.87" in idle.err
    busy = octavo.good(
        "quantize", "x.npy", "--recipe", "mxfp8", "--scale-policy", "percentile:96.87"
    )
    assert "note" not in busy.err


def test_picture_of_a_name_that_is_not_utf8(octavo):
    name = b"\xff\xed\xa0\x80<\x01>.npy"
    octavo.save("x.npy", some_values())
    (octavo.folder / "x.npy").rename(octavo.folder / os.fsdecode(name))
    octavo.good(
        "quantize", os.fsdecode(name), "--recipe", "fp8", "--plot", "p.svg", errors="replace"
    )
    title = ET.parse(octavo.folder / "p.svg").getroot().find(f"{SVG}title").text
    assert title.startswith("\ufffd\ufffd\ufffd\ufffd<\ufffd>.npy quantized to fp8")
