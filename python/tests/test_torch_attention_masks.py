"""te.DotProductAttention: which keys a row sees, and arguments that are refused."""

from __future__ import annotations

import inspect
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from attention_testing import (  # noqa: E402
    FP8,
    B,
    D,
    G,
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

import octavo.torch as te  # noqa: E402

K = 30
SUMS = {
    "attn_mask_type": "padding",
    "cu_seqlens_q": torch.tensor([0, 5, 9]),
    "cu_seqlens_kv": torch.tensor([0, 7, 9]),
}


def check(out, want):
    torch.testing.assert_close(out.double(), heads_last(want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "kind, hidden",
    [
        ("no_mask", None),
        ("causal", causal(S, K)),
        ("causal_bottom_right", causal(S, K, K - S)),
    ],
)
def test_kinds(kind, hidden):
    tensors = inputs(keys=K)
    at = [heads_first(x) for x in tensors]
    check(layer(attn_mask_type=kind)(*tensors), exact(*at, hidden))
    check(layer()(*tensors, attn_mask_type=kind), exact(*at, hidden))


@pytest.mark.parametrize("kind", ["no_mask", "causal"])
@pytest.mark.parametrize("window", [(3, 0), (5, -1), (-1, 0)])
def test_windows(kind, window):
    tensors = inputs()
    apart = torch.arange(S)[None] - torch.arange(S)[:, None]
    hidden = causal() if kind == "causal" else torch.zeros(S, S, dtype=torch.bool)
    if window[0] >= 0:
        hidden = hidden | (apart < -window[0])
    if window[1] >= 0:
        hidden = hidden | (apart > window[1])
    want = exact(*(heads_first(x) for x in tensors), hidden)
    check(layer(attn_mask_type=kind, window_size=window)(*tensors), want)


LENGTHS = [S, 7]


@pytest.mark.parametrize("name", [None, "delayed", "current", "mxfp8"])
@pytest.mark.parametrize("kind", ["padding", "padding_causal"])
@pytest.mark.parametrize("says", ["mask", "masks", "sums"])
def test_padding_is_ignored(kind, says, name):
    """Whatever lies there: rows of padding are zeros, gradients too, and no scale sees it."""
    padding = (torch.arange(S)[None] >= torch.tensor(LENGTHS)[:, None])[:, None, None]
    sums = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32)
    how = {
        "mask": {"attention_mask": padding},
        "masks": {"attention_mask": (padding, padding)},
        "sums": {"cu_seqlens_q": sums, "cu_seqlens_kv": sums},
    }[says]
    recipe = FP8.get(name)
    clean = inputs()
    there = ~padding[:, 0, 0].t()[:, :, None, None]
    dirty = [torch.where(there, x.detach(), torch.nan).requires_grad_() for x in clean]
    out = in_scope(layer(attn_mask_type=kind), dirty, recipe, **how)
    alone = []  # each sequence by itself: not the same scales under a recipe
    for batch, length in enumerate(LENGTHS):
        at = [heads_first(x)[batch : batch + 1, :, :length] for x in clean]
        hidden = causal(length, length) if "causal" in kind else None
        want = exact(*at, hidden)
        alone.append(torch.nn.functional.pad(want, (0, 0, 0, S - length)))
    want = heads_last(torch.cat(alone))
    if recipe is None:
        torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    else:
        # E4M3's 2^-4 in Q and K (scores of a few units), V and P: gross, to see NaN and mixups.
        assert (out.double() - want).abs().max() < 0.5
    gradients = torch.autograd.grad(out.sum(), dirty)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert not gradient.masked_select(~there).any()


def test_padding_enters_no_amax():
    module = layer(attn_mask_type="padding")
    tensors = [x.detach() for x in inputs()]
    sums = torch.tensor([0, 5, 10])
    far = [x.clone() for x in tensors]
    for x in far:
        x[5:] = 1e6
    in_scope(module, far, FP8["delayed"], cu_seqlens_q=sums, cu_seqlens_kv=sums)
    for quantizer, x in zip(module.quantizers["scaling_fwd"], tensors, strict=False):
        assert quantizer.scale == torch.tensor(448.0) / x[:5].abs().max()


def test_any_mask_and_bias():
    tensors = inputs()
    hidden = torch.rand(B, 1, S, S) < 0.4
    hidden[..., 0] = False
    bias = torch.randn(1, H, S, S)
    at = [heads_first(x) for x in tensors]
    module = layer(attn_mask_type="arbitrary")
    check(module(*tensors, attention_mask=hidden), exact(*at, hidden))
    given = {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": bias}
    check(module(*tensors, attention_mask=hidden, **given), exact(*at, hidden, bias))
    check(layer(attn_mask_type="no_mask")(*tensors, **given), exact(*at, None, bias))


def test_softmax_scale_and_sizes_of_values():
    q, k, _ = inputs()
    v = torch.randn(S, B, G, 16)
    module = te.DotProductAttention(
        H, (D, 16), num_gqa_groups=G, attn_mask_type="no_mask", softmax_scale=0.5
    )
    out = module(q, k, v)
    assert out.shape == (S, B, H * 16)
    check(out, exact(*(heads_first(x) for x in (q, k, v)), scale=0.5))


NAMES = [
    "num_attention_heads",
    "kv_channels",
    "num_gqa_groups",
    "attention_dropout",
    "qkv_format",
    "attn_mask_type",
    "window_size",
    "sequence_parallel",
    "tp_size",
    "get_rng_state_tracker",
    "tp_group",
    "layer_number",
    "attention_type",
    "cp_group",
    "cp_global_ranks",
    "cp_stream",
    "cp_comm_type",
    "softmax_scale",
    "softmax_type",
    "return_max_logit",
]


def test_arguments_are_transformer_engine_s():
    names = list(inspect.signature(te.DotProductAttention.__init__).parameters)
    assert names[1 : 1 + len(NAMES)] == NAMES


@pytest.mark.parametrize(
    "name, value",
    [
        ("sequence_parallel", True),
        ("tp_size", 2),
        ("tp_group", object()),
        ("cp_group", object()),
        ("cp_comm_type", "a2a"),
        ("softmax_type", "learnable"),
        ("return_max_logit", True),
    ],
)
def test_what_is_not_offered(name, value):
    with pytest.raises(RuntimeError, match=rf"\[DotProductAttention\] {name} is not offered"):
        layer(**{name: value})


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"num_gqa_groups": 3}, ValueError, "expected a multiple of num_gqa_groups = 3"),
        ({"num_gqa_groups": 0}, ValueError, "expected all at least 1"),
        ({"num_gqa_groups": 1.5}, TypeError, "got num_gqa_groups = 1.5; expected an integer"),
        ({"qkv_format": "thd"}, ValueError, "got qkv_format = 'thd'; expected one of sbhd, bshd"),
        ({"attn_mask_type": "diagonal"}, ValueError, "got attn_mask_type = 'diagonal'"),
        ({"attn_mask_type": None}, TypeError, "got attn_mask_type = None"),
        ({"window_size": 3}, TypeError, "got window_size = 3"),
        ({"window_size": (-2, 0)}, ValueError, "numbers of at least -1"),
        ({"attention_type": "both"}, ValueError, "expected one of self, cross"),
        ({"softmax_scale": "a"}, TypeError, "got softmax_scale = 'a'; expected a number"),
        ({"precision": "exact"}, ValueError, "expected one of fast, strict"),
        ({"attention_dropout": "no"}, TypeError, "got attention_dropout = 'no'"),
        ({"attention_dropout": 1.0}, ValueError, "expected 0 to less than 1"),
        ({"name": 3}, TypeError, "got name = 3"),
    ],
)
def test_wrong_arguments_are_named(given, kind, text):
    with pytest.raises(kind) as caught:
        layer(**given)
    assert text in str(caught.value) and str(caught.value).startswith("[DotProductAttention]")


def test_kv_channels():
    for wrong in ((1, 2, 3), "a", 0, None, 2.0):
        with pytest.raises((TypeError, ValueError), match="kv_channels"):
            te.DotProductAttention(H, wrong)


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"attention_mask": torch.ones(1)}, ValueError, "causal, which ignores it"),
        ({"cu_seqlens_q": torch.zeros(3)}, ValueError, "got cu_seqlens"),
        ({"attn_mask_type": "padding"}, TypeError, "got attention_mask = None"),
        (
            {"attn_mask_type": "padding", "attention_mask": torch.zeros(B, S, dtype=torch.bool)},
            ValueError,
            "expected (2, 1, 1, 24)",
        ),
        (
            {
                "attn_mask_type": "padding",
                "attention_mask": torch.arange(S).lt(2).expand(B, 1, 1, S),
            },
            ValueError,
            "padding before tokens",
        ),
        (
            {"attn_mask_type": "padding", "cu_seqlens_q": torch.tensor([0, 1, 2])},
            ValueError,
            "got cu_seqlens_kv = None",
        ),
        (
            {
                "attn_mask_type": "padding",
                "cu_seqlens_q": torch.tensor([0, 99, 100]),
                "cu_seqlens_kv": torch.tensor([0, 1, 2]),
            },
            ValueError,
            "lengths [99, 1]; expected each from 0 to 24",
        ),
        ({"attn_mask_type": "arbitrary"}, TypeError, "expected a tensor of torch.bool"),
        ({"window_size": (1, 1)}, ValueError, "a causal row sees nothing after itself"),
        ({"core_attention_bias": torch.ones(1)}, ValueError, "say 'post_scale_bias'"),
        ({"core_attention_bias_type": "alibi"}, ValueError, "expected one of no_bias"),
        (
            {"core_attention_bias_type": "post_scale_bias"},
            TypeError,
            "got core_attention_bias = None",
        ),
        (
            {
                "core_attention_bias_type": "post_scale_bias",
                "core_attention_bias": torch.ones(S, S, dtype=torch.bool),
            },
            TypeError,
            "got core_attention_bias of torch.bool; expected floating point",
        ),
        (
            {
                "attn_mask_type": "padding",
                "attention_mask": (torch.zeros(B, 1, 1, S, dtype=torch.bool),),
            },
            ValueError,
            "got 1 attention masks; expected one, or one for queries and one for keys",
        ),
        ({"fp8_output": True}, RuntimeError, "fp8_output is not offered"),
        ({"alibi_slopes": torch.ones(H)}, RuntimeError, "alibi_slopes is not offered"),
        ({"max_seqlen_q": S + 1}, ValueError, "got max_seqlen_q = 25"),
        ({"max_seqlen_q": S - 1}, ValueError, "got max_seqlen_q = 23; expected 24, the longest"),
        ({"max_seqlen_kv": 0}, ValueError, "got max_seqlen_kv = 0; expected 24"),
        ({"max_seqlen_kv": 2.0}, TypeError, "got max_seqlen_kv = 2.0; expected an integer"),
        (
            {**SUMS, "max_seqlen_kv": 6},
            ValueError,
            "got max_seqlen_kv = 6; expected 7, the longest",
        ),
        (
            {**SUMS, "cu_seqlens_q": torch.tensor([0.0, 2.7, 5.0])},
            TypeError,
            "got cu_seqlens_q of torch.float32; expected integers",
        ),
        (
            {**SUMS, "cu_seqlens_kv": torch.tensor([False, True, True])},
            TypeError,
            "got cu_seqlens_kv of torch.bool; expected integers",
        ),
        (
            {**SUMS, "attention_mask": torch.zeros(B, 1, 1, S, dtype=torch.bool)},
            ValueError,
            "got attention_mask and cu_seqlens",
        ),
        ({"window_size": (2**70, 0)}, ValueError, "got window_size = (1180591620717411303424, 0)"),
        (
            {
                "core_attention_bias_type": "post_scale_bias",
                "core_attention_bias": torch.ones(S, S, dtype=torch.float64),
            },
            TypeError,
            "got core_attention_bias of torch.float64; expected float32",
        ),
        ({"inference_params": torch.ones(2)}, RuntimeError, "inference_params is not offered"),
        ({"num_splits": torch.ones(2)}, RuntimeError, "num_splits is not offered"),
    ],
)
def test_wrong_masks_are_named(given, kind, text):
    with pytest.raises(kind) as caught:
        layer()(*inputs(), **given)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", [None, "delayed", "mxfp8"])
def test_wrong_inputs_are_named(name):
    q, k, v = inputs()
    cases = [
        ((q, k, 3), TypeError, "got value_layer = 3"),
        ((q[0], k, v), ValueError, "got query_layer of shape"),
        ((q, q, v), ValueError, "got key_layer of shape"),
        ((q.int(), k, v), TypeError, "got query_layer of torch.int32"),
        ((q, k[:5], v), ValueError, "there are 5 keys and 24 values"),
        ((q, k[:, :1], v[:, :1]), ValueError, "the same number of batches"),
    ]
    for tensors, kind, text in cases:
        module = layer()
        with pytest.raises(kind) as caught:
            in_scope(module, tensors, FP8.get(name))
        assert text in str(caught.value)
        assert module.quantizers["scaling_fwd"] == []


def test_a_bias_that_was_changed_is_noticed():
    bias = torch.randn(S, S)
    given = {"core_attention_bias_type": "post_scale_bias", "core_attention_bias": bias}
    out = layer()(*inputs(), **given, attn_mask_type="no_mask")
    bias.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_bounds_that_hold_change_nothing():
    tensors, bounds = inputs(), {"max_seqlen_q": 5, "max_seqlen_kv": 7}
    assert torch.equal(layer()(*tensors, **SUMS, **bounds), layer()(*tensors, **SUMS))
    assert torch.equal(layer()(*tensors, max_seqlen_q=S), layer()(*tensors))


def test_softmax_scale_is_not_rounded():
    """In float64, where 0.1 and the float32 next to it are not the same."""
    tensors = [x.double() for x in inputs()]
    at = [heads_first(x) for x in tensors]
    module = layer(attn_mask_type="no_mask", softmax_scale=0.1)
    scores = 0.1 * at[0] @ at[1].repeat_interleave(H // G, 1).transpose(-1, -2)
    want = scores.softmax(-1) @ at[2].repeat_interleave(H // G, 1)
    torch.testing.assert_close(module(*tensors), heads_last(want), rtol=1e-12, atol=1e-12)


def test_arrays_for_what_is_not_offered():
    for name in ("tp_size", "tp_group", "cp_stream"):
        with pytest.raises(RuntimeError, match=f"{name} is not offered"):
            te.DotProductAttention(H, D, **{name: torch.ones(2)})
        if not name.startswith("cp"):
            with pytest.raises(RuntimeError, match=f"{name} is not offered"):
                te.Linear(32, 32, device="cpu", **{name: torch.ones(2)})
