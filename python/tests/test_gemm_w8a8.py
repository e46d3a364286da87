"""octavo.gemm of INT8 weights and activations (W8A8), quantized in the call."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

# Where these are, products of int8 are instructions, whose sums are exact.
INTEGERS = ("cpu/amx", "cpu/neon_i8mm", "cpu/neon_dot")


@pytest.mark.parametrize("m", [1, 5, 64, 130])
def test_w8a8_quantizes_in_the_call(m):
    rng = np.random.default_rng(m)
    x = rng.standard_normal((m, 384)).astype(np.float32)
    w = rng.standard_normal((96, 384)).astype(np.float32)
    q, wq = ov.quantize(x, "int8-channel"), ov.quantize(w, "int8-channel")
    got = ov.gemm(x, wq, quantize_a="int8-channel")
    np.testing.assert_array_equal(got, ov.gemm(q, wq))
    packed = ov.gemm(x, ov.pack(wq), quantize_a="int8-channel")
    exact = q.codes.view(np.int8).astype(np.int64) @ wq.codes.view(np.int8).astype(np.int64).T
    wanted = exact * q.scales.astype(np.float64) * wq.scales.astype(np.float64).T
    # In f32 both elements are rounded, and K products of them are off by K 2^-24 of magnitudes.
    magnitudes = (
        np.abs(q.codes.view(np.int8).astype(np.float64) * q.scales)
        @ np.abs(wq.codes.view(np.int8).astype(np.float64) * wq.scales).T
    )
    for product in (got, packed):
        assert (np.abs(product - wanted) <= (384 + 2) * 2.0**-24 * magnitudes).all()
    if ov.doctor()["backend"] not in INTEGERS:
        return
    # Sums of integers below 2^24 are exact; then two products of f32 with the scales. One row by
    # weights that are not packed may be summed in f32.
    np.testing.assert_allclose(packed, wanted, rtol=2**-22, atol=0)
    if m > 1:
        np.testing.assert_allclose(got, wanted, rtol=2**-22, atol=0)


def test_codes_are_not_quantized_again():
    q = ov.quantize(np.ones((2, 64), np.float32), "int8-channel")
    with pytest.raises(TypeError, match="quantize_a for codes"):
        ov.gemm(q, q, quantize_a="int8-channel")
