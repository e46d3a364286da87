"""Shared by tests of te.DotProductAttention: inputs, recipes, and the exact result in float64."""

from __future__ import annotations

import math

import torch

import octavo.torch as te
from octavo.recipe import CustomRecipe, DelayedScaling, Float8CurrentScaling, MXFP8BlockScaling

B, H, G, S, D = 2, 4, 2, 24, 32
SOFTMAX_SCALE = 1 / math.sqrt(D)
FP8 = {
    "delayed": DelayedScaling(fp8_dpa=True, amax_history_len=4),
    "current": Float8CurrentScaling(fp8_dpa=True),
    "mxfp8": MXFP8BlockScaling(fp8_dpa=True),
    "custom": CustomRecipe(
        lambda role: te.MXFP8Quantizer(te.DType.kFloat8E4M3), fp8_dpa=True, fp8_mha=False
    ),
}


def inputs(layout="sbhd", dtype=torch.float32, groups=G, seed=0, keys=S):
    torch.manual_seed(seed)
    made = []
    for tokens, heads in ((S, H), (keys, groups), (keys, groups)):
        first = (tokens, B) if layout == "sbhd" else (B, tokens)
        made.append(torch.randn(*first, heads, D, dtype=dtype).requires_grad_())
    return made


def heads_first(x, layout="sbhd"):
    return x.permute(1, 2, 0, 3) if layout == "sbhd" else x.permute(0, 2, 1, 3)


def exact(q, k, v, hidden=None, added=0.0, scale=SOFTMAX_SCALE):
    """Of [batch, heads, tokens, size], in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = scale * q @ k.transpose(-1, -2) + added
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v


def causal(rows=S, keys=S, after=0):
    return torch.arange(keys)[None] > torch.arange(rows)[:, None] + after


def heads_last(out, layout="sbhd"):
    order = (2, 0, 1, 3) if layout == "sbhd" else (0, 2, 1, 3)
    return out.permute(order).flatten(2)


def layer(**given):
    return te.DotProductAttention(H, D, **{"num_gqa_groups": G, **given})


def in_scope(module, tensors, recipe, **given):
    with te.autocast(enabled=recipe is not None, recipe=recipe):
        return module(*tensors, **given)
