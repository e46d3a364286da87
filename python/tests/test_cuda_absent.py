"""Messages of a build without CUDA, and device tests that need no device."""

from __future__ import annotations

import pytest

import octavo as ov
from octavo import _octavo
from octavo._arrays import stream_address


def test_doctor_says_what_there_is_of_cuda():
    assert "CUDA" in ov.doctor()["cuda"]


def test_memory_of_a_device_that_is_not_there_is_an_error():
    view = _octavo.View(4096, "float32", [4], [4], False, False, 63)
    codes = _octavo.View(8192, ov.Format("e4m3fn"), [4], [1], False, False, 63)
    with pytest.raises(RuntimeError, match=r"\[cuda\]"):
        _octavo.encode(view, codes)
    with pytest.raises(RuntimeError, match=r"\[cuda\]"):
        _octavo.Tensor.empty("float32", [4], cuda=63)
    with pytest.raises(RuntimeError, match=r"\[cuda\]"):
        _octavo.amax(view)


def test_views_on_two_devices_are_an_error_that_names_both():
    view = _octavo.View(4096, "float32", [4], [4], False, False, 0)
    codes = _octavo.View(8192, ov.Format("e4m3fn"), [4], [1])
    with pytest.raises(ValueError, match="the input is on cuda:0 and the output on cpu"):
        _octavo.encode(view, codes)


def test_streams_are_addresses():
    class Torchs:
        cuda_stream = 80

    class Cupys:
        ptr = 81

    assert [stream_address(s) for s in (5, Torchs(), Cupys())] == [5, 80, 81]
    with pytest.raises(ValueError, match="-1"):
        stream_address(-1)
    with pytest.raises(TypeError):
        stream_address("default")


def test_stream_is_ignored_on_the_cpu():
    assert ov.amax([1.0, -2.0], stream=7) == 2.0
    q = ov.quantize([[1.0, 2.0]], "fp8", stream=7)
    assert q.device == "cpu" and ov.dequantize(q, stream=7).tolist() == [[1.0, 2.0]]


def test_column_major_scales():
    np = pytest.importorskip("numpy")
    x = np.random.default_rng(0).normal(size=(6, 300)).astype(np.float32)
    scaling = ov.preset("fp8-1x128").replace(scale_order="col_major")
    q, plain = ov.quantize(x, scaling), ov.quantize(x, "fp8-1x128")
    assert q.scales.shape == (6, 3) and q.scales.strides == (4, 24)
    assert np.array_equal(q.scales, plain.scales) and "col_major" in repr(q.scaling)
    assert np.array_equal(ov.dequantize(q), ov.dequantize(plain))
    given = ov.quantized(plain.codes, np.asfortranarray(plain.scales), "fp8-1x128")
    assert given.scaling.scale_order == "col_major"
    assert np.array_equal(ov.dequantize(given), ov.dequantize(plain))
