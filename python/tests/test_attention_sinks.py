"""Soft caps and sinks of octavo.attention, against the eager attention of transformers' Gemma 2 and
gpt-oss, written out in torch's float64."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

torch = pytest.importorskip("torch", reason="the other side of these comparisons")

SINKS = [-np.inf, -2.0, 1.0, 20.0]


def inputs(queries=70, keys=90, heads=4, kv_heads=2, size=64, dtype=torch.bfloat16, spread=2.0):
    generator = torch.Generator().manual_seed(3)
    q, k, v = (
        torch.randn((2, h, n, size), generator=generator)
        for h, n in ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    )
    return (q * spread).to(dtype), k.to(dtype), v.to(dtype)


def eager(q, k, v, *, mask=None, soft_cap=None, sinks=None):
    """Gemma 2: scores are capped, then the mask is added. gpt-oss: the sinks are a column more of
    the scores, which is dropped after softmax."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    if soft_cap is not None:
        scores = torch.tanh(scores / soft_cap) * soft_cap
    if mask is not None:
        scores = scores + mask
    if sinks is None:
        return torch.softmax(scores, dim=-1) @ v
    column = sinks.double().reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], -1)
    weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)
    return weights[..., :-1] @ v


def causal(queries, keys):
    """The last row sees the last key."""
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    return torch.where(seen, 0.0, -torch.inf).double()


def failures(got, want):
    error = (got.double() - want).abs()
    return int((~(error <= 5e-3 + 5e-3 * want.abs())).sum())


@pytest.mark.parametrize("soft_cap", [None, 4.0, 30.0, 50.0])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("precision", ["auto", "bf16", "f32", "exact"])
def test_is_the_eager_attention_of_transformers(precision, has_sinks, soft_cap):
    q, k, v = inputs()
    sinks = torch.tensor(SINKS) if has_sinks else None
    how = {"soft_cap": soft_cap, "sinks": sinks, "precision": precision}
    got = ov.attention(q, k, v, causal=True, align="bottom_right", out="float32", **how)
    want = eager(q, k, v, mask=causal(70, 90), soft_cap=soft_cap, sinks=sinks)
    assert failures(got, want) == 0
    if precision == "exact":  # an output of f32, and sums in another order
        torch.testing.assert_close(got.double(), want, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("precision", ["f32", "exact"])
def test_the_cap_comes_before_the_bias(precision):
    """ALiBi-like: bias of -10 and more, with a cap of 2."""
    q, k, v = inputs(dtype=torch.float32)
    bias = -torch.arange(90.0).expand(70, 90) / 4
    bias[:, 40] = -torch.inf
    got = ov.attention(q, k, v, bias=bias.contiguous(), soft_cap=2.0, precision=precision)
    torch.testing.assert_close(
        got.double(), eager(q, k, v, mask=bias.double(), soft_cap=2.0), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("scaling", ["fp8-channel", "mxfp8"])
def test_of_a_kv_cache(scaling):
    q, k, v = inputs(queries=1, keys=300)
    cache = ov.KVCache(batches=2, kv_heads=2, head_size=64, scaling=scaling)
    cache.append(k, v)
    sinks = torch.tensor(SINKS)
    keys, values = (ov.dequantize(x, "float32") for x in (cache.keys(), cache.values()))
    keys, values = (torch.as_tensor(np.asarray(x)) for x in (keys, values))
    for how in ({"soft_cap": 3.0}, {"sinks": sinks}, {"soft_cap": 30.0, "sinks": sinks}):
        got = cache.attend(q, out="float32", **how)
        assert failures(torch.as_tensor(np.asarray(got)), eager(q, keys, values, **how)) == 0
        plain = cache.attend(q, out="float32")
        assert not np.array_equal(np.asarray(got), np.asarray(plain))


def test_the_log_sum_exp_has_the_sink():
    q, k, v = inputs(dtype=torch.float32)
    sinks = torch.tensor(SINKS)
    plain = ov.attention(q, k, v, precision="f32", return_lse=True)[1].double()
    lse = ov.attention(q, k, v, precision="f32", sinks=sinks, return_lse=True)[1].double()
    want = torch.logaddexp(plain, sinks.double().reshape(1, 4, 1))
    torch.testing.assert_close(lse, want, rtol=1e-6, atol=1e-6)


def test_numpy_and_heads_without_a_batch():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 5, 8)).astype(np.float32) for _ in range(3))
    sinks = np.array([0.5, -1.0], np.float32)
    got = ov.attention(q, k, v, precision="exact", sinks=sinks, soft_cap=1.0)
    scores = np.tanh(q.astype(float) @ k.astype(float).transpose(0, 2, 1) / 8**0.5)
    weights = np.exp(scores)
    weights /= weights.sum(-1, keepdims=True) + np.exp(sinks.astype(float))[:, None, None]
    np.testing.assert_allclose(got, weights @ v.astype(float), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("soft_cap", [None, 2.0])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("precision", ["exact", "f32"])
def test_gradients_are_torchs(precision, has_sinks, soft_cap):
    te = pytest.importorskip("octavo.torch")
    dtype = torch.float64 if precision == "exact" else torch.float32
    leaves = [x.to(dtype).requires_grad_() for x in inputs(queries=20, keys=30)]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    sinks = torch.tensor(SINKS).requires_grad_() if has_sinks else None
    wide_sinks = torch.tensor(SINKS).double().requires_grad_() if has_sinks else None
    out = te.scaled_dot_product_attention(
        *leaves, enable_gqa=True, precision=precision, soft_cap=soft_cap, sinks=sinks
    )
    want = eager(*wide, soft_cap=soft_cap, sinks=wide_sinks)
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out.backward(d_out.to(dtype))
    want.backward(d_out)
    for got, exact in zip(leaves, wide, strict=True):
        error = (got.grad.double() - exact.grad).norm() / exact.grad.norm()
        assert error <= (1e-12 if precision == "exact" else 1e-5)
    if has_sinks:
        assert sinks.grad.dtype == torch.float32
        torch.testing.assert_close(sinks.grad.double(), wide_sinks.grad, rtol=2e-5, atol=1e-9)


def test_sinks_of_sixteen_bits_have_a_gradient_of_theirs():
    te = pytest.importorskip("octavo.torch")
    q, k, v = inputs(queries=20, keys=30)
    sinks = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    te.scaled_dot_product_attention(q, k, v, enable_gqa=True, sinks=sinks).sum().backward()
    assert sinks.grad.dtype == torch.bfloat16 and bool((sinks.grad != 0).all())


Q = np.random.default_rng(0).standard_normal((1, 2, 4, 32)).astype(np.float32)


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"soft_cap": -1.0}, ValueError, "got a soft cap of -1; expected 0, which is none, or"),
        ({"soft_cap": float("nan")}, ValueError, "got a soft cap of nan; expected 0"),
        ({"soft_cap": float("inf")}, ValueError, "got a soft cap of inf; expected 0"),
        ({"soft_cap": "x"}, TypeError, "got soft_cap = 'x'; expected a number"),
        ({"sinks": np.zeros(3, np.float32)}, ValueError, "the sinks have shape [3]; expected [2]"),
        ({"sinks": np.float32(1)}, ValueError, "the sinks have shape []; expected [2]"),
        ({"sinks": np.zeros(2)}, TypeError, "got sinks of float64; expected float32"),
        ({"sinks": "x"}, TypeError, "sinks"),
    ],
)
def test_bad_arguments_are_named(given, kind, text):
    with pytest.raises(kind) as caught:
        ov.attention(Q, Q, Q, **given)
    assert str(caught.value).startswith("[attention") and text in str(caught.value)
    cache = ov.KVCache(batches=1, kv_heads=2, head_size=32)
    cache.append(Q, Q)
    with pytest.raises(kind) as caught:
        cache.attend(Q, **given)
    assert text in str(caught.value)
