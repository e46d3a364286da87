"""NVFP4 under a random Hadamard transform: the scale of the tensor is that of what is quantized.

The oracle is NumPy's, in float64. Values are small integers times a power of two, so that the
transform's sums and its factor of 1/4 are exact in float32, in any order. Transformer Engine's
arithmetic (octavo.quantizers) rounds its results to bfloat16, octavo's own does not.
"""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov
from octavo import quantizers as qs

SIGNS = 0xD7E8


def hadamard(signs):
    """Rows of sixteen are multiplied by this: Sylvester's matrix, its rows with signs, over 4."""
    matrix = np.ones((1, 1))
    for _ in range(4):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    flips = np.array([-1.0 if signs >> i & 1 else 1.0 for i in range(16)])
    return flips[:, None] * matrix / 4


def rotated(rows, signs=SIGNS):
    """Along each row; a tail of fewer than sixteen stays."""
    out = rows.astype(np.float64)
    whole = rows.shape[1] // 16 * 16
    groups = out[:, :whole].reshape(len(rows), -1, 16)
    out[:, :whole] = (groups @ hadamard(signs)).reshape(len(rows), -1)
    return out


def to_bf16(values):
    """Rounded to nearest even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def integers(shape, mean, seed=0):
    return (np.random.default_rng(seed).integers(-8, 9, shape) + mean).astype(np.float32) / 4


def tensor_scale(amax):
    """Transformer Engine's: the reciprocal of the largest E4M3 times the largest E2M1 over amax."""
    return np.float32(1) / (np.float32(448 * 6) / np.float32(amax))


@pytest.mark.parametrize("shape", [(32, 48), (40, 20), (16, 1), (7, 33), (1, 16), (64, 128)])
@pytest.mark.parametrize("mean", [0, 5, 100])
def test_scales_of_tensors(shape, mean):
    x = integers(shape, mean)
    q = qs.NVFP4Quantizer(with_rht=True)(x)
    assert q.tensor_scale == tensor_scale(np.abs(x).max())
    assert q.columnwise_tensor_scale == tensor_scale(np.abs(to_bf16(rotated(x.T))).max())


@pytest.mark.parametrize("mean", [0, 40])
def test_codes_are_transformer_engine_s(mean):
    """Every operation as docs/numerics/peer-arith.md has it: the transform, rounded to bfloat16,
    then the amax of the tensor, those of tiles, and codes. 65536 of them; without the rounding
    hundreds differ."""
    x = np.random.default_rng(2).integers(-255, 256, (256, 256)).astype(np.float32)
    x = to_bf16(x / 64 + np.float32(mean))
    q = qs.NVFP4Quantizer(with_rht=True, rowwise=False)(x)
    seen = to_bf16(rotated(x.T))
    f32 = np.float32
    encode_scale = f32(448 * 6) / np.abs(seen).max()
    t = f32(1) / encode_scale
    amax = np.abs(seen).reshape(256, 16, 16).max(axis=2)
    scales = ov.encode(amax * (encode_scale * (f32(1) / f32(6))), "e4m3fn")
    factor = f32(1) / (ov.decode(scales) * t)
    codes = ov.encode(seen * factor.repeat(16, axis=1), "e2m1fn", packed=True)
    assert q.columnwise_tensor_scale == t
    np.testing.assert_array_equal(q.columnwise_scales.view(np.uint8), scales.view(np.uint8))
    np.testing.assert_array_equal(q.columnwise_codes.view(np.uint8), codes.view(np.uint8))


def test_an_outlier_is_spread():
    """One value of 64 in a column becomes sixteen of 16."""
    x = np.zeros((16, 16), np.float32)
    x[3, 5] = 64
    q = qs.NVFP4Quantizer(with_rht=True)(x)
    assert q.tensor_scale == tensor_scale(64)
    assert q.columnwise_tensor_scale == tensor_scale(16)
    # All magnitudes of that tile are its largest: codes of 6 (7) and -6 (15), with a scale of 448.
    codes = ov.decode(q.columnwise_codes, "float32", format="e2m1fn", packed=True, cols=16)
    assert set(np.abs(codes[5])) == {6.0}
    assert ov.decode(q.columnwise_scales, "float32", format="e4m3fn")[5] == 448


@pytest.mark.parametrize("which", ["rowwise", "columnwise", "both"])
def test_octavo_s_own_nvfp4(which):
    x = integers((32, 64), 20, seed=3)
    scaling = ov.preset("nvfp4").replace(columnwise=True, hadamard=which, hadamard_signs=SIGNS)
    q = ov.quantize(x, scaling)
    rows = rotated(x) if which != "columnwise" else x
    columns = rotated(x.T) if which != "rowwise" else x.T
    for scale, seen in ((q.tensor_scale, rows), (q.columnwise_tensor_scale, columns)):
        assert scale == np.float32(np.abs(seen).max()) / np.float32(448 * 6)


def test_values_with_a_mean_are_not_cut_off():
    """A column of sixteen fives has one transformed value of up to 20, where the amax of x is about
    9. With a scale for 9, tiles' scales would end at 448, which cuts larger values off. What is
    left is the rounding of E2M1, at most a sixth of a tile's largest value, and of the tile's
    scale, 1/16.
    """
    x = np.random.default_rng(1).normal(5, 1, (256, 64)).astype(np.float32)
    q = qs.NVFP4Quantizer(with_rht=True)(x)
    want = rotated(x.T)
    codes = ov.decode(q.columnwise_codes, "float64", format="e2m1fn", packed=True, cols=256)
    scales = ov.decode(q.columnwise_scales, "float32", format="e4m3fn").astype(np.float64)
    got = codes * np.repeat(scales, 16, axis=1) * float(q.columnwise_tensor_scale)
    largest = np.abs(want).reshape(64, -1, 16).max(axis=2).repeat(16, axis=1)
    assert (np.abs(got - want) <= (1 / 6 + 1 / 16) * largest).all()
    assert np.linalg.norm(got - want) < 0.12 * np.linalg.norm(want)
