"""What octavo.gemm refuses, and with which words."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import octavo as ov

X, W = np.ones((4, 64), np.float32), np.ones((8, 64), np.float32)
QX, QW = ov.quantize(X, "mxfp8"), ov.quantize(W, "mxfp8")
OUT = np.zeros((4, 8), np.float32)
BASE = np.zeros(4 * 64, np.float32)


@pytest.mark.parametrize(
    ("a", "b", "more", "error", "message"),
    [
        (X, W[:, :32], {}, ValueError, "K is 64 in A and 32 in B"),
        (X, W.T.copy(), {}, ValueError, "K is 64 in A and 8 in B"),
        (X, np.ones((64, 8), np.float32), {}, ValueError, "give its transpose"),
        (X[0], W, {}, ValueError, "expected at least two dimensions"),
        (np.ones((2, 4, 64)), np.ones((3, 8, 64)), {}, ValueError, "A is a batch of"),
        (
            ov.encode(X, "e4m3fn"),
            W,
            {},
            TypeError,
            "[gemm] a is float8_e4m3fn, codes without scales",
        ),
        (X, ov.encode(W, "e5m2"), {}, TypeError, "[gemm] b is float8_e5m2, codes without scales"),
        (X.astype(np.int32), W, {}, TypeError, "[gemm: a] got int32"),
        ("text", W, {}, TypeError, "[gemm: a] got str"),
        (
            ov.quantize(X, ov.Scaling(tile="column", scale="f32")),
            W,
            {},
            ValueError,
            "quantized along the wrong direction",
        ),
        (
            ov.quantize(X, ov.Scaling(rowwise=False, columnwise=True)),
            W,
            {},
            ValueError,
            "has a columnwise copy only",
        ),
        (
            ov.quantize(X, ov.preset("nvfp4").replace(hadamard="rowwise")),
            ov.quantize(W, "nvfp4"),
            {},
            ValueError,
            "the transforms cancel only where both operands",
        ),
        (QX, QW, {"bias": np.ones(4, np.float32)}, ValueError, "the bias has shape"),
        (QX, QW, {"bias": np.ones(8, np.int8)}, TypeError, "[gemm: bias] got int8"),
        (QX, QW, {"residual": X}, ValueError, "the residual has shape"),
        (QX, QW, {"residual": ov.encode(OUT, "e4m3fn")}, TypeError, "[gemm: residual] got float8"),
        (
            QX,
            QW,
            {"activation": "tanh"},
            ValueError,
            "[gemm] got activation 'tanh'; expected gelu,",
        ),
        (QX, QW, {"activation": 3}, TypeError, "[gemm] got activation of type int"),
        (
            QX,
            QW,
            {"accumulator": "int32"},
            ValueError,
            "[gemm] got accumulator 'int32'; expected native, float32",
        ),
        (QX, QW, {"accumulator": None}, TypeError, "[gemm] got accumulator of type NoneType"),
        (
            QX,
            QW,
            {"accumulator": "hopper_fp8", "promote_every": 100},
            ValueError,
            "got promote_every = 100; expected a multiple of 32",
        ),
        (QX, QW, {"promote_every": -1}, ValueError, "got promote_every = -1"),
        (QX, W, {"accumulator": "hopper_fp8"}, TypeError, "B is not e4m3fn or e5m2"),
        (QX, QW, {"out": "float64"}, TypeError, "the output is float64"),
        (QX, QW, {"out": "int8"}, ValueError, "[gemm] got out = 'int8'; expected float64, float32"),
        (QX, QW, {"out": ml_dtypes.float8_e4m3fn}, TypeError, "codes need scales"),
        (QX, QW, {"out": QX}, TypeError, "out is a QuantizedTensor; expected how to quantize"),
        (QX, QW, {"out": OUT.T}, ValueError, "out has shape (8, 4); expected (4, 8)"),
        (QX, QW, {"out": np.zeros((4, 8), np.int32)}, TypeError, "[gemm] got dtype int32"),
        (
            BASE.reshape(4, 64),
            W[:, :],
            {"out": BASE[:32].reshape(4, 8)},
            ValueError,
            "the output shares memory with A",
        ),
        (QX, QW, {"threads": -1}, ValueError, "got threads = -1; expected 0 to 1024"),
    ],
)
def test_refused(a, b, more, error, message):
    with pytest.raises(error) as caught:
        ov.gemm(a, b, **more)
    assert message in str(caught.value)


def test_nothing_is_written_where_something_is_refused():
    out = np.full((4, 8), 5, np.float32)
    with pytest.raises(ValueError, match="the bias has shape"):
        ov.gemm(QX, QW, np.ones(3, np.float32), out=out)
    assert (out == 5).all()


def test_gradients_and_other_libraries_are_refused(torch):
    with pytest.raises(RuntimeError, match=r"\[gemm: b\] got a tensor that requires grad"):
        ov.gemm(torch.ones(2, 8), torch.nn.Parameter(torch.ones(3, 8)))
    with pytest.raises(TypeError, match="out is a NumPy array, but the input is a torch tensor"):
        ov.gemm(torch.ones(4, 8), torch.ones(8, 8), out=OUT)


def test_transposed_needs_the_copy():
    with pytest.raises(ValueError, match=r"\[transposed\] the tensor has no columnwise copy"):
        ov.transposed(QX)
    with pytest.raises(TypeError, match=r"\[transposed\] got ndarray; expected a QuantizedTensor"):
        ov.transposed(X)
