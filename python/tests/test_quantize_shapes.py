"""Shapes, copies and sizes: what a quantized tensor of any shape looks like and weighs."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

PRESETS = ov.preset_names()


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def unpacked(name: str) -> ov.Scaling:
    return ov.preset(name).replace(packed=False)


def test_sizes_of_mxfp8():
    q = ov.quantize(values(1024, 1024), "mxfp8")
    assert (q.codes.nbytes, q.scales.nbytes) == (1 << 20, 32 << 10)
    assert q.nbytes == (1 << 20) + (32 << 10)


def test_sizes_of_both_copies():
    q = ov.quantize(values(32, 32), ov.preset("mxfp8").replace(columnwise=True))
    parts = (q.codes, q.scales, q.columnwise_codes, q.columnwise_scales)
    assert [part.nbytes for part in parts] == [1024, 32, 1024, 32]
    assert q.nbytes == 2112


@pytest.mark.parametrize(
    ("name", "bytes_per_row", "scale_bytes"),
    [
        ("fp8", 100, 4),
        ("fp8-channel", 100, 3 * 4),
        ("fp8-1x128", 100, 3 * 4),
        ("fp8-block", 100, 4),
        ("mxfp8", 100, 3 * 4),
        ("mxfp6", 75, 3 * 4),
        ("mxfp4", 50, 3 * 4),
        ("mxint8", 100, 3 * 4),
        ("int8-channel", 100, 3 * 4),
        ("int4", 50, 3 * 2),
        ("nvfp4", 50, 3 * 7 + 4),
    ],
)
def test_sizes_of_ragged_rows(name, bytes_per_row, scale_bytes):
    assert ov.quantize(values(3, 100), name).nbytes == 3 * bytes_per_row + scale_bytes


def test_what_it_says():
    q = ov.quantize(values(3, 5, 64), "nvfp4")
    assert (q.shape, q.ndim, len(q), q.tile) == ((3, 5, 64), 3, 3, (1, 16))
    assert q.scaling == ov.preset("nvfp4") and q.columnwise_codes is None
    assert q.columnwise_scales is None and q.tensor_scale.shape == ()
    assert repr(q) == (
        "<octavo.QuantizedTensor (3, 5, 64) from float32: nvfp4: e2m1fn, tile 1x16, "
        "scale e4m3+f32; 544 bytes>"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_scalars(name):
    # One value is its tile's amax: a quotient scale gives it back, a power of two to within half a
    # unit in the last of the element's places (1/8 for FP4).
    for x in (np.float32(-3.25), np.array(-3.25, np.float32), -3.25):
        q = ov.quantize(x, name)
        assert q.shape == q.codes.shape == q.scales.shape == ()
        assert abs(ov.dequantize(q) + 3.25) <= 3.25 / 8
    with pytest.raises(TypeError, match="no len"):
        len(q)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("shape", [(0,), (0, 32), (32, 0), (3, 0, 5)])
def test_empty(name, shape, torch):
    q, counts = ov.quantize(np.empty(shape, np.float32), name, counts=True)
    assert counts == (0, 0, 0) and q.shape == shape and q.codes.size == 0
    assert ov.dequantize(q).shape == shape
    per_tensor = q.tile == (0, 0)
    assert q.scales.shape == () and q.scales == 1 if per_tensor else q.scales.size == 0
    t = ov.quantize(torch.empty(shape), name)
    assert t.codes.numel() == 0 and ov.dequantize(t).shape == shape
    assert ov.requantize(q, "mxfp8").shape == shape


@pytest.mark.parametrize("name", PRESETS)
def test_leading_dimensions_are_a_stack(name):
    x = values(2, 3, 5, 70)
    q = ov.quantize(x, unpacked(name))
    assert q.codes.shape == x.shape
    if q.tile == (0, 0):
        flat = ov.quantize(x.reshape(30, 70), unpacked(name))
        assert q.codes.tobytes() == flat.codes.tobytes() and q.scales == flat.scales
        return
    if name == "nvfp4":  # one tensor scale for the stack: the largest value has it in each matrix
        x[..., 0, 0] = 9.0
        q = ov.quantize(x, unpacked(name))
    for i in range(2):
        for j in range(3):
            one = ov.quantize(x[i, j], unpacked(name))
            assert q.codes[i, j].tobytes() == one.codes.tobytes()
            assert q.scales[i, j].tobytes() == one.scales.tobytes()
    np.testing.assert_array_equal(ov.dequantize(q)[1, 2], ov.dequantize(one))


@pytest.mark.parametrize("name", PRESETS)
def test_columnwise_is_of_the_transpose(name):
    x = values(66, 130)
    both = ov.quantize(x, ov.preset(name).replace(columnwise=True))
    plain, transposed = ov.quantize(x, name), ov.quantize(x.T, name)
    assert both.codes.tobytes() == plain.codes.tobytes()
    assert both.columnwise_codes.tobytes() == transposed.codes.tobytes()
    assert both.columnwise_codes.shape == transposed.codes.shape
    assert both.columnwise_scales.tobytes() == transposed.scales.tobytes()
    only = ov.quantize(x, ov.preset(name).replace(columnwise=True, rowwise=False))
    assert only.codes is None and only.scales is None and only.nbytes == transposed.nbytes
    assert only.tensor_scale == transposed.tensor_scale
    np.testing.assert_array_equal(ov.dequantize(only), ov.dequantize(transposed).T)


def test_columnwise_collapses_leading_dimensions():
    x = values(2, 3, 64)
    q = ov.quantize(x, ov.preset("mxfp8").replace(columnwise=True))
    assert q.columnwise_codes.shape == (64, 6) and q.columnwise_scales.shape == (64, 1)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_axis(axis):
    x = values(40, 33, 35)
    q = ov.quantize(x, ov.preset("mxfp8").replace(axis=axis))
    moved = ov.quantize(np.moveaxis(x, axis, -1), "mxfp8")
    assert np.moveaxis(q.codes, axis, -1).tobytes() == moved.codes.tobytes()
    assert np.moveaxis(q.scales, axis, -1).tobytes() == moved.scales.tobytes()
    np.testing.assert_array_equal(np.moveaxis(ov.dequantize(q), axis, -1), ov.dequantize(moved))


def test_packed_rows_begin_on_a_byte():
    x = np.float32([[0.5, 1.0, 6.0], [6.0, 0.5, 1.0]])
    q = ov.quantize(x, "mxfp4")
    assert q.codes.tolist() == [[0x21, 0x07], [0x17, 0x02]] and q.scales.view(np.uint8).min() == 127
    np.testing.assert_array_equal(ov.dequantize(q), x)


def test_hadamard_comes_back():
    """An orthonormal transform and its inverse: what is left is the error of quantizing."""
    x = values(8, 64)
    x[:, 3] = 40.0  # the outlier that it is for
    spec = ov.Scaling("e4m3fn", "row", scale="f32", hadamard="rowwise", hadamard_signs=0x35A7)
    error = np.linalg.norm(ov.dequantize(ov.quantize(x, spec)) - x, axis=1)
    # A unit in the last place of e4m3 is at most 2**-3 of the value: half of it bounds each
    # coefficient's error, the transform keeps norms; values below 2**-6 of the scale add 2**-10.
    scale = ov.quantize(x, spec).scales[:, 0]
    assert (error <= np.linalg.norm(x, axis=1) * 2**-4 * 1.001 + 8 * scale * 2**-10).all()


def test_amax(torch):
    x = values(100, 70)
    x[3, 4] = -1e5
    assert ov.amax(x) == 1e5 and ov.amax(x.T[::2]) == 1e5 and ov.amax(torch.from_numpy(x)) == 1e5
    assert ov.amax([]) == 0.0 and ov.amax(-2.5) == 2.5
    assert np.isnan(ov.amax(np.float32([1, np.nan, np.inf])))
    assert ov.amax(np.float32([1, -np.inf])) == np.inf
