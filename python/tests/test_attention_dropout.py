"""Dropout of attention weights: the mask, torch's seeds, and gradients through it."""

import numpy as np
import pytest
import torch

import octavo as ov
from octavo import torch as te


def visible(batch=2, heads=3, rows=20, keys=48):
    """All weights are 1 / keys, and the output shows them."""
    q = torch.randn(batch, heads, rows, 16)
    k = torch.zeros(batch, heads, keys, 16)
    v = torch.eye(keys).expand(batch, heads, keys, keys).contiguous()
    return q, k, v


def test_kept_weights_are_scaled_and_the_rest_is_zero():
    q, k, v = visible()
    out = ov.attention(q, k, v, precision="f32", dropout_p=0.25, seed=3)
    kept = out != 0
    np.testing.assert_allclose(out[kept].numpy(), 1 / 48 / 0.75, rtol=1e-6)
    share = kept.float().mean()
    assert abs(share - 0.75) < 6 * (0.25 * 0.75 / kept.numel()) ** 0.5
    assert torch.equal(out, ov.attention(q, k, v, precision="f32", dropout_p=0.25, seed=3))
    assert not torch.equal(out, ov.attention(q, k, v, precision="f32", dropout_p=0.25, seed=4))
    # Other tiles, precisions and batches have the mask of the same elements.
    other = ov.attention(q[:1, :, :7], k[:1], v[:1], precision="bf16", dropout_p=0.25, seed=3)
    assert torch.equal(other != 0, kept[:1, :, :7])


def test_torch_gives_the_seed():
    q, k, v = visible()
    torch.manual_seed(5)
    first = te.scaled_dot_product_attention(q, k, v, dropout_p=0.5, precision="f32")
    second = te.scaled_dot_product_attention(q, k, v, dropout_p=0.5, precision="f32")
    torch.manual_seed(5)
    again = te.scaled_dot_product_attention(q, k, v, dropout_p=0.5, precision="f32")
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def by_torch(q, k, v, mask):
    weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
    return (weights * mask) @ v


@pytest.mark.parametrize(
    ("precision", "dtype", "bound"), [("exact", torch.float64, 1e-12), ("f32", torch.float32, 1e-5)]
)
def test_gradients_with_the_mask_of_the_forward_pass(precision, dtype, bound):
    torch.manual_seed(1)
    _, zero, unit = (x.to(dtype) for x in visible(2, 3, 20, 48))
    q, k, v = (torch.randn(2, 3, n, 16, dtype=dtype, requires_grad=True) for n in (20, 48, 48))
    seed = 17
    mask = ov.attention(q.detach(), zero, unit, precision=precision, dropout_p=0.25, seed=seed) * 48
    wanted = torch.autograd.grad(by_torch(q, k, v, mask).square().sum(), (q, k, v))
    out = te.attention._Attention.apply(
        q, k, v, None, None, False,
        {"precision": precision, "rtol": 0.0, "atol": 0.0, "softmax_scale": None, "soft_cap": None,
         "dropout_p": 0.25, "seed": seed},
    )  # fmt: skip
    found = torch.autograd.grad(out.square().sum(), (q, k, v))
    for got, want in zip(found, wanted, strict=True):
        assert (got - want).norm() <= bound * want.norm()


def test_dot_product_attention_drops_in_training_alone():
    torch.manual_seed(2)
    layer = te.DotProductAttention(3, 16, attention_dropout=0.5, attn_mask_type="no_mask")
    plain = te.DotProductAttention(3, 16, attn_mask_type="no_mask")
    q, k, v = (torch.randn(20, 2, 3, 16, requires_grad=True) for _ in range(3))
    torch.manual_seed(3)
    out = layer(q, k, v)
    torch.manual_seed(3)
    again = layer(q, k, v, checkpoint_core_attention=True)
    assert torch.equal(out, again)
    assert not torch.equal(out, plain(q, k, v))
    first = torch.autograd.grad(out.square().sum(), (q, k, v))
    second = torch.autograd.grad(again.square().sum(), (q, k, v))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    layer.eval()
    assert torch.equal(layer(q, k, v), plain(q, k, v))


@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan")])
def test_probabilities_that_cannot_be_one(rate):
    q, k, v = visible(1, 1, 4, 8)
    with pytest.raises(ValueError, match="expected 0 to less than 1"):
        ov.attention(q, k, v, dropout_p=rate, seed=1)
    with pytest.raises(ValueError, match="expected 0 to less than 1"):
        te.scaled_dot_product_attention(q, k, v, dropout_p=rate)
    with pytest.raises(ValueError, match="expected 0 to less than 1"):
        te.DotProductAttention(1, 16, attention_dropout=rate)


def test_a_seed_is_given():
    q, k, v = visible(1, 1, 4, 8)
    with pytest.raises(ValueError, match="no seed"):
        ov.attention(q, k, v, dropout_p=0.1)
    with pytest.raises((TypeError, ValueError), match="seed"):
        ov.attention(q, k, v, dropout_p=0.1, seed=-1)
    ov.attention(q, k, v, dropout_p=0.1, seed=2**64 - 1)
