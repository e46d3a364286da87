"""Paged attention and KV caches in pages."""

import copy
import pickle

import numpy as np
import pytest

import octavo as ov


def drawn(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def gathered(pool, table, tokens):
    """[batch, heads, tokens, size]"""
    pages, heads, rows, size = pool.shape
    whole = pool[np.maximum(table, 0)].transpose(0, 2, 1, 3, 4)
    return whole.reshape(table.shape[0], heads, -1, size)[:, :, :tokens]


@pytest.mark.parametrize("precision", ["auto", "f32", "bf16", "strict", "balanced", "fast"])
def test_pages_are_what_they_hold(precision):
    k, v = drawn((7, 2, 16, 32), 1), drawn((7, 2, 16, 32), 2)
    q = drawn((2, 4, 3, 32), 3)
    table = np.array([[4, 0, 6], [5, 2, -1]], dtype=np.int32)
    lengths = [40, 17]
    options = {"key_lengths": lengths, "precision": precision, "causal": True}
    got = ov.attention(q, k, v, block_table=table, align="bottom_right", **options)
    want = ov.attention(
        q, gathered(k, table, 48), gathered(v, table, 48), align="bottom_right", **options
    )
    np.testing.assert_array_equal(got, want)


def test_pages_of_codes():
    k, v = drawn((7, 2, 16, 32), 1), drawn((7, 2, 16, 32), 2)
    table = np.array([[4, 0, 6], [5, 2, 1]], dtype=np.int32)
    q = drawn((2, 4, 1, 32), 3)
    pools = [ov.quantize(x, "fp8-channel") for x in (k, v)]
    flat = [ov.quantize(gathered(x, table, 48), "fp8-channel") for x in (k, v)]
    np.testing.assert_array_equal(
        ov.attention(q, *pools, block_table=table, precision="bf16"),
        ov.attention(q, *flat, precision="bf16", key_lengths=[48, 48]),
    )


def test_table_that_is_wrong():
    k = drawn((3, 2, 16, 32), 1)
    q = drawn((2, 4, 1, 32), 3)
    table = np.array([[0, 1], [2, 3]], dtype=np.int32)
    with pytest.raises(ValueError, match="the block table has page 3 for batch 1, place 1"):
        ov.attention(q, k, k, block_table=table)
    ov.attention(q, k, k, block_table=table, key_lengths=[32, 16])  # entries beyond are not read
    with pytest.raises(TypeError, match="expected an array of int32 of 2 dimension"):
        ov.attention(q, k, k, block_table=table.astype("int64"))
    with pytest.raises(TypeError, match="expected an array of int32"):
        ov.attention(q, k, k, block_table=[[0, 1], [2, 2]])
    with pytest.raises(ValueError, match="one row for each of 2 batches"):
        ov.attention(q, k, k, block_table=table[:1])
    with pytest.raises(ValueError, match="key length of 33 for batch 0; expected 0 to 32"):
        ov.attention(q, k, k, block_table=table, key_lengths=[33, 1])


class OfACudaDevice:
    """What says that its memory is a device's, and has none."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "typestr": "<i4", "shape": (2, 2), "data": (64, False), "version": 3
    }  # fmt: skip


def test_table_of_another_device():
    k, q = drawn((3, 2, 16, 32), 1), drawn((2, 4, 1, 32), 3)
    with pytest.raises(ValueError, match="block_table is on a CUDA device, and q is not"):
        ov.attention(q, k, k, block_table=OfACudaDevice())


def test_cache_in_pages():
    flat = ov.KVCache(batches=2, kv_heads=2, head_size=32)
    paged = ov.KVCache(batches=2, kv_heads=2, head_size=32, capacity=8, page_tokens=4)
    for step in range(5):
        k, v = drawn((2, 2, 6, 32), 2 * step), drawn((2, 2, 6, 32), 2 * step + 1)
        for cache in (flat, paged):
            cache.append(k, v, counts=[6, step])
    assert paged.lengths == flat.lengths == [30, 10]
    q = drawn((2, 4, 1, 32), 99)
    np.testing.assert_allclose(paged.attend(q), flat.attend(q), atol=1e-6)
    again = pickle.loads(pickle.dumps(paged))
    fork = copy.copy(paged)
    paged.clear()
    for cache in (again, fork):
        np.testing.assert_array_equal(cache.keys().dequantize(), flat.keys().dequantize())
        np.testing.assert_allclose(cache.attend(q), flat.attend(q), atol=1e-6)


def test_device_that_is_none():
    with pytest.raises(ValueError, match="expected 'cpu', 'cuda' or 'cuda:1'"):
        ov.KVCache(1, 1, 16, device="tpu")
