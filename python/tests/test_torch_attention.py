"""te.DotProductAttention: what it multiplies under which recipe, and its gradients.

The oracle is torch in float64, written out: scores, softmax, product.
"""

from __future__ import annotations

import copy
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from attention_testing import (  # noqa: E402
    FP8,
    B,
    D,
    H,
    S,
    causal,
    exact,
    heads_first,
    heads_last,
    in_scope,
    inputs,
    layer,
)

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402
from octavo import quantizers as qs  # noqa: E402
from octavo.recipe import (  # noqa: E402
    CustomRecipe,
    DelayedScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)

# What quantizes q, k and v in the first step: DelayedScaling begins with a scale of one.
QUANTIZERS = {
    "delayed": lambda: te.Float8Quantizer(torch.ones(1), torch.zeros(1), te.DType.kFloat8E4M3),
    "current": lambda: qs.Float8CurrentScalingQuantizer(columnwise=False),
    "mxfp8": lambda: qs.MXFP8Quantizer(columnwise=False),
    "custom": lambda: qs.MXFP8Quantizer(columnwise=False),
}


def quantized(name, x):
    """As the layer has it, which is [batch, heads, tokens, size]."""
    return ov.dequantize(codes(name, x), "float64")


def codes(name, x):
    found = QUANTIZERS[name]()(heads_first(x.detach()).contiguous())
    return getattr(found, "quantized", found)


@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
def test_values_and_gradients_outside_of_a_scope(layout):
    """float32: sums of 24 and 32 products, each within 2^-24, and an exponential: 1e-5 is ample."""
    q, k, v = inputs(layout)
    out = layer(qkv_format=layout)(q, k, v)
    assert out.shape == ((S, B, H * D) if layout == "sbhd" else (B, S, H * D))
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    want = heads_last(exact(*(heads_first(x, layout) for x in wide), causal()), layout)
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    dy = torch.randn_like(out)
    got = torch.autograd.grad(out, (q, k, v), dy)
    for a, b in zip(got, torch.autograd.grad(want, wide, dy.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(dtype):
    """float64: the scale of scores is a float32, off by 2^-25, and scores are of a few units.
    bfloat16: P and the output are rounded to 8 bits; weights of a row sum to one, |v| < 5."""
    q, k, v = inputs(dtype=dtype)
    out = layer()(q, k, v)
    assert out.dtype == dtype
    want = heads_last(exact(*(heads_first(x) for x in (q, k, v)), causal()))
    bound = {torch.float64: 1e-6, torch.float16: 2e-3, torch.bfloat16: 5 * 2**-7}[dtype]
    assert (out.double() - want).abs().max() < bound
    out.sum().backward()
    assert q.grad.dtype == dtype


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling(), NVFP4BlockScaling()])
def test_a_recipe_without_fp8_dpa_changes_nothing(recipe):
    tensors = inputs()
    want, module = layer()(*tensors), layer()
    assert torch.equal(in_scope(module, tensors, recipe), want)
    assert module.quantizers == {"scaling_fwd": [], "scaling_bwd": []}


@pytest.mark.parametrize("name", FP8)
def test_fp8_is_attention_of_quantized_inputs(name):
    """P is rounded to E4M3, which has 4 significant bits: each weight is off by at most 2^-4 of
    itself (by 2^-10 / 256 below the smallest normal number), so a row by 2^-4 of sum p |v|."""
    tensors = inputs()
    out = in_scope(layer(), tensors, FP8[name])
    q, k, v = (quantized(name, x) for x in tensors)
    want = exact(q, k, v, causal())
    bound = 2**-4 * exact(q, k, v.abs(), causal()) + 1e-3
    assert (heads_first(out.detach().view(S, B, H, D)).double() - want).abs().le(bound).all()
    assert not torch.equal(out, layer()(*tensors))


@pytest.mark.parametrize("precision", ["fast", "strict"])
@pytest.mark.parametrize("name", FP8)
def test_fp8_by_hand(name, precision):
    tensors = inputs()
    out = in_scope(layer(precision=precision), tensors, FP8[name])
    operands = [codes(name, x) for x in tensors]
    want = ov.attention(*operands, causal=True, precision=precision, out="float32")
    assert torch.equal(out, heads_last(want))


@pytest.mark.parametrize("name", FP8)
def test_gradients_are_those_at_the_quantized_inputs(name):
    """In float32, as outside of a scope."""
    tensors = inputs()
    out = in_scope(layer(), tensors, FP8[name])
    dy = torch.randn_like(out)
    got = torch.autograd.grad(out, tensors, dy)
    at = [quantized(name, x).requires_grad_() for x in tensors]
    want = torch.autograd.grad(heads_last(exact(*at, causal())), at, dy.double())
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(heads_first(a).double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FP8)
def test_fp8_mha_gives_fp8(name):
    tensors = inputs()
    recipe = copy.copy(FP8[name])
    recipe.fp8_mha = True
    values = in_scope(layer(), tensors, FP8[name]).detach()
    out = in_scope(layer(), tensors, recipe)
    assert isinstance(out, te.QuantizedTensor) and out.shape == values.shape
    assert out.nbytes < values.nbytes / 3 and out.get_usages() == {
        "rowwise": True,
        "columnwise": False,
    }
    want = ov.dequantize(getattr(q := QUANTIZERS[name]()(values), "quantized", q), "float32")
    assert torch.equal(out.detach().dequantize(), want)
    # Gradients flow through a layer that takes it.
    projected = te.Linear(H * D, 8, bias=False, device="cpu")(out)
    got = torch.autograd.grad(projected.sum(), tensors)
    dy = projected.new_ones(S, B, 8) @ projected.grad_fn.next_functions[1][0].variable.detach()
    plain = in_scope(layer(), tensors, FP8[name])
    for a, b in zip(got, torch.autograd.grad(plain, tensors, dy), strict=True):
        torch.testing.assert_close(a, b)


def test_fp8_mha_alone_is_enough():
    recipe = MXFP8BlockScaling(fp8_mha=True)
    assert isinstance(in_scope(layer(), inputs(), recipe), te.QuantizedTensor)


def test_nvfp4_is_refused():
    module, tensors = layer(), inputs()
    for given in ({"fp8_dpa": True}, {"fp8_mha": True}):
        with pytest.raises(RuntimeError, match="NVFP4BlockScaling with fp8_dpa or fp8_mha"):
            in_scope(module, tensors, NVFP4BlockScaling(**given))


def test_quantizers_of_a_custom_recipe_may_be_octavo_s():
    recipe = CustomRecipe(lambda role: qs.MXFP8Quantizer(), fp8_mha=True)
    out = in_scope(layer(), inputs(), recipe)
    want = in_scope(layer(), inputs(), MXFP8BlockScaling(fp8_mha=True))
    assert type(out) is type(want) and torch.equal(out.dequantize(), want.dequantize())


@pytest.mark.filterwarnings("ignore:Recipe")
def test_nan_shows():
    """In the rows that see the key, and in all of a tile's."""
    for name in (None, *FP8):
        q, k, v = (x.detach() for x in inputs())
        k[10, 0, 0, 0] = torch.nan
        out = in_scope(layer(), (q, k, v), FP8.get(name)).view(S, B, H, D)
        assert out[10:, 0, :2].isnan().all() and out[:10].isfinite().all(), name


@pytest.mark.parametrize("name", ["delayed", "mxfp8"])
def test_float64_in_is_float64_out(name):
    """In FP8 as well: the numbers are those of float32 inputs, which float64 holds."""
    tensors = inputs()
    wide = [x.detach().double().requires_grad_() for x in tensors]
    narrow = [x.detach().clone().requires_grad_() for x in tensors]
    out, want = in_scope(layer(), wide, FP8[name]), in_scope(layer(), narrow, FP8[name])
    assert out.dtype == torch.float64 and torch.equal(out, want.double())
    out.sum().backward()
    want.sum().backward()
    for x, y in zip(wide, narrow, strict=True):
        assert x.grad.dtype == torch.float64
        torch.testing.assert_close(x.grad, y.grad.double(), rtol=1e-5, atol=1e-6)


def test_float64_of_fp8_mha():
    wide = [x.double() for x in inputs()]
    out = in_scope(layer(), wide, DelayedScaling(fp8_mha=True))
    assert out.dtype == torch.float64 and out.dequantize().dtype == torch.float64


ATTENDS = {
    "layer": lambda q, k, v: te.DotProductAttention(
        q.shape[1], q.shape[-1], qkv_format="bshd", attn_mask_type="no_mask"
    )(*(x.transpose(1, 2) for x in (q, k, v))),
    "function": te.scaled_dot_product_attention,
}


@pytest.mark.parametrize("attend", ATTENDS)
def test_torch_s_autocast(attend):
    """It casts as it casts inputs of torch's own attention: float64 stays what it is."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 8, 16, requires_grad=True) for _ in range(3))
    want = ATTENDS[attend](*(x.detach().bfloat16() for x in (q, k, v)))
    with torch.autocast("cpu", torch.bfloat16):
        got = ATTENDS[attend](q, k, v)
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert got.dtype == theirs.dtype == torch.bfloat16 and torch.equal(got, want)
    got.float().sum().backward()
    assert q.grad.dtype == torch.float32
    wide = [x.detach().double() for x in (q, k, v)]
    with torch.autocast("cpu", torch.bfloat16):
        got = ATTENDS[attend](*wide)
        theirs = torch.nn.functional.scaled_dot_product_attention(*wide)
    assert got.dtype == theirs.dtype == torch.float64
    assert torch.equal(got, ATTENDS[attend](*wide))


@pytest.mark.parametrize("attend", ATTENDS)
@pytest.mark.parametrize("changed", range(3))
def test_one_dtype_for_all_inputs(attend, changed):
    given = [torch.randn(2, 4, 8, 16) for _ in range(3)]
    given[changed] = given[changed].half()
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.nn.functional.scaled_dot_product_attention(*given)
    with pytest.raises(TypeError, match=r"query.*key.*value.*; expected one dtype"):
        ATTENDS[attend](*given)
    with torch.autocast("cpu", torch.bfloat16):
        assert ATTENDS[attend](*given).dtype == torch.bfloat16
