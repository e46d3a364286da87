"""Batches without rows, as experts get where no token goes to them: results and gradients of the
right shape everywhere, and no state changes."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov
from octavo import quantizers as qs

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
    "none": None,
    "delayed": DelayedScaling(),
    "current": Float8CurrentScaling(),
    "block": Float8BlockScaling(),
    "mxfp8": MXFP8BlockScaling(),
    "nvfp4": NVFP4BlockScaling(),
    "high_precision": MXFP8BlockScaling(backward_override="high_precision"),
    "dequantized": MXFP8BlockScaling(backward_override="dequantized"),
}


def in_scope(call, recipe):
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        return call()


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("shape", [(0, 32), (3, 0, 32), (0, 5, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RECIPES)
def test_linear(name, dtype, shape, codes):
    recipe = RECIPES[name]
    with te.quantized_model_init(enabled=codes and recipe is not None, recipe=recipe):
        linear = te.Linear(32, 16, device="cpu")
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    y = in_scope(lambda: linear(x), recipe)
    assert y.shape == (*shape[:-1], 16) and y.dtype == dtype
    y.sum().backward()
    assert x.grad.shape == shape and x.grad.dtype == dtype
    for gradient, like in ((linear.weight.grad, linear.weight), (linear.bias.grad, linear.bias)):
        assert gradient.shape == like.shape and not gradient.any()


def steps(recipe, batches):
    """The output of the last of some steps with so many rows, and the state after them."""
    torch.manual_seed(0)
    linear = te.Linear(32, 16, device="cpu")
    x = torch.randn(8, 32)
    for rows in batches:
        y = in_scope(lambda rows=rows: linear(x[:rows]), recipe)
        y.sum().backward()
    return y.detach(), linear.weight.grad, linear.state_dict()


@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"nvfp4"}))
def test_an_empty_batch_changes_no_later_one(name):
    """Scales of x and dy are as if the step had not been. (NVFP4 draws anew in each backward.)"""
    want, got = steps(RECIPES[name], (8, 8)), steps(RECIPES[name], (8, 0, 8))
    assert torch.equal(want[0], got[0]) and torch.equal(want[1], got[1])
    for key in want[2]:
        if key.endswith("scale"):
            assert torch.equal(want[2][key], got[2][key]), key


FP8 = {
    "none": None,
    "delayed": DelayedScaling(fp8_dpa=True),
    "current": Float8CurrentScaling(fp8_dpa=True),
    "mxfp8": MXFP8BlockScaling(fp8_dpa=True),
    "mxfp8_mha": MXFP8BlockScaling(fp8_mha=True),
}


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize(
    "queries, keys, batch", [(0, 0, 2), (0, 3, 2), (3, 0, 2), (3, 3, 0), (0, 0, 0)]
)
@pytest.mark.parametrize("mask", ["no_mask", "causal"])
def test_dot_product_attention(name, queries, keys, batch, mask):
    attend = te.DotProductAttention(2, 32, attn_mask_type=mask)
    q = torch.randn(queries, batch, 2, 32, requires_grad=True)
    k, v = (torch.randn(keys, batch, 2, 32, requires_grad=True) for _ in range(2))
    y = in_scope(lambda: attend(q, k, v), FP8[name])
    assert y.shape == (queries, batch, 64)
    values = y.dequantize() if isinstance(y, te.QuantizedTensor) else y
    if keys == 0:
        assert not values.any()  # a row that sees nothing is zeros
    y.sum().backward()
    for x in (q, k, v):
        assert x.grad.shape == x.shape and not (x.grad.any() and 0 in (queries, keys))


@pytest.mark.parametrize(
    "precision", ["auto", "exact", "f32", "bf16", "f16", "strict", "fast", "balanced"]
)
@pytest.mark.parametrize("queries, keys, batch", [(0, 0, 2), (0, 3, 2), (3, 0, 2), (3, 3, 0)])
def test_scaled_dot_product_attention(precision, queries, keys, batch):
    q = torch.randn(batch, 2, queries, 32, requires_grad=True)
    k, v = (torch.randn(batch, 2, keys, 32, requires_grad=True) for _ in range(2))
    y = te.scaled_dot_product_attention(q, k, v, precision=precision)
    assert y.shape == q.shape
    if keys == 0:
        assert not y.any()
    y.sum().backward()
    assert all(x.grad.shape == x.shape for x in (q, k, v))


@pytest.mark.parametrize("name", ov.preset_names())
@pytest.mark.parametrize("shape", [(0, 32), (4, 0), (0, 0), (0,), (2, 0, 32)])
def test_quantize_and_back(name, shape):
    x = np.zeros(shape, np.float32)
    q = ov.quantize(x, name)
    assert q.shape == shape and q.dequantize().shape == shape
    assert ov.requantize(q, "mxfp8").shape == shape


@pytest.mark.parametrize("name", [None, *ov.preset_names()])
def test_gemm(name):
    def operand(*shape):
        x = np.ones(shape, np.float32)
        return x if name is None else ov.quantize(x, name)

    assert ov.gemm(operand(0, 32), operand(8, 32)).shape == (0, 8)
    assert ov.gemm(operand(4, 32), operand(0, 32)).shape == (4, 0)
    nothing = ov.gemm(operand(4, 0), operand(8, 0), bias=np.arange(8.0))
    np.testing.assert_array_equal(nothing, np.tile(np.arange(8.0), (4, 1)))
    assert ov.gemm(operand(0, 32), operand(8, 32), out="mxfp8").shape == (0, 8)


@pytest.mark.parametrize("name", [None, "fp8-channel", "mxfp8"])
@pytest.mark.parametrize("rows", [[0, 0, 0], [0, 4, 0], [4, 0, 0]])
def test_gemm_grouped(name, rows):
    a, b = np.ones((sum(rows), 32), np.float32), np.ones((3, 8, 32), np.float32)
    if name is not None:
        a, b = ov.quantize(a, name), ov.quantize(b, name)
    y = ov.gemm_grouped(a, b, rows)
    assert y.shape == (sum(rows), 8)
    # fp8-channel: 1 is the code of 448 times a scale, RN(1 / 448), in both: four roundings.
    np.testing.assert_allclose(y, 32, rtol=4 * 2.0**-24)


@pytest.mark.parametrize(
    "call", [ov.layer_norm, ov.rms_norm, ov.gelu, ov.relu, ov.silu, ov.swiglu, ov.geglu]
)
@pytest.mark.parametrize("quantize", [None, "mxfp8", "fp8", "nvfp4"])
def test_norms_and_activations(call, quantize):
    width = 16 if call in (ov.swiglu, ov.geglu) else 32
    assert call(np.zeros((0, 32), np.float32), quantize=quantize).shape == (0, width)


@pytest.mark.parametrize(
    "made",
    [
        lambda: qs.Float8CurrentScalingQuantizer(),
        lambda: qs.Float8BlockQuantizer(),
        lambda: qs.MXFP8Quantizer(),
        lambda: qs.NVFP4Quantizer(with_rht=True),
        lambda: qs.Float8Quantizer(np.ones(1, np.float32), np.zeros(1, np.float32)),
    ],
)
def test_quantizers(made):
    q = made()(np.zeros((0, 32), np.float32))
    assert q.shape == (0, 32) and ov.transposed(q).shape == (32, 0)


def test_conversions():
    nothing = np.zeros((0, 32), np.float32)
    codes = ov.encode(nothing, "e4m3fn")
    assert codes.shape == ov.decode(codes).shape == ov.cast(nothing, "bfloat16").shape == (0, 32)
    assert ov.amax(nothing) == 0


def test_te_quantizers():
    x = torch.zeros(0, 32, requires_grad=True)
    for quantizer in (
        te.MXFP8Quantizer("e4m3fn"),
        te.NVFP4Quantizer(with_rht=True),
        te.Float8CurrentScalingQuantizer("e4m3fn"),
        te.Float8BlockQuantizer("e4m3fn"),
        te.Float8Quantizer(torch.ones(1), torch.zeros(1), "e4m3fn"),
    ):
        y = quantizer(x)
        assert y.shape == x.shape
        y.dequantize().sum().backward()
        assert x.grad.shape == x.shape


def test_cache():
    cache = ov.KVCache(1, 2, 16)
    cache.append(np.zeros((1, 2, 0, 16), np.float32), np.zeros((1, 2, 0, 16), np.float32))
    assert cache.lengths == [0]
    assert cache.attend(np.zeros((1, 2, 0, 16), np.float32)).shape == (1, 2, 0, 16)
