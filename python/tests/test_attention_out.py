"""attention(out=scaling) and return_amax."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("scaling", ["fp8", "mxfp8", ov.preset("nvfp4")])
def test_a_scaling_quantizes_the_result(scaling: object) -> None:
    q, k, v = (drawn(2, 40, 64, seed=seed) for seed in (1, 2, 3))
    got, lse = ov.attention(q, k, v, precision="f32", out=scaling, return_lse=True)
    values, wanted = ov.attention(q, k, v, precision="f32", return_lse=True)
    quantized = ov.quantize(values, scaling)
    assert isinstance(got, ov.QuantizedTensor)
    assert np.array_equal(got.dequantize(), quantized.dequantize())
    assert np.array_equal(lse, wanted)


def test_codes_without_scales_are_refused() -> None:
    q = drawn(2, 4, 16)
    with pytest.raises(ValueError, match="codes need scales"):
        ov.attention(q, q, q, out="float8_e4m3fn")
    with pytest.raises(TypeError, match=r"give out\.scaling"):
        ov.attention(q, q, q, out=ov.quantize(q, "fp8"))


@pytest.mark.parametrize("precision", ["auto", "f32", "exact"])
def test_largest_magnitudes(precision: str) -> None:
    q, k, v = (drawn(2, 40, 64, seed=seed) for seed in (1, 2, 3))
    out, amax = ov.attention(q, k, v, precision=precision, causal=True, return_amax=True)
    assert isinstance(amax, ov.AttentionAmax)
    scores = np.einsum("hqd,hkd->hqk", q.astype(np.float64), k.astype(np.float64)) / 8
    seen = np.tril(np.ones((40, 40), bool))
    assert amax.s == pytest.approx(np.abs(scores[:, seen]).max(), rel=1e-5)
    assert amax.o == np.abs(out).max()
    assert 0.5 < amax.p <= 1
