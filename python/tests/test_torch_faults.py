"""NaN and Inf in what a layer is given: under every recipe a NaN is seen in what it touches."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)

RECIPES = {
    "delayed": DelayedScaling(),
    "current": Float8CurrentScaling(),
    "block": Float8BlockScaling(),
    "mxfp8": MXFP8BlockScaling(),
    "nvfp4": NVFP4BlockScaling(),
    "nvfp4_plain": NVFP4BlockScaling(disable_rht=True, disable_2d_quantization=True),
}
ROWS, IN, OUT = 32, 64, 48
AT = (3, 5)


def results(recipe, where, fault):
    """y, dx and dw with a fault at one place of x, w or dy."""
    torch.manual_seed(0)
    linear = te.Linear(IN, OUT, device="cpu")
    given = {"x": torch.randn(ROWS, IN), "w": linear.weight.data, "dy": torch.randn(ROWS, OUT)}
    given[where][AT] = fault
    x = given["x"].requires_grad_()
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.backward(given["dy"])
    return {"y": y.detach(), "dx": x.grad, "dw": linear.weight.grad}


def touched(where):
    """Which elements a value at AT is a summand of."""
    row, col = AT
    lines = {
        "x": {"y": (row, slice(None)), "dw": (slice(None), col)},
        "w": {"y": (slice(None), row), "dx": (slice(None), col)},
        "dy": {"dx": (row, slice(None)), "dw": (col, slice(None))},
    }
    return lines[where]


@pytest.mark.parametrize("where", ["x", "w", "dy"])
@pytest.mark.parametrize("name", RECIPES)
def test_nan_shows_in_all_that_it_touches(name, where):
    found = results(RECIPES[name], where, float("nan"))
    for result, line in touched(where).items():
        assert found[result][line].isnan().all(), result


@pytest.mark.parametrize("where", ["x", "w", "dy"])
@pytest.mark.parametrize("name", RECIPES)
def test_nan_stays_where_it_is(name, where):
    """In FP8 in its rows and columns; in FP4 in those of its tile, 16 long or 16 x 16."""
    found = results(RECIPES[name], where, float("nan"))
    most = {"y": ROWS * OUT, "dx": ROWS * IN, "dw": OUT * IN}
    for result, tensor in found.items():
        line = touched(where).get(result)
        lines = 0 if line is None else tensor[line].numel()
        allowed = 16 * lines if name.startswith("nvfp4") else lines
        assert tensor.isnan().sum() <= allowed < most[result], result


@pytest.mark.parametrize("where", ["x", "w", "dy"])
def test_inf_poisons_its_tile_in_fp4(where):
    found = results(RECIPES["nvfp4"], where, float("inf"))
    for result, line in touched(where).items():
        assert found[result][line].isnan().all(), result


@pytest.mark.parametrize("name", ["delayed", "current", "block"])
def test_inf_saturates_in_fp8(name):
    """As Transformer Engine has it: Inf becomes the largest value, and a scale stays 1."""
    found = results(RECIPES[name], "x", float("inf"))
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_inf_shows_under_mxfp8():
    """448 times the largest e8m0 scale, 2^127, is Inf again."""
    found = results(RECIPES["mxfp8"], "x", float("inf"))
    assert not found["y"][AT[0]].isfinite().any()


def test_a_tensor_shows_what_is_wrong_with_it():
    x = torch.randn(16, 32)
    x[3, 5] = float("nan")
    made = te.NVFP4Quantizer()(x)
    values = made.dequantize()
    assert values[3, :16].isnan().all() and values.isnan().sum() == 16
    assert (made._rowwise_scale_inv == 0x7F).sum() == 1  # the NaN of e4m3
