"""te.DotProductAttention: what forward saves for backward, hooks on that, and other gradients."""

from __future__ import annotations

import math
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from attention_testing import FP8, in_scope, inputs, layer  # noqa: E402

import octavo.torch as te  # noqa: E402


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
    with pytest.raises(RuntimeError, match="in the place of q.*; expected what forward saved"):
        torch.autograd.grad(out.sum(), tensors)


@pytest.mark.parametrize("name", [None, "delayed"])
def test_hooks_that_give_what_is_not_dense(name):
    for wrong in (torch.Tensor.to_sparse, te_tensor):
        tensors = inputs()
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, wrong):
            out = in_scope(layer(), tensors, FP8.get(name))
        with pytest.raises(RuntimeError, match="a hook gave .* expected a dense"):
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
        (lambda x: x[:, :1], "in the place of query; expected what forward saved"),
    ):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, wrong):
            out = te.scaled_dot_product_attention(x, x, x, precision="f32")
        with pytest.raises(RuntimeError, match=text):
            out.sum().backward()


class Turned(torch.autograd.Function):
    """Converts its gradient to another kind of tensor."""

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
