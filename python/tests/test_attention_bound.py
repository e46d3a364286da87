"""Certified and probabilistic bounds of attention, and `auto` that chooses by them."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def inputs(seed=1, tokens=200, size=64):
    random = np.random.default_rng(seed)
    return [random.standard_normal((1, 2, tokens, size), dtype=np.float32) for _ in range(3)]


def errors_of(out, q, k, v, **how):
    exact = ov.attention(
        *(x.astype(np.float64) for x in (q, k, v)), precision="exact", out="float64", **how
    )
    return np.abs(out.astype(np.float64) - exact).max(-1)


@pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "strict", "balanced", "fast", "auto"])
def test_no_row_is_above_its_bound(precision):
    q, k, v = inputs()
    how = {"causal": True, "return_bound": True, "return_probabilistic_bound": True}
    try:
        out, bound, likely = ov.attention(q, k, v, precision=precision, **how)
    except RuntimeError as error:
        if precision in ("f32", "auto") or "none is derived" not in str(error):
            raise
        pytest.skip(f"this CPU's kernels of {precision} state no bound: {error}")
    assert bound.shape == likely.shape == (1, 2, 200) and bound.dtype == np.float32
    error = errors_of(out, q, k, v, causal=True)
    assert (error <= bound).all() and (error <= likely).all() and (likely <= bound).all()


def test_codes_are_taken_as_they_are():
    codes = [ov.quantize(x, "fp8-channel") for x in inputs()]
    values = [ov.dequantize(x, "float64") for x in codes]
    out, bound = ov.attention(*codes, precision="f32", return_bound=True)
    assert (errors_of(out, *values) <= bound).all()
    assert bound.max() < 1e-3  # nothing is rounded but sums


def test_certified_auto():
    q, k, v = inputs()
    out, report, bound = ov.attention(
        q, k, v, certified=True, return_report=True, return_bound=True
    )
    assert (errors_of(out, q, k, v) <= bound).all() and bound.max() <= 5e-3
    assert report.redone == 0
    for choice in report.choices:
        assert choice.predicted <= choice.tolerance and "certified" in choice.explanation
    cheap = ov.attention(q, k, v, certified=True, atol=50.0, return_report=True)[1]
    assert cheap.share("fast") == 1
    hard = ov.attention(q, k, v, certified=True, atol=1e-9, return_report=True)[1]
    assert hard.share("f32") == 1 and "no certified bound" in hard.choices[0].explanation


def test_early_rows_of_a_causal_mask():
    """Means of keys and scales of channels come from all tokens, also from those not seen."""
    q, k, v = inputs(tokens=512)
    k[:, :, :256] *= 1e-3
    k[:, :, 256:] = np.linspace(80, 100, 64, dtype=np.float32)
    v[:, :, :256] *= 1e-3
    for atol in (1.0, 1e-3):
        out, report, bound = ov.attention(
            q, k, v, causal=True, certified=True, atol=atol, return_report=True, return_bound=True
        )
        error = errors_of(out, q, k, v, causal=True)
        assert (error <= bound).all()
        for choice in report.choices:
            rows = slice(choice.first, choice.first + choice.count)
            assert error[choice.batch, choice.head, rows].max() <= choice.predicted


def test_what_is_not_finite():
    q, k, v = inputs(tokens=40)
    v[0, 1, :, 3] = np.nan
    bound = ov.attention(q, k, v, precision="f32", return_bound=True)[1]
    assert np.isfinite(bound[0, 0]).all() and np.isinf(bound[0, 1]).all()
    q, k, v = inputs(tokens=40)
    for number in (np.nan, np.inf):
        sinks = np.array([0.0, number], np.float32)
        bound = ov.attention(q, k, v, precision="f32", sinks=sinks, return_bound=True)[1]
        assert np.isfinite(bound[0, 0]).all() and np.isinf(bound[0, 1]).all()


def test_what_is_refused():
    q, k, v = inputs(tokens=8)
    with pytest.raises(ValueError, match="expected auto"):
        ov.attention(q, k, v, precision="f32", certified=True)
    for how in ({"dropout_p": 0.5, "seed": 1, "precision": "f32"}, {"precision": "naive"}):
        with pytest.raises((ValueError, RuntimeError), match="bound"):
            ov.attention(q, k, v, return_bound=True, **how)
    with pytest.raises(TypeError, match="return_bound"):
        ov.attention(q, k, v, return_bound=1)
