"""QuantizedTensor as an object of Python: its method dequantize, and what NumPy makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

X = np.linspace(-4, 4, 128, dtype=np.float32).reshape(2, 64)


@pytest.mark.parametrize("name", ov.preset_names())
def test_dequantize(name):
    q = ov.quantize(X, name)
    np.testing.assert_array_equal(q.dequantize(), ov.dequantize(q))
    assert q.dequantize("float16").dtype == np.float16
    out = np.empty((2, 64), np.float64)
    assert q.dequantize(out=out, threads=1) is out
    np.testing.assert_array_equal(out, q.dequantize("float64"))


def test_dequantize_is_of_the_library(torch):
    q = ov.quantize(torch.from_numpy(X), "mxfp8")
    assert torch.equal(q.dequantize(torch.bfloat16), ov.dequantize(q, torch.bfloat16))


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.array,
        lambda q: np.asarray(q, np.float32),
        lambda q: np.add(q, 1),
        lambda q: np.asarray(q, copy=False) if np.lib.NumpyVersion(np.__version__) >= "2.0.0"
        else np.asarray(q),
    ],
)  # fmt: skip
def test_numpy_is_told_to_say_which(convert):
    with pytest.raises(TypeError, match=r"say which: q.dequantize\(\) for the values"):
        convert(ov.quantize(X, "mxfp8"))


@pytest.mark.parametrize(
    "call",
    [
        lambda q: ov.encode(q, "e4m3fn"),
        lambda q: ov.decode(q),
        lambda q: ov.gelu(q),
        lambda q: ov.amax(q),
        lambda q: ov.error(q, q),
    ],
)
def test_functions_of_arrays_do_not_dequantize(call):
    with pytest.raises(TypeError, match=r"got a QuantizedTensor; expected an array"):
        call(ov.quantize(X, "mxfp8"))
