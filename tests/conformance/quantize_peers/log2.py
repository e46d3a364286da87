"""log2 rounded to float32, as PyTorch has it, and its floor and ceil in integers."""

import numpy as np

from quantize_peers.numbers import F, from_bits


def rounded_log2(v):
    with np.errstate(divide="ignore"):
        return np.log2(v.astype(np.float64)).astype(F)


def ceil_log2_by_bits(v):
    """ceil of log2(v) rounded to float32, for normal v, in integers (see peer-arith.md)."""
    bits = v.view(np.uint32).astype(np.int64)
    k, mantissa = (bits >> 23) - 127, bits & 0x7FFFFF
    slack = {j: s for j, s in enumerate((0, 0, 1, 2, 5, 11, 22))}
    size = np.abs(k)
    j = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), 0)
    j = j - ((k < 0) & (size == 1 << j))
    allowed = np.array([slack.get(i, 0) for i in range(-1, 7)])[j + 1]
    return k + (mantissa > allowed)


def floor_log2_by_bits(v):
    """floor of log2(v) rounded to float32, for normal v, in integers."""
    bits = v.view(np.uint32).astype(np.int64)
    k, below = (bits >> 23) - 126, 0x800000 - (bits & 0x7FFFFF)  # places below 2^k
    size = np.abs(k)
    j = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), 0)
    j = j - ((k > 0) & (size == 1 << j))
    allowed = np.array([0, 0, 1, 2, 5, 11, 22, 44])[j + 1]
    return k - ((below > allowed) | (k == 0))


def check_log2():
    """The integer forms against a float32 log2, about every power of two."""
    bits = np.array([((k + 127) << 23) + d for k in range(-126, 128) for d in range(-60, 61)])
    bits = bits[bits >= 1 << 23]
    v = from_bits(bits)
    wrong = np.count_nonzero(ceil_log2_by_bits(v) != np.ceil(rounded_log2(v)))
    wrong += np.count_nonzero(floor_log2_by_bits(v) != np.floor(rounded_log2(v)))
    print("ceil(log2) and floor(log2) in integers:", wrong, "of", 2 * v.size, "differ")
