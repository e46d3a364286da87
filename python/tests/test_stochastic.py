"""Stochastic rounding: the mean, and draws that depend on the seed and the index alone."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def test_mean_converges():
    # 1.03125 lies a quarter of the way from 1 to 1.125. The mean of n draws is off by at most
    # 5 sigma = 5 * 0.125 * sqrt(3/16 / n), all but once in a million.
    n = 1 << 20
    mean = ov.decode(ov.encode(np.full(n, 1.03125), "e4m3fn", rounding="stochastic", seed=1)).mean(
        dtype=np.float64
    )
    assert abs(mean - 1.03125) < 5 * 0.125 * (3 / 16 / n) ** 0.5


def test_depends_on_seed_and_index_alone():
    x = np.random.default_rng(0).normal(size=10001).astype(np.float32)
    kwargs = {"rounding": "stochastic", "seed": 7}
    whole = ov.encode(x, "e4m3fn", **kwargs).view(np.uint8)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(
            ov.encode(x, "e4m3fn", threads=threads, **kwargs).view(np.uint8), whole
        )
    parts = [
        ov.encode(x[i : i + 777], "e4m3fn", first_index=i, **kwargs).view(np.uint8)
        for i in range(0, 10001, 777)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert (ov.encode(x, "e4m3fn", rounding="stochastic", seed=8).view(np.uint8) != whole).any()


def test_index_counts_in_row_major_order(torch):
    x = np.random.default_rng(0).normal(size=(31, 17)).astype(np.float32)
    kwargs = {"rounding": "stochastic", "seed": 3}
    expected = ov.encode(x, "e4m3fn", **kwargs).view(np.uint8)
    np.testing.assert_array_equal(
        ov.encode(np.asfortranarray(x), "e4m3fn", **kwargs).view(np.uint8), expected
    )
    t = torch.from_numpy(x.T.copy()).T
    np.testing.assert_array_equal(
        ov.encode(t, "e4m3fn", **kwargs).view(torch.uint8).numpy(), expected
    )


def test_bits():
    # One bit is a coin: a quarter (1.03125) never rounds up, a half (1.0625) half the time.
    up = (
        ov.decode(
            ov.encode(np.full(1000, 1.03125), "e4m3fn", rounding="stochastic", stochastic_bits=1)
        )
        > 1
    )
    assert not up.any()
    up = (
        ov.decode(
            ov.encode(np.full(1000, 1.0625), "e4m3fn", rounding="stochastic", stochastic_bits=1)
        )
        > 1
    )
    assert 400 < up.sum() < 600


@pytest.mark.parametrize("bits", [0, 17])
def test_bits_beyond_the_range(bits):
    with pytest.raises(
        ValueError, match=rf"^\[encode\] got stochastic_bits = {bits}; expected 1 to 16"
    ):
        ov.encode([1.0], "e4m3fn", rounding="stochastic", stochastic_bits=bits)
