"""Requantization, and codes and scales made outside of octavo."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import octavo as ov

PRESETS = ov.preset_names()


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def same(one: ov.QuantizedTensor, other: ov.QuantizedTensor) -> bool:
    pairs = [(one.codes, other.codes), (one.scales, other.scales)]
    assert one.tensor_scale == other.tensor_scale
    return all(a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("before", PRESETS)
@pytest.mark.parametrize("after", PRESETS)
def test_requantize_is_quantize_of_dequantize(before, after):
    q = ov.quantize(values(70, 150), before)
    assert same(ov.requantize(q, after), ov.quantize(ov.dequantize(q), after))


def test_requantize_into_both_copies():
    q = ov.quantize(values(64, 96), "fp8-block")
    both = ov.requantize(q, ov.preset("mxfp8").replace(columnwise=True))
    transposed = ov.quantize(ov.dequantize(q).T, "mxfp8")
    assert both.columnwise_codes.tobytes() == transposed.codes.tobytes()


def test_requantize_stays_in_its_library(torch):
    q = ov.quantize(torch.from_numpy(values(4, 64)), "fp8")
    assert isinstance(ov.requantize(q, "mxfp8").codes, torch.Tensor)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("raw", [False, True])
def test_arrays_of_others(name, library, raw, torch):
    x = values(33, 100)
    q = ov.quantize(x if library == "numpy" else torch.from_numpy(x), name)
    codes, scales = q.codes, q.scales
    if raw:
        byte = np.uint8 if library == "numpy" else torch.uint8
        codes = codes.view(byte)
        scales = scales.view(byte) if scales.itemsize == 1 else scales
    made = ov.quantized(codes, scales, name, tensor_scale=q.tensor_scale)
    assert made.shape == (33, 100) and type(made.codes) is type(q.codes)
    assert made.scaling == q.scaling and made.nbytes == q.nbytes
    np.testing.assert_array_equal(
        np.asarray(ov.dequantize(made)), ov.dequantize(ov.quantize(x, name))
    )


def test_their_memory_is_used_and_kept():
    codes = np.full((2, 32), 0x38, np.uint8)
    q = ov.quantized(codes, np.full((2, 1), 127, np.uint8), "mxfp8")
    codes[0, 0] = 0x40
    assert ov.dequantize(q)[0, 0] == 2 and ov.dequantize(q)[1, 1] == 1
    del codes
    gc.collect()
    assert (ov.dequantize(q)[1] == 1).all()


def test_strided_arrays_are_copied():
    q = ov.quantize(values(40, 256), "fp8-1x128")
    transposed = np.asfortranarray(q.scales)  # as many kernels want their scales
    assert not transposed.flags.c_contiguous
    made = ov.quantized(np.asfortranarray(q.codes), transposed, "fp8-1x128")
    assert same(made, q)
    every_other = np.repeat(q.codes, 2, axis=1)[:, ::2]
    assert same(ov.quantized(every_other, q.scales, "fp8-1x128"), q)


def test_scalar_scales():
    for shape in [(), (1,), (1, 1)]:
        q = ov.quantized(np.uint8([0x38, 0x40]), np.full(shape, 0.5, np.float32), "fp8")
        assert ov.dequantize(q).tolist() == [0.5, 1.0] and q.scales.shape == ()


def test_odd_packed_rows():
    q = ov.quantize(values(4, 33), "mxfp4")
    made = ov.quantized(q.codes, q.scales, "mxfp4", shape=(4, 33))
    assert made.shape == (4, 33) and same(made, q)
    np.testing.assert_array_equal(ov.dequantize(made), ov.dequantize(q))


def test_unpacked_by_their_dtype(ml_dtypes):
    q = ov.quantize(values(4, 64), ov.preset("mxfp4").replace(packed=False))
    made = ov.quantized(q.codes, q.scales, "mxfp4")
    assert made.shape == (4, 64) and not made.scaling.packed
    plain = ov.quantized(q.codes.view(np.uint8), q.scales, q.scaling)
    np.testing.assert_array_equal(ov.dequantize(made), ov.dequantize(plain))


def test_poison_and_zero_scales_are_as_they_are():
    scales = np.float32([[np.nan], [0.0], [-0.0], [2.0]])
    back = ov.dequantize(ov.quantized(np.full((4, 8), 0x38, np.uint8), scales, "fp8-channel"))
    assert np.isnan(back[0]).all() and (back[1:3] == 0).all() and (back[3] == 2).all()


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_negative_scales_name_their_tile(kind, ml_dtypes):
    scale = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[kind]
    scales = np.ones((3, 4), kind)
    scales[1, 2] = -0.5
    with pytest.raises(
        ValueError, match=r"the scale of tile \(1, 2\) is -0.5; a scale is positive"
    ):
        ov.quantized(np.zeros((3, 128), np.uint8), scales, ov.Scaling(scale=scale))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"codes": np.zeros((4, 64), np.float32)}, TypeError, "the codes are of dtype float32"),
        ({"codes": np.zeros((4, 64), np.uint16)}, TypeError, "expected float8_e4m3fn or uint8"),
        ({"scales": np.zeros((4, 2), np.float32)}, TypeError, "the scales are of dtype float32"),
        ({"scales": [1.0, 2.0]}, TypeError, "expected float8_e8m0fnu or uint8 or int8"),
        (
            {"scales": np.zeros((2, 4), np.uint8)},
            ValueError,
            "[quantized] the scales have shape [2, 4]",
        ),
        ({"shape": (4, 32)}, ValueError, "the codes have shape [4, 64]; expected"),
        ({"shape": (4, -1)}, ValueError, "got a size = -1"),
        ({"tensor_scale": np.float32(1)}, ValueError, "got a tensor scale, which only"),
        ({"scaling": "nvfp4"}, ValueError, "expected [4, 8] for nvfp4"),
        ({"scaling": 4}, TypeError, "got a scaling of type int"),
        ({"scaling": "mxfp4", "shape": (4, 64)}, ValueError, "expected (4, 32) for a tensor of"),
        ({"scaling": "mxfp4", "shape": ()}, ValueError, "got packed codes of shape (4, 64)"),
    ],
)
def test_errors(change, error, message):
    given = {
        "codes": np.zeros((4, 64), np.uint8),
        "scales": np.zeros((4, 2), np.uint8),
        "scaling": "mxfp8",
        **change,
    }
    with pytest.raises(error) as caught:
        ov.quantized(**given)
    assert message in str(caught.value)


def test_nvfp4_needs_its_tensor_scale():
    q = ov.quantize(values(4, 64), "nvfp4")
    with pytest.raises(ValueError, match="come with one f32 scale of the tensor"):
        ov.quantized(q.codes, q.scales, "nvfp4")
    with pytest.raises(ValueError, match="must be one float32"):
        ov.quantized(q.codes, q.scales, "nvfp4", tensor_scale=np.ones(2, np.float32))
    with pytest.raises(TypeError, match="the tensor scale are of dtype float64"):
        ov.quantized(q.codes, q.scales, "nvfp4", tensor_scale=1.0)
    with pytest.raises(ValueError, match="is -1; a scale is positive"):
        ov.quantized(q.codes, q.scales, "nvfp4", tensor_scale=np.float32(-1))


def test_infinite_scales_name_their_tile():
    q = ov.quantize(np.ones((2, 64), np.float32), "fp8-channel")
    scales = np.array([[1], [np.inf]], np.float32)
    with pytest.raises(ValueError, match=r"the scale of tile \(1, 0\) is inf; .*: give NaN"):
        ov.quantized(q.codes, scales, "fp8-channel")
    # torchao makes Inf of Inf: what it made is taken in as it is.
    made = ov.quantized(q.codes, scales, ov.preset("fp8-channel").replace(arith="torchao"))
    assert np.isinf(ov.dequantize(made)[1]).all()
    q = ov.quantize(np.ones((2, 64), np.float32), "nvfp4")
    with pytest.raises(ValueError, match="the tensor scale of tile .* is inf"):
        ov.quantized(q.codes, q.scales, "nvfp4", tensor_scale=np.float32(np.inf))


def test_scales_without_validation():
    q = ov.quantize(np.ones((2, 4), np.float32), "fp8-channel")
    scales = q.scales * np.float32([[-1], [1]])
    with pytest.raises(ValueError, match=r"tile \(0, 0\)"):
        ov.quantized(q.codes, scales, "fp8-channel")
    made = ov.quantized(q.codes, scales, "fp8-channel", check=False)
    assert ov.dequantize(made).tolist() == [[-1] * 4, [1] * 4]
    with pytest.raises(ValueError, match="scales have shape"):  # everything else is checked
        ov.quantized(q.codes, scales[:1], "fp8-channel", check=False)
    with pytest.raises(TypeError, match="check = 0"):
        ov.quantized(q.codes, scales, "fp8-channel", check=0)
