"""use_split_accumulator, where sums are kept as an FP8 tensor core keeps them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

import octavo.torch as te  # noqa: E402

import octavo as ov  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import (  # noqa: E402
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MMParams,
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
