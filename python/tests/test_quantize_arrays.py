"""Quantized tensors of every library: dtypes, strides, shared memory that stays alive, out."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import octavo as ov

PRESETS = ov.preset_names()


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


def same_bytes(one: ov.QuantizedTensor, other: ov.QuantizedTensor) -> bool:
    """Equal in every byte of codes and scales, whatever their libraries."""

    def parts(q: ov.QuantizedTensor) -> list[bytes | None]:
        state = q.__reduce__()[1][-1]
        return [None if part is None else part.tobytes() for part in state]

    return parts(one) == parts(other)


NUMPY_DTYPES = {
    "mxfp8": ("float8_e4m3fn", "float8_e8m0fnu"),
    "mxfp8:e5m2": ("float8_e5m2", "float8_e8m0fnu"),
    "mxfp6": ("uint8", "float8_e8m0fnu"),
    "mxfp4": ("uint8", "float8_e8m0fnu"),
    "mxint8": ("uint8", "float8_e8m0fnu"),
    "int8-channel": ("uint8", "float32"),
    "int4": ("uint8", "bfloat16"),
    "nvfp4": ("uint8", "float8_e4m3fn"),
    "fp8-block": ("float8_e4m3fn", "float32"),
}


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_numpy_dtypes(name, ml_dtypes):
    q = ov.quantize(values(4, 64), name)
    assert (q.codes.dtype.name, q.scales.dtype.name) == NUMPY_DTYPES[name]
    assert isinstance(q.codes, np.ndarray) and q.dtype == np.float32


def test_numpy_unpacked_dtypes(ml_dtypes):
    q = ov.quantize(values(4, 64), ov.preset("mxfp6:e3m2fn").replace(packed=False))
    assert q.codes.dtype == ml_dtypes.float6_e3m2fn and q.codes.shape == (4, 64)
    q = ov.quantize(values(4, 64), ov.preset("nvfp4").replace(packed=False))
    assert q.codes.dtype == ml_dtypes.float4_e2m1fn and q.tensor_scale.dtype == np.float32
    q = ov.quantize(values(4, 64), ov.Scaling(scale="bf16"))
    assert q.scales.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("name", "codes", "scales"),
    [
        ("mxfp8", "float8_e4m3fn", "float8_e8m0fnu"),
        ("fp8:e5m2", "float8_e5m2", "float32"),
        ("mxfp4", "float4_e2m1fn_x2", "float8_e8m0fnu"),
        ("nvfp4", "float4_e2m1fn_x2", "float8_e4m3fn"),
        ("mxfp6", "uint8", "float8_e8m0fnu"),
        ("mxint8", "uint8", "float8_e8m0fnu"),
        ("int8-channel", "uint8", "float32"),
        ("int4", "uint8", "bfloat16"),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torch_dtypes(name, codes, scales, dtype, torch):
    x = torch.from_numpy(values(4, 64)).to(getattr(torch, dtype))
    q = ov.quantize(x, name)
    assert isinstance(q.codes, torch.Tensor) and q.dtype == x.dtype
    assert q.codes.dtype == getattr(torch, codes, torch.uint8)
    assert q.scales.dtype == getattr(torch, scales, torch.uint8)
    # Of float64 products with 1 / scale are float64's: where that is no power of two (int4 has
    # bf16 scales, and quotients of bf16 are often ties) they may round to another code.
    wide = x.double() if dtype == "float64" else x.float()
    assert same_bytes(q, ov.quantize(wide.numpy(), name))
    back = ov.dequantize(q, dtype)
    assert isinstance(back, torch.Tensor) and back.dtype == x.dtype and back.shape == x.shape
    assert (q.tensor_scale is not None) == (name == "nvfp4")


@pytest.mark.parametrize("name", PRESETS)
def test_any_strides(name, torch):
    x = values(8, 96)
    expected = ov.quantize(x, name)
    wide = np.zeros((16, 192), np.float32)
    wide[::2, ::2] = x
    for same in (np.asfortranarray(x), x[::-1, ::-1].copy()[::-1, ::-1], wide[::2, ::2]):
        assert same_bytes(ov.quantize(same, name), expected)
    t = torch.from_numpy(np.ascontiguousarray(x.T)).t()
    assert same_bytes(ov.quantize(t, name), expected)
    row = ov.quantize(np.broadcast_to(x[0], (8, 96)), name)
    assert same_bytes(row, ov.quantize(np.tile(x[0], (8, 1)), name))


def test_dlpack_arrays(foreign):
    x = values(4, 64)
    q = ov.quantize(foreign(x), "mxfp8")
    assert isinstance(q.codes, foreign) and isinstance(q.scales, foreign)
    assert q.codes.x.dtype == np.uint8  # NumPy takes no float8 through DLPack
    assert same_bytes(q, ov.quantize(x, "mxfp8")) and q.dtype == "float32"
    np.testing.assert_array_equal(ov.dequantize(q).x, ov.dequantize(ov.quantize(x, "mxfp8")))
    out = foreign(np.empty_like(x))
    assert ov.dequantize(q, out=out) is out and out.x.any()


def test_the_source_is_not_kept(foreign):
    class Watched(np.ndarray):
        pass

    x = values(4, 64).view(Watched)
    gone = weakref.ref(x)
    q = ov.quantize(x, "mxfp8")
    del x
    gc.collect()
    assert gone() is None and q.codes is not None
    x = foreign(values(4, 64))
    gone = weakref.ref(x)
    q = ov.quantize(x, "mxfp8")
    del x
    gc.collect()
    assert gone() is None and q.codes is not None


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_share_memory_and_keep_it(library, torch):
    x = values(512, 512)
    q = ov.quantize(x if library == "numpy" else torch.from_numpy(x), "mxfp8")
    expected = ov.quantize(x, "mxfp8").codes.tobytes()
    one, other, scales = q.codes, q.codes, q.scales
    byte = np.uint8 if library == "numpy" else torch.uint8
    first = one.view(byte)[0, 0].item()
    one.view(byte)[0, 0] = first ^ 1
    assert other.view(byte)[0, 0].item() == first ^ 1
    one.view(byte)[0, 0] = first
    del q, other
    gc.collect()
    ov.quantize(values(512, 512) * 3, "mxfp8")  # might reuse memory that was let go
    left = one if library == "numpy" else one.view(torch.uint8).numpy()
    assert left.tobytes() == expected and scales.shape == (512, 16)


@pytest.mark.parametrize("name", PRESETS)
def test_out(name):
    scaling = ov.preset(name).replace(columnwise=True)
    x, y = values(40, 64), values(40, 64) * 5 - 1
    q = ov.quantize(x, scaling)
    codes, address = q.codes, q.codes.ctypes.data
    assert ov.quantize(y, scaling, out=q) is q
    assert same_bytes(q, ov.quantize(y, scaling))
    assert q.codes.ctypes.data == address and codes.tobytes() == q.codes.tobytes()
    assert ov.quantize(y.astype(np.float64), scaling, out=q).dtype == np.float64


def test_dequantize_out(torch):
    x = values(5, 40)
    q = ov.quantize(x, "mxfp8")
    for dtype in (np.float64, np.float32, np.float16):
        out = np.zeros((5, 40), dtype)
        assert ov.dequantize(q, out=out) is out
        np.testing.assert_array_equal(out, ov.dequantize(q, dtype))
    t = torch.zeros(5, 40)
    assert ov.dequantize(ov.quantize(torch.from_numpy(x), "mxfp8"), out=t) is t
    np.testing.assert_array_equal(t.numpy(), ov.dequantize(q))


def test_counts():
    x = np.float32([[1e-30, 1, 2, 3], [np.nan, 1, 2, 3]])
    q, counts = ov.quantize(x, "fp8-channel", counts=True)
    # All of a poisoned tile is NaN, and counts as such.
    assert counts == ov.Counts(saturated=0, flushed=1, nan=4)
    assert np.isnan(q.scales[1]) and np.isnan(ov.dequantize(q)[1]).all()
    clip = ov.Scaling(tile="tensor", scale="f32", policy="percentile:50")
    assert ov.quantize(np.arange(1, 101.0), clip, counts=True)[1].saturated > 40
    assert ov.requantize(q, "mxfp4", counts=True)[1].nan == 4
