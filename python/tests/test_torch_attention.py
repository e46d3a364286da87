"""te.DotProductAttention: what it multiplies under which recipe, its state and its gradients.

The oracle is torch in float64, written out: scores, softmax, product.
"""

from __future__ import annotations

import copy
import io
import math
import pathlib
import pickle
import sys
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
import octavo.torch as te  # noqa: E402
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


LARGEST = torch.tensor(448.0)  # torch divides numbers by tensors otherwise than tensors by tensors


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


def test_delayed_scaling_moves_on():
    module, tensors = layer(), inputs()
    recipe = DelayedScaling(fp8_mha=True, amax_history_len=4)
    out = in_scope(module, tensors, recipe)
    found = module.quantizers["scaling_fwd"]
    assert [type(one).__name__ for one in found] == ["Float8Quantizer"] * 5
    for quantizer, x in zip(found, tensors, strict=False):
        amax = x.detach().abs().max()
        assert quantizer.amax_history[-1] == amax and quantizer.scale == LARGEST / amax
    # The first row sees one key; exponentials of FP8's kernels are within 2^-9.
    assert found[3].amax_history[-1].item() == pytest.approx(1, rel=2**-9)
    # Of the output before it was rounded: within 2^-4 of what is there.
    assert found[4].amax_history[-1] == pytest.approx(out.detach().abs().max().item(), rel=2**-4)
    first = [one.scale.clone() for one in found]
    in_scope(module, [2 * x for x in tensors], recipe)
    assert found[0].scale == first[0] / 2 and module.quantizers["scaling_bwd"] == []


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_inference_leaves_state_alone(how):
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert sorted(before) == ["scaling_fwd.amax_history", "scaling_fwd.scale"]
    if how == "eval":
        module.eval()
    with torch.set_grad_enabled(how != "no_grad"):
        in_scope(module, [3 * x for x in tensors], FP8["delayed"])
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_calibration():
    module, tensors = layer(), inputs()
    with te.autocast(enabled=False, calibrating=True, recipe=FP8["delayed"]):
        out = module(*tensors)
    assert torch.equal(out, layer()(*tensors))
    for quantizer, x in zip(module.quantizers["scaling_fwd"], tensors, strict=False):
        assert quantizer.scale == LARGEST / x.detach().abs().max()


@pytest.mark.parametrize("through", ["state_dict", "deepcopy", "pickle", "file"])
def test_state_comes_along(through):
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    if through == "deepcopy":
        other = copy.deepcopy(module)
    elif through == "pickle":
        other = pickle.loads(pickle.dumps(module))
    else:
        other, state = layer(), module.state_dict()
        if through == "file":
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        other.load_state_dict(state)
    want = in_scope(module, tensors, FP8["delayed"])
    assert torch.equal(in_scope(other, tensors, FP8["delayed"]), want)


def test_a_change_of_recipe_is_said():
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    text = (
        "Recipe type changed from DelayedScaling to MXFP8BlockScaling. "
        "Replacing quantizers for DotProductAttention."
    )
    with pytest.warns(UserWarning) as heard:
        in_scope(module, tensors, FP8["mxfp8"])
    assert [str(one.message) for one in heard] == [text]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_scope(module, tensors, FP8["mxfp8"])


def test_nvfp4_is_refused():
    module, tensors = layer(), inputs()
    for given in ({"fp8_dpa": True}, {"fp8_mha": True}):
        with pytest.raises(RuntimeError, match="NVFP4BlockScaling with fp8_dpa or fp8_mha"):
            in_scope(module, tensors, NVFP4BlockScaling(**given))


def test_what_is_saved_is_codes():
    packed = []

    def pack(x):
        packed.append(x)
        return x.clone()

    tensors = inputs()
    want = torch.autograd.grad(in_scope(layer(), tensors, FP8["mxfp8"]).sum(), tensors)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = in_scope(layer(), tensors, FP8["mxfp8"])
    elements = sum(x.numel() for x in tensors)
    assert sum(x.nbytes for x in packed) == elements + elements // 32
    got = torch.autograd.grad(out.sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    with te.autocast(recipe=FP8["mxfp8"]):
        again = te.checkpoint(layer(), *tensors)
    got = torch.autograd.grad(again.sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("layout", ["sbhd", "bshd"])
def test_backward_takes_what_forward_found(layout):
    """With log-sum-exps that are 0.5 more, weights and so dV are exp(-0.5) of what they were."""
    tensors, module = inputs(layout), layer(qkv_format=layout)
    want = torch.autograd.grad(module(*tensors).sum(), tensors)

    def moved(x):
        return x + 0.5 if x.dim() == 3 and x.shape[1] == module.num_attention_heads else x

    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, moved):
        out = module(*tensors)
    got = torch.autograd.grad(out.sum(), tensors)
    # Sums of weights in f32, which two ways of finding them round apart.
    torch.testing.assert_close(got[2], want[2] * math.exp(-0.5), rtol=1e-5, atol=1e-6)
    assert any(x.data_ptr() == out.data_ptr() for x in kept)  # and no copy of the output
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(kept.append, moved):
        kept.clear()
        module(*tensors)
    assert not kept


@pytest.mark.parametrize("name", [None, "current", "mxfp8"])
def test_attention_may_be_computed_again(name):
    tensors = inputs()
    want = torch.autograd.grad(in_scope(layer(), tensors, FP8.get(name)).sum(), tensors)
    out = in_scope(layer(), tensors, FP8.get(name), checkpoint_core_attention=True)
    got = torch.autograd.grad(out.sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("name", [None, "current", "mxfp8"])
def test_a_checkpoint_serves_every_backward(name):
    tensors = inputs()
    want = torch.autograd.grad(in_scope(layer(), tensors, FP8.get(name)).sum(), tensors)
    out = in_scope(layer(), tensors, FP8.get(name), checkpoint_core_attention=True)
    for _ in range(2):
        got = torch.autograd.grad(out.sum(), tensors, retain_graph=True)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("name", [None, "mxfp8"])
def test_hooks_that_give_something_else(name):
    tensors = inputs()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x[:1]):
        out = in_scope(layer(), tensors, FP8.get(name))
    with pytest.raises(RuntimeError, match="in the place of q.*, wanted what forward saved"):
        torch.autograd.grad(out.sum(), tensors)


def test_state_waits_for_a_recipe_that_asks():
    module, tensors = layer(), inputs()
    in_scope(module, tensors, FP8["delayed"])
    want = in_scope(copy.deepcopy(module), tensors, FP8["delayed"])
    other = layer()
    other.load_state_dict(module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_scope(other, tensors, MXFP8BlockScaling())
        assert torch.equal(in_scope(other, tensors, FP8["delayed"]), want)


def test_quantizers_of_a_custom_recipe_may_be_octavo_s():
    recipe = CustomRecipe(lambda role: qs.MXFP8Quantizer(), fp8_mha=True)
    out = in_scope(layer(), inputs(), recipe)
    want = in_scope(layer(), inputs(), MXFP8BlockScaling(fp8_mha=True))
    assert type(out) is type(want) and torch.equal(out.dequantize(), want.dequantize())


def test_threads_share_a_layer():
    """Each under its own recipe; calls take turns, and results are those of a layer alone."""
    module, tensors = layer(), [x.detach() for x in inputs()]
    want = {name: in_scope(layer(), tensors, FP8[name]) for name in ("current", "mxfp8")}
    found = {name: [] for name in want}

    def work(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(10):
                found[name].append(in_scope(module, tensors, FP8[name]))

    threads = [threading.Thread(target=work, args=(name,)) for name in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, results in found.items():
        assert len(results) == 10 and all(torch.equal(one, want[name]) for one in results)


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


def test_state_of_another_kind_of_module():
    linear = te.Linear(32, 32, device="cpu")
    with te.autocast(recipe=DelayedScaling()):
        linear(torch.randn(32, 32))
    saved = linear.state_dict()
    attends = layer()
    for module, given in (
        (attends, saved),
        (torch.nn.Sequential(attends), {f"0.{key}": value for key, value in saved.items()}),
    ):
        with pytest.raises(RuntimeError, match="may be the state of another kind of module"):
            module.load_state_dict(given, strict=False)
    in_scope(attends, inputs(), FP8["delayed"])
    with pytest.raises(RuntimeError, match=r"scaling_fwd.scale of shape \(5,\), wanted 3 slots"):
        linear.load_state_dict(saved | attends.state_dict())


@pytest.mark.parametrize("name", [None, "delayed"])
def test_hooks_that_give_what_is_not_dense(name):
    for wrong in (torch.Tensor.to_sparse, te_tensor):
        tensors = inputs()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, wrong):
            out = in_scope(layer(), tensors, FP8.get(name))
        with pytest.raises(RuntimeError, match="a hook gave .* wanted a dense"):
            out.sum().backward()


def te_tensor(x):
    if not x.is_floating_point():
        return x.to_sparse()
    quantizer = te.Float8CurrentScalingQuantizer(te.DType.kFloat8E4M3, device="cpu")
    quantizer.set_usage(rowwise=True, columnwise=False)
    return quantizer(x)


def test_hooks_of_torch_s_function():
    x = torch.randn(1, 2, 8, 32, requires_grad=True)
    for wrong, text in (
        (torch.Tensor.to_sparse, "a hook gave a torch.sparse_coo in the place of query"),
        (te_tensor, "a hook gave a Float8Tensor in the place of query"),
        (torch.Tensor.half, "a hook gave torch.float16 .* in the place of query"),
        (lambda x: x[:, :1], "in the place of query, wanted what forward saved"),
    ):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, wrong):
            out = te.scaled_dot_product_attention(x, x, x, precision="f32")
        with pytest.raises(RuntimeError, match=text):
            out.sum().backward()


class Turned(torch.autograd.Function):
    """Makes another kind of tensor of its gradient."""

    @staticmethod
    def forward(ctx, x, make):
        ctx.make = make
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return ctx.make(dy), None


def test_gradients_that_are_not_dense():
    """Of codes: their values. Sparse ones are refused by name."""
    linear = te.Linear(32, 32, device="cpu")
    attends = te.DotProductAttention(1, 32, qkv_format="bshd")

    def product(function, x, make):
        x = x.clone().requires_grad_()
        y = Turned.apply(function(x), make)
        y.backward(torch.ones_like(y))
        return x.grad

    heads = torch.randn(1, 8, 1, 32)
    for function, x in ((linear, torch.randn(8, 32)), (lambda x: attends(x, x, x), heads)):
        with pytest.raises(TypeError, match="got a gradient of layout torch.sparse_coo"):
            product(function, x, torch.Tensor.to_sparse)
        assert torch.equal(product(function, x, te_tensor), product(function, x, torch.clone))
