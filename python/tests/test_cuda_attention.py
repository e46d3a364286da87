"""Attention of torch CUDA tensors trains there: gradients, dropout, recipes."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
torch = pytest.importorskip("torch", reason="torch is not installed")
from cuda_testing import needs_cuda  # noqa: E402

import octavo as ov  # noqa: E402
import octavo.torch as te  # noqa: E402

pytestmark = needs_cuda


def inputs(heads, kv_heads, tokens, size, dtype):
    torch.manual_seed(1)
    return [
        torch.randn(2, n, tokens, size, dtype=dtype, device="cuda", requires_grad=True)
        for n in (heads, kv_heads, kv_heads)
    ]


def exact(given, d_out, causal, mask=None):
    """Gradients in float64, and the mask of dropout times its factor."""
    q, k, v = (x.detach().double().requires_grad_() for x in given)
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cuda").triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
    out = weights @ v.repeat_interleave(group, 1)
    return torch.autograd.grad(out, (q, k, v), d_out.double())


def check(found, wanted, bound):
    for got, want in zip(found, wanted, strict=True):
        assert got.is_cuda
        assert (got.double() - want).norm() <= bound * want.norm()


# bf16: tests/cuda/attention_backward_test.cc, with an output that is bf16 too.
@pytest.mark.parametrize(
    ("precision", "dtype", "size", "bound"),
    [
        ("bf16", torch.bfloat16, 128, 4 * 2**-9),
        ("bf16", torch.bfloat16, 64, 4 * 2**-9),
        ("auto", torch.bfloat16, 128, 4 * 2**-9),
        ("bf16", torch.bfloat16, 48, 4 * 2**-9),
        ("f32", torch.float32, 64, 1e-5),
        ("exact", torch.float64, 64, 1e-12),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients(precision, dtype, size, bound, causal):
    given = inputs(4, 2, 300, size, dtype)
    out = te.scaled_dot_product_attention(
        *given, is_causal=causal, enable_gqa=True, precision=precision
    )
    d_out = torch.randn_like(out)
    check(torch.autograd.grad(out, given, d_out), exact(given, d_out, causal), bound)


def test_dropout_has_the_mask_of_the_cpu():
    q, k, v = inputs(4, 4, 144, 64, torch.bfloat16)
    flat = torch.zeros_like(k)
    unit = torch.eye(144, device="cuda").expand(2, 4, 144, 144).contiguous()
    how = {"dropout_p": 0.25, "seed": 9, "precision": "f32"}
    there = ov.attention(q.detach().float(), flat.float(), unit, **how)
    here = ov.attention(q.detach().float().cpu(), flat.float().cpu(), unit.cpu(), **how)
    assert torch.equal(there.cpu() != 0, here != 0)
    torch.manual_seed(4)
    seed = int(torch.randint(2**63 - 1, ()).item())
    mask = (
        ov.attention(q.detach().float(), flat.float(), unit, **how | {"seed": seed}) != 0
    ) / 0.75
    torch.manual_seed(4)
    out = te.scaled_dot_product_attention(q, k, v, dropout_p=0.25, precision="bf16")
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), d_out)
    check(found, exact((q, k, v), d_out, False, mask), 4 * 2**-9)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_dot_product_attention_trains(dropout):
    layer = te.DotProductAttention(4, 64, attention_dropout=dropout)
    q, k, v = (
        torch.randn(200, 2, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    torch.manual_seed(2)
    out = layer(q, k, v)
    d_out = torch.randn(out.shape, device="cuda", dtype=out.dtype)
    found = torch.autograd.grad(out, (q, k, v), d_out)
    torch.manual_seed(2)
    again = layer(q, k, v, checkpoint_core_attention=True)
    for one, other in zip(found, torch.autograd.grad(again, (q, k, v), d_out), strict=True):
        assert torch.equal(one, other)
    if dropout:
        return
    by_heads = [x.detach().permute(1, 2, 0, 3) for x in (q, k, v)]
    wanted = exact(by_heads, d_out.reshape(200, 2, 4, 64).permute(1, 2, 0, 3), True)
    check(found, [x.permute(2, 0, 1, 3) for x in wanted], 4 * 2**-9)


def test_a_recipe_of_fp8_trains():
    layer = te.DotProductAttention(4, 64)
    q, k, v = (
        torch.randn(128, 2, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    recipe = te.recipe.Float8CurrentScaling(fp8_dpa=True)
    with te.autocast(recipe=recipe):
        out = layer(q, k, v)
    d_out = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), d_out)
    # e4m3 inputs, which the CPU's gradients are of too (test_attention.py has the bound).
    by_heads = [x.detach().permute(1, 2, 0, 3) for x in (q, k, v)]
    wanted = exact(by_heads, d_out.reshape(128, 2, 4, 64).permute(1, 2, 0, 3), True)
    check(found, [x.permute(2, 0, 1, 3) for x in wanted], 0.15)
