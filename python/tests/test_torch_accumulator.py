"""Accumulators of the products of layers; use_split_accumulator for that of the tensor cores."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MMParams,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)

# Sums of one sign are the ones that a short accumulator loses.
SIZE = 512


def results(accumulator, recipe):
    torch.manual_seed(0)
    linear = te.Linear(SIZE, SIZE, device="cpu", accumulator=accumulator)
    with torch.no_grad():
        linear.weight.uniform_(0, 1)
    x, dy = torch.rand(SIZE, SIZE, requires_grad=True), torch.rand(SIZE, SIZE)
    with te.autocast(recipe=recipe):
        y = linear(x)
    y.backward(dy)
    return y.detach(), x.grad, linear.weight.grad


def current(**split):
    return Float8CurrentScaling(
        **{
            f"fp8_gemm_{name}": MMParams(use_split_accumulator=value)
            for name, value in split.items()
        }
    )


@pytest.mark.parametrize("product", ["fprop", "dgrad", "wgrad"])
def test_each_product_hears_its_own(product):
    names = ("fprop", "dgrad", "wgrad")
    every = results("hopper_fp8", current(fprop=True, dgrad=True, wgrad=True))
    one_not = results("hopper_fp8", current(**{name: name != product for name in names}))
    for name, a, b in zip(names, every, one_not, strict=True):
        assert torch.equal(a, b) == (name != product), name
    # Without promotion sums of one sign come out too small.
    at = names.index(product)
    assert one_not[at].mean() < every[at].mean()


def test_bits_are_those_of_gemm_by_hand():
    x = torch.rand(8, SIZE)
    for split in (True, False):
        linear = te.Linear(SIZE, 32, bias=False, device="cpu", accumulator="hopper_fp8")
        with te.autocast(recipe=current(fprop=split)):
            y = linear(x).detach()
        make = qs.Float8CurrentScalingQuantizer
        want = ov.gemm(
            make()(x),
            make()(linear.weight.detach()),
            accumulator="hopper_fp8",
            promote_every=128 if split else 0,
        )
        assert torch.equal(y, want)


def test_delayed_scaling_has_transformer_engine_s_choice():
    """Not in fprop, but in both products of backward."""
    torch.manual_seed(0)
    linear = te.Linear(SIZE, 32, bias=False, device="cpu", accumulator="hopper_fp8")
    x = torch.rand(8, SIZE)
    with te.autocast(recipe=DelayedScaling()):
        y = linear(x).detach()

    def codes(values):
        return qs.Float8Quantizer(torch.ones(1), torch.zeros(1))(values)

    want = ov.gemm(
        codes(x), codes(linear.weight.detach()), accumulator="hopper_fp8", promote_every=0
    )
    assert torch.equal(y, want)


def test_sums_in_float32_have_no_use_for_it():
    split = dict.fromkeys(("fprop", "dgrad", "wgrad"), True)
    never = dict.fromkeys(split, False)
    for a, b in zip(
        results("float32", current(**split)), results("float32", current(**never)), strict=True
    ):
        assert torch.equal(a, b)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="accumulator = 'float8'"):
        te.Linear(32, 32, device="cpu", accumulator="float8")
    linear = te.Linear(32, 32, device="cpu", accumulator="hopper_fp8")
    with te.autocast(recipe=NVFP4BlockScaling()), pytest.raises(RuntimeError, match="e2m1fn"):
        linear(torch.randn(4, 32))
    with te.autocast(recipe=Float8CurrentScaling()), pytest.raises(TypeError, match="float64"):
        linear(torch.randn(4, 32, dtype=torch.float64))
    with pytest.raises(ValueError, match="split"):
        Float8BlockScaling(fp8_gemm_wgrad=MMParams(False))
    # Values are not summed that way.
    x = torch.randn(4, 32)
    other = te.Linear(32, 32, device="cpu")
    other.load_state_dict(linear.state_dict())
    assert torch.equal(linear(x), other(x))


def test_it_goes_along_with_a_copy():
    import copy
    import pickle

    linear = te.Linear(SIZE, 32, device="cpu", accumulator="hopper_fp8")
    x = torch.rand(8, SIZE)
    with te.autocast(recipe=current(fprop=False)):
        y = linear(x)
        for other in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
            assert torch.equal(other(x), y)


RECIPES = {
    "delayed": DelayedScaling,
    "current": Float8CurrentScaling,
    "block": Float8BlockScaling,
    "mxfp8": MXFP8BlockScaling,
}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_a_recipe_names_the_accumulator_of_its_layers(name, sums):
    """All three products, bit for bit those of layers that name it themselves."""
    by_recipe = results("native", RECIPES[name](accumulator=sums))
    by_layer = results(sums, RECIPES[name]())
    plain = results("native", RECIPES[name]())
    for product, got, want, native in zip(
        ("fprop", "dgrad", "wgrad"), by_recipe, by_layer, plain, strict=True
    ):
        assert torch.equal(got, want), product
        assert torch.equal(got, native) == (sums == "float32"), product


def test_the_layer_s_own_goes_before_the_recipe_s():
    half = MXFP8BlockScaling(accumulator="float16")
    for got, want in zip(
        results("float32", half), results("native", MXFP8BlockScaling()), strict=True
    ):
        assert torch.equal(got, want)


def test_half_precision_by_hand_and_within_its_bound():
    """docs/numerics/gemm.md: (n + 2) v of the sum of magnitudes in runs of n, and roundings of
    float32. All operands are e4m3 between 2^-5 and 1, of which nothing is subnormal in float16."""
    torch.manual_seed(0)
    linear = te.Linear(SIZE, 96, bias=False, device="cpu")
    with torch.no_grad():
        linear.weight.uniform_(0.1, 1)
    x = torch.rand(48, SIZE) + 0.1
    for recipe, make, run in (
        (MXFP8BlockScaling(accumulator="float16"), qs.MXFP8Quantizer, 32),
        (Float8CurrentScaling(accumulator="float16"), qs.Float8CurrentScalingQuantizer, 128),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the change of recipe
            with te.autocast(recipe=recipe):
                y = linear(x).detach()
        a, b = make()(x), make()(linear.weight.detach())
        assert torch.equal(y, ov.gemm(a, b, accumulator="float16"))
        a, b = (ov.dequantize(one, "float64") for one in (a, b))
        exact, size = a @ b.T, a.abs() @ b.abs().T
        in_half = (run + 2) * 2**-11
        bound = in_half / (1 - in_half) * size + (SIZE + 9) * 2**-24 * 2 * size
        off = (y.double() - exact).abs()
        assert (off <= bound).all()
        assert off.max() > 2**-20 * size.max()  # more than float32 would be off by


def test_what_a_recipe_s_accumulator_may_be():
    assert repr(MXFP8BlockScaling()) == "recipe_type=MXFP8BlockScaling, margin=0, format=E4M3"
    assert repr(MXFP8BlockScaling(accumulator="float16")).endswith(", accumulator=float16")
    assert MXFP8BlockScaling(accumulator="native") == MXFP8BlockScaling()
    with pytest.raises(
        ValueError, match=r"\[MXFP8BlockScaling\] got accumulator = 'f16'; expected one of native"
    ):
        MXFP8BlockScaling(accumulator="f16")
    with pytest.raises(ValueError, match="got accumulator = 'float64'; expected one of native"):
        DelayedScaling(accumulator="float64")
    with pytest.raises(ValueError, match="got accumulator = hopper_fp8"):
        NVFP4BlockScaling(accumulator="hopper_fp8")
    with pytest.raises(TypeError, match="got accumulator = None; expected a text"):
        Float8CurrentScaling(accumulator=None)
    recipe = MXFP8BlockScaling()
    recipe.accumulator = "float16"
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=recipe), pytest.raises(TypeError, match="float16 with float64"):
        linear(torch.randn(4, 32, dtype=torch.float64))


def test_another_accumulator_is_a_change_of_recipe():
    linear, x = te.Linear(32, 32, device="cpu"), torch.randn(4, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        linear(x)
    with (
        te.autocast(recipe=MXFP8BlockScaling(accumulator="float16")),
        pytest.warns(UserWarning, match=r"to \(.*accumulator=float16\)"),
    ):
        linear(x)


def test_the_first_step_of_delayed_scaling_has_gradients():
    """Scales are 1, and gradients of usual size small codes of e5m2."""

    def gradients(accumulator):
        torch.manual_seed(0)
        linear = te.Linear(256, 256, device="cpu")
        x = torch.randn(128, 256, requires_grad=True)
        with te.autocast(recipe=DelayedScaling(accumulator=accumulator)):
            y = linear(x)
        y.backward(torch.randn(128, 256) * 1e-3)
        return x.grad, linear.weight.grad

    for got, wanted in zip(gradients("float16"), gradients("float32"), strict=True):
        assert torch.linalg.norm(got - wanted) < 3e-3 * torch.linalg.norm(wanted)
