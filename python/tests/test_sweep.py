"""Sweeps of options, the choice of E4M3 or E5M2, and errors of any two arrays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import octavo as ov

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "cli"))
import tiny_model  # noqa: E402


@pytest.fixture
def x():
    return np.random.default_rng(5).standard_normal((64, 256)).astype(np.float32)


def test_a_sweep_of_an_array(x):
    seen = ov.sweep(x, {"recipe": ["mxfp8", "mxfp4"], "tile": [16, 32, 128]}, title="x")
    assert [tuple(p["settings"].values()) for p in seen.points] == [
        (recipe, str(tile)) for recipe in ("mxfp8", "mxfp4") for tile in (16, 32, 128)
    ]
    for point in seen.points:
        recipe, tile = point["settings"].values()
        q = ov.quantize(x, ov.preset(recipe).replace(tile=(1, int(tile))))
        assert point["bytes"] == q.nbytes
        assert point["sqnr"] == pytest.approx(ov.error(x, q)["sqnr"])
        assert point["seconds"] > 0
    assert json.loads(seen.json())["points"] == seen.points
    page = seen.html()
    assert page.startswith("<!DOCTYPE html>") and page.count("<svg") == 2
    assert repr(seen) == "Sweep('x', 6 settings)"


def test_a_sweep_of_a_checkpoint(tmp_path):
    model = tiny_model.llama(tmp_path / "model")
    seen = ov.sweep(model, {"recipe": ["fp8-channel", "int8-channel"]})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    for point in seen.points:
        name = point["settings"]["recipe"]
        report = ov.quantize_checkpoint(model, tmp_path / name, name)
        assert point["bytes"] == report.bytes_after
    held = ov.sweep(model, {"tile": [32, 64]}, recipe="mxfp8")
    assert "why_not" not in held.points[0] and "does not support" in held.points[1]["why_not"]


def test_tiles_of_checkpoints(tmp_path):
    model = tiny_model.llama(tmp_path / "model")
    ov.quantize_checkpoint(model, tmp_path / "out", "fp8-block", "octavo", tile=64)
    plan = ov.quantize_checkpoint(model, None, "mxfp4", "octavo", tile="1x16", dry_run=True)
    assert plan is not None
    with pytest.raises(RuntimeError, match="can hold no weight .* tile 1x64"):
        ov.quantize_checkpoint(model, tmp_path / "no", "mxfp8", tile=64)
    with pytest.raises(ValueError, match="1by64"):
        ov.quantize_checkpoint(model, tmp_path / "no", "mxfp8", tile="1by64")


@pytest.mark.parametrize(
    ("options", "more", "why"),
    [
        ({}, {"recipe": "mxfp8"}, "no options"),
        ({"tile": [16]}, {}, "no recipe"),
        ({"tiles": [16]}, {"recipe": "mxfp8"}, "expected one of"),
        ({"tile": [0]}, {"recipe": "mxfp8"}, "tile"),
        ({"tile": []}, {"recipe": "mxfp8"}, "no values"),
        ({"recipe": ["mxfp9"]}, {}, "preset"),
        ({"recipe": ["mxfp8"]}, {"recipe": "fp8"}, "twice"),
        ({"tile": list(range(1, 300))}, {"recipe": "mxfp8"}, "256"),
    ],
)
def test_sweeps_that_cannot_be(x, options, more, why):
    with pytest.raises(ValueError, match=why):
        ov.sweep(x, options, **more)


def test_errors_by_weights_need_weights(x):
    seen = ov.sweep(x, {"scale_policy": ["mse", "wmse"]}, recipe="nvfp4")
    assert "why_not" not in seen.points[0] or not seen.points[0]["why_not"]
    assert "an array does not say them" in seen.points[1]["why_not"]
    with pytest.raises(ValueError, match="choose with policy mse"):
        ov.choose_format(x, ov.preset("fp8").replace(policy="wmse"))


def test_threads_of_two_arrays(x):
    for threads in (-5, 1025):
        with pytest.raises(ValueError, match=f"got threads = {threads}; expected 0 to 1024"):
            ov.error(x, x, threads=threads)
    with pytest.raises(TypeError, match="threads"):
        ov.error(x, x, threads="all")


def test_what_has_a_graph_is_measured(x, torch):
    """A measure is a number: it has no gradient to lose."""
    values = torch.from_numpy(x).requires_grad_()
    q = ov.quantize(values.detach(), "mxfp8")
    assert ov.error(values, q) == ov.error(values.detach(), q)
    assert ov.error(values, values * 2)["relative_l2"] == 1.0
    assert ov.sweep(values, {"recipe": ["mxfp8"]}).points[0]["bits_per_value"] == 8.25
    assert ov.choose_format(values, "fp8").format.name in ("e4m3fn", "e5m2")
    with pytest.raises(RuntimeError, match="requires grad"):
        ov.quantize(values, "mxfp8")


def test_choose_format(x):
    assert ov.choose_format(x, "fp8:e5m2") == ov.preset("fp8")
    spread = np.ldexp(np.float32(1.75), -(np.arange(256) % 29)).reshape(1, 256).astype(np.float32)
    scaling = ov.preset("fp8").replace(scale="pow2")
    assert ov.choose_format(spread, scaling).format == ov.format("e5m2")


def test_format_auto_of_a_checkpoint(tmp_path):
    model = tiny_model.llama(tmp_path / "model")
    out = tmp_path / "out"
    ov.quantize_checkpoint(model, out, "fp8", "octavo", format="auto")
    with pytest.raises(RuntimeError, match="holds FP8 of e4m3fn alone"):
        ov.quantize_checkpoint(model, tmp_path / "no", "fp8-channel", format="auto")
    with pytest.raises(ValueError, match="nvfp4"):
        ov.quantize_checkpoint(model, tmp_path / "no", "nvfp4", "octavo", format="auto")


def test_errors_of_two_arrays(x, torch):
    y = x + np.float32(0.5)
    found = ov.error(x, y)
    assert found["mse"] == pytest.approx(0.25, rel=1e-6)
    assert found["elements"] == x.size
    assert ov.error(x, x)["sqnr"] == np.inf
    half = torch.from_numpy(x).to(torch.bfloat16)
    difference = np.linalg.norm(half.double().numpy() - x) / np.linalg.norm(x.astype(np.float64))
    assert ov.error(x, half)["relative_l2"] == pytest.approx(difference, rel=1e-12)
    assert ov.error(x.T, half.T)["relative_l2"] == pytest.approx(difference, rel=1e-12)
    with pytest.raises(ValueError, match="shapes"):
        ov.error(x, x[:1])
    with pytest.raises(ValueError, match="rows with two arrays"):
        ov.error(x, y, rows=True)
