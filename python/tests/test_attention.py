"""octavo.attention against torch in float64, and as a replacement of torch's own."""

import numpy as np
import pytest

import octavo as ov

torch = pytest.importorskip("torch", reason="the other side of these comparisons")
sdpa = torch.nn.functional.scaled_dot_product_attention


def inputs(*shape, keys=None, kv_heads=None, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    batch, heads, queries, size = shape
    kv = (batch, kv_heads or heads, keys or queries, size)
    return [torch.randn(s, generator=generator).to(dtype) for s in (shape, kv, kv)]


def exact(q, k, v, **how):
    return sdpa(q.double(), k.double(), v.double(), **how)


def failures(got, want):
    error = (got.double() - want).abs()
    return int((~(error <= 5e-3 + 5e-3 * want.abs())).sum())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("precision", ["auto", "bf16", "f32", "exact"])
def test_within_the_tolerance_of_torch_in_float64(precision, causal):
    q, k, v = inputs(2, 3, 300, 64)
    want = exact(q, k, v, is_causal=causal)
    got = ov.attention(q, k, v, causal=causal, precision=precision, out="float32")
    assert failures(got, want) == 0
    if precision == "exact":
        wide = ov.attention(q.double(), k.double(), v.double(), causal=causal, precision="exact")
        assert wide.dtype == torch.float64
        # The scale, 1 / sqrt(64), is exact in float32, so only the order of sums differs.
        torch.testing.assert_close(wide, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("precision", ["auto", "strict", "bf16", "f32", "exact"])
def test_float64_in_is_float64_out(precision):
    q, k, v = (x.double() for x in inputs(1, 2, 40, 48, dtype=torch.float32))
    got = ov.attention(q, k, v, precision=precision)
    assert got.dtype == torch.float64
    assert ov.attention(q.numpy(), k.numpy(), v.numpy(), precision=precision).dtype == np.float64
    te = pytest.importorskip("octavo.torch")
    # As torch's own has it; the scale, 1 / sqrt(48), is not a number of float32.
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = te.scaled_dot_product_attention(*leaves, precision=precision)
    out.sum().backward()
    assert out.dtype == torch.float64 and all(x.grad.dtype == torch.float64 for x in leaves)
    if precision == "exact":
        torch.testing.assert_close(got, exact(q, k, v), rtol=0, atol=1e-13)


def test_the_log_sum_exp_is_within_the_tolerance():
    q, k, _ = inputs(1, 2, 64, 64, keys=1, dtype=torch.float32)
    v = torch.zeros_like(k)
    _, lse = ov.attention(4 * q, k, v, return_lse=True)
    want = (4 * q.double() @ k.double().mT / 8).squeeze(-1)
    assert failures(lse, want) == 0


def test_strict_is_exact_for_its_inputs():
    q, k, v = inputs(1, 2, 200, 64, dtype=torch.float32)
    codes = [ov.quantize(x, "fp8-channel") for x in (q, k, v)]
    back = [ov.dequantize(c) for c in codes]
    got = ov.attention(*codes, precision="strict")
    assert got.dtype == torch.float32
    assert failures(got, exact(*back)) == 0
    assert failures(ov.attention(q, k, v, precision="naive"), exact(q, k, v)) > 0


def test_shared_heads_windows_and_lengths():
    q, k, v = inputs(2, 4, 40, 32, keys=70, kv_heads=2, dtype=torch.float32)
    rows, cols = torch.arange(40)[:, None] + 30, torch.arange(70)[None, :]
    lengths = torch.tensor([70, 33])[:, None, None, None]
    mask = ((cols <= rows) & (cols >= rows - 9))[None, None] & (cols < 70)
    want = exact(q, k, v, attn_mask=mask, enable_gqa=True)
    got = ov.attention(
        q, k, v, causal=True, align="bottom_right", window=(9, None), precision="f32"
    )
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)
    padded = exact(q, k, v, attn_mask=cols < lengths, enable_gqa=True, scale=0.3)
    got = ov.attention(q, k, v, key_lengths=[70, 33], softmax_scale=0.3, precision="f32")
    torch.testing.assert_close(got.double(), padded, rtol=1e-5, atol=1e-6)


def test_log_sum_exp_and_report():
    q, k, v = inputs(1, 2, 256, 64)
    out, lse, report = ov.attention(q, k, v, return_lse=True, return_report=True)
    assert out.dtype == torch.bfloat16 and lse.shape == (1, 2, 256)
    scores = (q.double() @ k.double().transpose(-1, -2)) / 8
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=0, atol=0.05)
    assert sum(choice.count for choice in report.choices) == 2 * 256
    choice = report.choices[0]
    assert choice.n_eff > 1 and choice.predicted <= choice.tolerance == 5e-3
    assert choice.precision in choice.explanation or "cheapest" in choice.explanation
    assert sum(report.share(name) for name in ("fast", "balanced", "bf16", "f32")) == 1


def test_numpy_in_numpy_out_and_into_memory():
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((3, 20, 16), dtype=np.float32) for _ in range(3))
    got = ov.attention(q, k, v, precision="f32")
    assert isinstance(got, np.ndarray) and got.shape == (3, 20, 16)
    into = np.zeros_like(got)
    assert ov.attention(q, k, v, precision="f32", out=into) is into
    np.testing.assert_array_equal(into, got)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"k": (1, 2, 8, 8)}, ValueError, "head size is 16 in Q and 8 in K"),
        ({"k": (1, 3, 8, 16)}, ValueError, "heads"),
        ({"v": (1, 2, 9, 16)}, ValueError, "8 keys and 9 values"),
        ({"precision": "fp8"}, ValueError, "expected auto, exact"),
        ({"align": "left"}, ValueError, "top_left"),
        ({"window": 3}, TypeError, "before, after"),
        ({"key_lengths": [9]}, ValueError, "expected 0 to 8"),
        ({"rtol": -1}, ValueError, "rtol"),
        ({"precision": 3}, TypeError, "precision of type int"),
    ],
)
def test_what_does_not_fit_is_named(change, error, words):
    arrays = {name: np.zeros(change.pop(name, (1, 2, 8, 16)), np.float32) for name in "qkv"}
    with pytest.raises(error, match=words):
        ov.attention(**arrays, **change)


def test_codes_without_scales_are_refused():
    q = np.zeros((1, 2, 8, 16), np.float32)
    with pytest.raises(TypeError, match="codes without scales"):
        ov.attention(q, ov.encode(q, "e4m3fn"), q)


def test_in_place_of_torch():
    import octavo.torch as te

    q, k, v = inputs(1, 2, 64, 32, dtype=torch.float32)
    got = te.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert failures(got, exact(q, k, v, is_causal=True)) == 0
    with pytest.raises(ValueError, match="dropout_p = 1.0; expected 0 to less than 1"):
        te.scaled_dot_product_attention(q, k, v, dropout_p=1.0)
    with pytest.raises(ValueError, match="enable_gqa"):
        te.scaled_dot_product_attention(q, k[:, :1], v[:, :1])


# The inputs' error, which meets itself in the scores and again in the products: see
# tests/attention/attention_gradient_test.cc.
@pytest.mark.parametrize(
    ("precision", "bound"),
    [("f32", 1e-5), ("auto", 1e-5), ("bf16", 1e-2), ("balanced", 5e-2), ("fast", 0.15)],
)
def test_gradients_of_torch_in_float64(precision, bound):
    import octavo.torch as te

    given = inputs(2, 2, 50, 64, dtype=torch.float32)
    d_out = torch.randn(2, 2, 50, 64, generator=torch.Generator().manual_seed(9))
    ours = [x.clone().requires_grad_() for x in given]
    te.scaled_dot_product_attention(*ours, is_causal=True, precision=precision).backward(d_out)
    theirs = [x.double().requires_grad_() for x in given]
    sdpa(*theirs, is_causal=True).backward(d_out.double())
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad.double() - b.grad).norm() <= bound * b.grad.norm()


def test_backward_has_what_forward_found():
    """On f32 only: other precisions have rounded P in the output and the log-sum-exp."""
    import octavo.torch as te

    given = inputs(1, 2, 40, 32, dtype=torch.float32)
    for precision, dtype, keeps in (
        ("f32", torch.float32, True),
        ("f32", torch.bfloat16, False),
        ("bf16", torch.float32, False),
        ("auto", torch.float32, False),
    ):
        shapes = []
        leaves = [x.to(dtype).requires_grad_() for x in given]
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x, into=shapes: into.append(tuple(x.shape)) or x, lambda x: x
        ):
            out = te.scaled_dot_product_attention(*leaves, precision=precision)
        assert ((1, 2, 40) in shapes) == keeps, (precision, dtype, shapes)
        assert len(shapes) == (5 if keeps else 3)
        out.backward(torch.ones_like(out))
    # As of torch's own, the output must not be changed in between.
    leaves = [x.clone().requires_grad_() for x in given]
    out = te.scaled_dot_product_attention(*leaves, precision="f32")
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradcheck_in_float64():
    import octavo.torch as te

    given = [x.double().requires_grad_() for x in inputs(1, 2, 5, 4, dtype=torch.float32)]

    def run(q, k, v):
        return te.scaled_dot_product_attention(q, k, v, is_causal=True, precision="exact")

    assert torch.autograd.gradcheck(run, given, eps=1e-5, atol=1e-7)


def test_kv_cache_is_the_whole_sequence():
    q, k, v = inputs(2, 4, 3, 64, keys=50, kv_heads=2, dtype=torch.float32)
    cache = ov.KVCache(2, 2, 64, capacity=8)
    cache.append(k[:, :, :40], v[:, :, :40])
    for i in range(40, 50):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
    assert cache.lengths == [50, 50] and cache.capacity >= 50
    got = cache.attend(q)
    whole = [ov.quantize(x, "fp8-channel") for x in (k, v)]
    want = ov.attention(q, *whole, causal=True, align="bottom_right", precision="bf16")
    assert torch.equal(got, want)
    # FP8 of keys and values: 2.6 % each, of an output that is itself about 1 / sqrt(n_eff).
    seen = torch.arange(50)[None, :] <= torch.arange(3)[:, None] + 47
    plain = exact(q, k, v, enable_gqa=True, attn_mask=seen)
    assert (got - plain).norm() <= 0.1 * plain.norm()
    assert cache.nbytes < 0.6 * cache.capacity * 2 * 2 * 64 * 2 * 2
    cache.truncate(0, 10)
    assert cache.lengths == [10, 50]
    with pytest.raises(ValueError, match="tokens"):
        cache.append(k[:, :1], v)


def test_a_kv_cache_says_what_it_is():
    cache = ov.KVCache(2, 4, 64, 32, capacity=8)
    cache.append(torch.zeros(2, 4, 3, 64), torch.zeros(2, 4, 3, 32), counts=[3, 1])
    assert repr(cache) == (
        "KVCache(batches=2, kv_heads=4, head_size=64, value_size=32, "
        "scaling='fp8-channel: e4m3fn, tile 1xall, scale f32', lengths=[3, 1], capacity=8)"
    )
    assert "lengths=[0, 0, 0, 0, 0, 0, ...]" in repr(ov.KVCache(100, 1, 32))


def test_a_report_prints_its_worst_choices():
    given = inputs(1, 4, 300, 64, dtype=torch.float32)
    _, report = ov.attention(*given, causal=True, return_report=True)
    first, *rows, last = str(report).splitlines()
    assert len(report.choices) == 12 and len(rows) == 5
    assert first == repr(report) and first.startswith("AttentionReport(12 choices: ")
    assert last == "  and 7 more, no nearer to their tolerance: see .choices"
    near = sorted(-choice.predicted / choice.tolerance for choice in report.choices)
    worst = next(c for c in report.choices if -c.predicted / c.tolerance == near[0])
    assert f"head {worst.head}, rows {worst.first} to " in rows[0] and worst.precision in rows[0]
    _, small = ov.attention(*(x[:, :, :9] for x in given), return_report=True)
    assert len(str(small).splitlines()) == 1 + len(small.choices)


def masks(batch, heads, queries, keys):
    generator = torch.Generator().manual_seed(11)
    for shape in [
        (queries, keys),
        (1, keys),
        (batch, 1, 1, keys),
        (batch, heads, queries, keys),
        (heads, queries, 1),
    ]:
        seen = torch.rand(shape, generator=generator) < 0.7
        seen[..., 0] = True  # torch has NaN for rows that see nothing
        yield seen
        yield torch.randn(shape, generator=generator) * 2
        yield torch.zeros(shape).masked_fill(~seen, -torch.inf)


@pytest.mark.parametrize("precision", ["exact", "f32", "bf16", "strict", "auto"])
def test_attn_mask_as_torch_has_it(precision):
    te = pytest.importorskip("octavo.torch")
    q, k, v = inputs(2, 3, 70, 64, keys=130)
    for mask in masks(2, 3, 70, 130):
        wide = mask if mask.dtype == torch.bool else mask.double()
        want = exact(q, k, v, attn_mask=wide)
        got = te.scaled_dot_product_attention(q, k, v, attn_mask=mask, precision=precision)
        # bfloat16 results round by 2^-9 of themselves; FP8 inputs are off by 2.6 % each.
        off = (got.double() - want).norm() / want.norm()
        assert off <= (0.08 if precision == "strict" else 5e-3), (precision, mask.shape, mask.dtype)


def test_gradients_with_attn_mask():
    te = pytest.importorskip("octavo.torch")
    q, k, v = inputs(1, 2, 20, 16, keys=33, dtype=torch.float64)
    mask = torch.randn(1, 2, 20, 33)
    mask[..., 5:9] = -torch.inf
    d_out = torch.randn(1, 2, 20, 16, dtype=torch.float64)
    found = []
    for function, extra in ((te.scaled_dot_product_attention, {"precision": "exact"}), (sdpa, {})):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        how = mask if extra else mask.double()
        function(*leaves, attn_mask=how, **extra).backward(d_out)
        found.append([x.grad for x in leaves])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_attn_mask_hides_nan_and_whole_rows():
    te = pytest.importorskip("octavo.torch")
    for precision in ("exact", "f32", "bf16"):
        q, k, v = inputs(1, 1, 40, 32, keys=90, dtype=torch.float32)
        k[..., 70, 3] = torch.nan
        v[..., 71, 4] = torch.nan
        seen = torch.ones(40, 90, dtype=torch.bool)
        seen[:, 70:72] = False
        seen[7] = False
        got = te.scaled_dot_product_attention(q, k, v, attn_mask=seen, precision=precision)
        assert torch.isfinite(got).all(), precision
        assert (got[..., 7, :] == 0).all(), precision


def test_bad_masks_say_what_they_are():
    te = pytest.importorskip("octavo.torch")
    q, k, v = inputs(1, 2, 16, 16)
    with pytest.raises(ValueError, match="attn_mask and is_causal"):
        te.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.ones(16, 16, dtype=torch.bool), is_causal=True
        )
    with pytest.raises(ValueError, match=r"bias has shape \[16, 15\]"):
        te.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(16, 15))
    with pytest.raises(TypeError, match="int64"):
        te.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(16, 16, dtype=torch.int64))
    with pytest.raises(TypeError, match="float64"):
        ov.attention(q, k, v, bias=torch.zeros(16, 16, dtype=torch.float64))
    with pytest.raises(ValueError, match="no seed"):
        ov.attention(q, k, v, dropout_p=0.5)


def test_second_order_gradients_are_an_error():
    import octavo.torch as te

    q, k, v = (torch.randn(1, 2, 16, 64, requires_grad=True) for _ in range(3))
    out = te.scaled_dot_product_attention(q, k, v)
    (gradient,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients are not offered"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16], ids=str)
def test_auto_keeps_its_promise_where_some_keys_are_long(dtype):
    """Keys with more weight have scores with larger errors."""
    for seed, (queries, keys, size, long, times) in enumerate(
        [(160, 384, 64, 1, 8), (160, 384, 64, 1, 8), (64, 2048, 128, 3, 6), (64, 512, 64, 2, 12)]
    ):
        q, k, v = inputs(1, 1, queries, size, keys=keys, dtype=torch.float32, seed=seed)
        k[..., 7 : 7 + long, :] *= times
        q, k, v = (x.to(dtype) for x in (q, k, v))
        assert failures(ov.attention(q, k, v, out="float32"), exact(q, k, v)) == 0
