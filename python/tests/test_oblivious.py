"""gemm and attention in their data-oblivious mode: the results of the other mode, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def drawn(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("preset", [None, "fp8", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("out", ["float32", "mxfp8"])
def test_products_are_the_same(preset: str | None, out: str) -> None:
    a, b = drawn(7, 96), drawn(33, 96, seed=2)
    sides = (a, b) if preset is None else (ov.quantize(a, preset), ov.quantize(b, preset))
    got, wanted = (
        ov.gemm(*sides, out=out, bias=drawn(33, seed=3), oblivious=mode) for mode in (True, False)
    )
    if out != "float32":
        got, wanted = got.dequantize(), wanted.dequantize()
    # Sums of 96 products in f32, of which no more than a step of the result's format differs.
    assert np.allclose(got, wanted, rtol=0 if out == "float32" else 0.13, atol=1e-4)


@pytest.mark.parametrize("precision", ["f32", "bf16", "strict"])
def test_attention_is_the_same(precision: str) -> None:
    q, k, v = (drawn(2, 20, 32, seed=seed) for seed in (1, 2, 3))
    got, wanted = (
        ov.attention(q, k, v, precision=precision, causal=True, oblivious=mode)
        for mode in (True, False)
    )
    # Kernels may keep weights finer than the precision's own form, 2^-8 for bf16.
    assert np.abs(got - wanted).max() <= 2 * 2**-8 * np.abs(v).max()


@pytest.mark.parametrize("scaling", ["fp8-channel", "mxfp8", "int8-channel"])
def test_decoding_of_a_cache_is_the_same(scaling: str) -> None:
    cache = ov.KVCache(1, 2, 32, scaling=scaling)
    cache.append(drawn(1, 2, 20, 32), drawn(1, 2, 20, 32, seed=2))
    q = drawn(1, 4, 1, 32, seed=3)
    got, wanted = (cache.attend(q, oblivious=mode) for mode in (True, False))
    # As above, of values whose largest codes are those of 4 at most.
    assert np.abs(got - wanted).max() <= 2 * 2**-8 * 4
    with pytest.raises(ValueError, match="looks at the numbers to choose"):
        cache.attend(q, precision="auto", oblivious=True)
    with pytest.raises(TypeError, match="oblivious"):
        cache.attend(q, oblivious="yes")  # type: ignore[arg-type]


def test_what_has_to_look_is_refused() -> None:
    x = drawn(4, 32)
    with pytest.raises(ValueError, match="looks at the numbers to choose"):
        ov.attention(x, x, x, oblivious=True)
    with pytest.raises(Exception, match="accumulator float64"):
        ov.gemm(x, x, accumulator="float64", oblivious=True)
    with pytest.raises(TypeError, match="oblivious"):
        ov.gemm(x, x, oblivious="yes")  # type: ignore[call-overload]
