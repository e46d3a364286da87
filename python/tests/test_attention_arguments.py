"""Invalid arguments of attention: the error names the argument, what was got and what is
expected."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

Q = np.random.default_rng(0).standard_normal((1, 2, 4, 32)).astype(np.float32)


@pytest.mark.parametrize(
    "given, kind, text",
    [
        ({"causal": "no"}, TypeError, "got causal = 'no'; expected True or False"),
        ({"causal": 1}, TypeError, "got causal = 1; expected True or False"),
        ({"return_lse": "yes"}, TypeError, "got return_lse = 'yes'; expected True or False"),
        ({"return_report": 3}, TypeError, "got return_report = 3; expected True or False"),
        ({"softmax_scale": "x"}, TypeError, "got softmax_scale = 'x'; expected a number"),
        ({"softmax_scale": np.ones(2)}, TypeError, "got softmax_scale = array([1., 1.])"),
        ({"rtol": "x"}, TypeError, "got rtol = 'x'; expected a number"),
        ({"atol": None}, TypeError, "got atol = None; expected a number"),
        ({"atol": -1.0}, ValueError, "got atol = -1.0; expected a number of at least 0"),
        ({"align": np.ones(3)}, TypeError, "got align of type ndarray; expected a name"),
        ({"align": "left"}, ValueError, "got align = 'left'; expected top_left or bottom_right"),
        ({"window": (2**70, 0)}, ValueError, "got window = 1180591620717411303424"),
        ({"window": 3}, TypeError, "got window = 3; expected (before, after), or None"),
    ],
)
def test_of_octavo_attention(given, kind, text):
    with pytest.raises(kind) as caught:
        ov.attention(Q, Q, Q, **given)
    assert str(caught.value).startswith("[attention] ") and text in str(caught.value)


def test_numbers_and_flags_of_numpy():
    given = {"causal": np.bool_(True), "softmax_scale": np.float32(0.5), "atol": np.float64(1e-3)}
    same = {"causal": True, "softmax_scale": 0.5, "atol": 1e-3}
    assert np.array_equal(ov.attention(Q, Q, Q, **given), ov.attention(Q, Q, Q, **same))


def test_of_kv_cache():
    cache = ov.KVCache(batches=2, kv_heads=2, head_size=32)
    q = np.concatenate([Q, Q])
    with pytest.raises(ValueError, match="got 4 queries, and the longest sequence has 0 tokens"):
        cache.attend(q)
    cache.append(q[:, :, :3], q[:, :, :3], counts=[3, 1])
    with pytest.raises(ValueError, match="got 4 queries, and the longest sequence has 3 tokens"):
        cache.attend(q)
    out = cache.attend(q[:, :, :3])
    assert not out[1, :, :2].any() and out[1, :, 2].any()  # a shorter one has fewer rows
    for other in (q[:1], q[..., :16], q[:, :1], q[0]):
        with pytest.raises(ValueError, match="a multiple of 2, queries, 32"):
            cache.attend(other)
    assert np.array_equal(cache.attend(q[:, :, :3].tolist()), out)  # lists, as attention takes them
    last = {"q": q[:, :, :1]}
    for given, kind, text in (
        ({"softmax_scale": "x"}, TypeError, "got softmax_scale = 'x'; expected a number"),
        ({"rtol": "x"}, TypeError, "got rtol = 'x'; expected a number"),
        ({"window": 2**70}, ValueError, "got window = 1180591620717411303424"),
    ):
        with pytest.raises(kind) as caught:
            cache.attend(**last, **given)
        assert text in str(caught.value)
    for given, kind, text in (
        (("x", 1), TypeError, "got batch of type str; expected an integer"),
        ((0, 2**70), ValueError, "got length = 1180591620717411303424"),
        ((5, 0), ValueError, "got batch 5"),
    ):
        with pytest.raises(kind) as caught:
            cache.truncate(*given)
        assert text in str(caught.value)


def test_of_torch_s_function():
    torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")
    import octavo.torch as te

    x = torch.randn(1, 2, 4, 32)
    for given, kind, text in (
        ((Q, x, x), TypeError, "got query = array("),
        ((x, None, x), TypeError, "got key = None; expected a torch tensor"),
        ((x, x, Q), TypeError, "got value = array("),
        ((x, x[0, 0, 0], x), ValueError, "got key of shape (32,); expected [batch, heads,"),
        ((x, x, x[0]), ValueError, "of 4, 4 and 3 dimensions; expected as many of each"),
        ((x, x, x, Q), TypeError, "got attn_mask = array("),
        ((x, x, x, None, "a"), TypeError, "got dropout_p = 'a'; expected a number"),
        ((x, x, x, None, 1.5), ValueError, "got dropout_p = 1.5; expected 0 to less than 1"),
        ((x, x, x, None, 0.0, "no"), TypeError, "got is_causal = 'no'; expected True or False"),
        ((x, x, x, None, 0.0, False, "no"), TypeError, "got scale = 'no'; expected a number"),
        ((x, x, x, None, 0.0, False, None, "no"), TypeError, "got enable_gqa = 'no'"),
    ):
        with pytest.raises(kind) as caught:
            te.scaled_dot_product_attention(*given)
        assert str(caught.value).startswith("[scaled_dot_product_attention] ")
        assert text in str(caught.value)


def test_out_is_a_type_by_name_or_as_it_is():
    wanted = ov.attention(Q, Q, Q, out="float16")
    assert wanted.dtype == np.float16
    for out in (np.float16, np.dtype(np.float16)):
        assert np.array_equal(ov.attention(Q, Q, Q, out=out), wanted)
    with pytest.raises(TypeError, match="int32"):
        ov.attention(Q, Q, Q, out=np.int32)
