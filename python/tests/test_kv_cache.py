"""KVCache: copied, pickled, read out."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import octavo as ov

SCALINGS = ["fp8-channel", "mxfp8", "mxfp4"]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def filled(scaling="fp8-channel", **how):
    cache = ov.KVCache(2, 2, 32, 64, scaling=scaling, capacity=4, **how)
    cache.append(drawn(2, 2, 5, 32), drawn(2, 2, 5, 64, seed=1), counts=[5, 3])
    return cache


def same_bytes(a, b):
    return all(
        np.array_equal(np.asarray(x).view(np.uint8), np.asarray(y).view(np.uint8))
        for x, y in ((a.codes, b.codes), (a.scales, b.scales))
    )


@pytest.mark.parametrize("scaling", SCALINGS)
def test_read_out(scaling):
    """The tokens are what quantize makes of them, and zeros where there are none."""
    cache = filled(scaling)
    for got, values in (
        (cache.keys(), drawn(2, 2, 5, 32)),
        (cache.values(), drawn(2, 2, 5, 64, seed=1)),
    ):
        assert got.shape == values.shape
        assert got.scaling == ov.preset(scaling)
        want = ov.quantize(values, scaling).dequantize()
        want[1, :, 3:] = 0
        np.testing.assert_array_equal(got.dequantize(), want)


def test_what_is_read_out_is_a_copy():
    cache = filled()
    keys, before = cache.keys(), cache.attend(drawn(2, 4, 1, 32, seed=2))
    keys.codes.view(np.uint8)[:] = 0
    np.testing.assert_array_equal(cache.attend(drawn(2, 4, 1, 32, seed=2)), before)


def test_nothing_is_read_out_of_an_empty_cache():
    cache = ov.KVCache(2, 2, 32)
    assert cache.keys().shape == (2, 2, 0, 32)
    assert cache.values().dequantize().shape == (2, 2, 0, 32)


def test_dropped_tokens_are_gone():
    cache = filled()
    cache.truncate(0, 1)
    assert cache.keys().shape == (2, 2, 3, 32)
    assert not cache.keys().dequantize()[0, :, 1:].any()
    cache.clear()
    assert cache.keys().shape == (2, 2, 0, 32)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda cache: pickle.loads(pickle.dumps(cache)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_copies(scaling, how):
    cache, q = filled(scaling), drawn(2, 4, 1, 32, seed=2)
    made = COPIES[how](cache)
    assert repr(made) == repr(cache) and made.nbytes == cache.nbytes
    assert same_bytes(made.keys(), cache.keys()) and same_bytes(made.values(), cache.values())
    before = cache.attend(q)
    np.testing.assert_array_equal(made.attend(q), before)
    # Each goes on alone.
    made.append(drawn(2, 2, 6, 32, seed=3), drawn(2, 2, 6, 64, seed=4))
    assert cache.lengths == [5, 3] and made.lengths == [11, 9]
    np.testing.assert_array_equal(cache.attend(q), before)
    cache.append(drawn(2, 2, 6, 32, seed=3), drawn(2, 2, 6, 64, seed=4))
    np.testing.assert_array_equal(cache.attend(q), made.attend(q))


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_an_empty_cache(how):
    made = COPIES[how](ov.KVCache(1, 2, 16, capacity=7))
    assert made.capacity == 7 and made.lengths == [0]


def test_a_deep_copy_of_several_names_is_one_cache():
    cache = filled()
    first, second = copy.deepcopy([cache, cache])
    assert first is second


def test_arrays_are_of_the_library_that_came(torch):
    cache = ov.KVCache(1, 1, 16)
    cache.append(torch.ones(1, 1, 2, 16), torch.ones(1, 1, 2, 16))
    assert isinstance(cache.keys().codes, torch.Tensor)
    assert isinstance(pickle.loads(pickle.dumps(cache)).values().dequantize(), torch.Tensor)
