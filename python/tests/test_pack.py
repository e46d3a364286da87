"""Packed weights: gemm of what was packed, with any number of rows, and refusals."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import octavo as ov

PRESETS = ["fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"]


def weights(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, cols), np.float32)


def bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The bound of float32 sums in any order (docs/numerics/gemm.md): a rounding of 2^-24 for each
    of K sums, and eight for scales and the result, of the sum of magnitudes."""
    return (x.shape[1] + 8) * 2.0**-24 * (np.abs(x) @ np.abs(w).T)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("rows", [1, 4, 16, 40])
def test_the_product_of_what_was_packed(name: str, rows: int) -> None:
    q = ov.quantize(weights(50, 96), name)
    x = weights(rows, 96, 1)
    exact = ov.gemm(x, q, accumulator="float64", out="float64")
    assert np.all(np.abs(ov.gemm(x, ov.pack(q)) - exact) <= bound(x, ov.dequantize(q)))


def test_quantized_rows_and_every_way_of_a_result() -> None:
    q = ov.quantize(weights(64, 128), "mxfp8")
    packed = ov.pack(q)
    x = ov.quantize(weights(40, 128, 1), "mxfp8")
    wanted = ov.gemm(x, q)
    assert np.array_equal(ov.gemm(x, packed), wanted)
    out = np.empty((40, 64), np.float32)
    assert ov.gemm(x, packed, out=out) is out
    assert np.array_equal(out, wanted)
    bias, residual = weights(1, 64, 2)[0], weights(40, 64, 3)
    assert np.array_equal(
        ov.gemm(x, packed, bias, activation="gelu", residual=residual),
        ov.gemm(x, q, bias, activation="gelu", residual=residual),
    )
    requantized = ov.gemm(x, packed, out="mxfp8")
    assert np.array_equal(requantized.codes, ov.gemm(x, q, out="mxfp8").codes)


def test_what_it_says_about_itself() -> None:
    q = ov.quantize(weights(50, 96), "nvfp4")
    packed = ov.pack(q)
    assert packed.shape == (50, 96)
    assert packed.scaling == q.scaling
    assert packed.backend == ov.doctor()["backend"]
    assert packed.nbytes >= q.nbytes
    assert "nvfp4" in repr(packed) or "e2m1fn" in repr(packed)
    assert ov.pack(weights(8, 8)).scaling is None


def test_torch_values() -> None:
    torch = pytest.importorskip("torch")
    w = torch.randn(24, 64).bfloat16()
    x = torch.randn(5, 64).bfloat16()
    result = ov.gemm(x, ov.pack(w))
    assert isinstance(result, torch.Tensor)
    exact = x.double() @ w.double().t()
    allowed = bound(x.double().numpy(), w.double().numpy())
    assert np.all(np.abs(result.double().numpy() - exact.numpy()) <= allowed)


def test_refusals() -> None:
    packed = ov.pack(ov.quantize(weights(50, 96), "mxfp8"))
    x = weights(4, 96)
    with pytest.raises(TypeError, match="right operand of gemm alone"):
        ov.gemm(packed, x)
    with pytest.raises(TypeError, match="right operand of gemm alone"):
        ov.gemm_grouped(x, packed, [4])
    with pytest.raises(ValueError, match=r"expected \[N, K\]"):
        ov.pack(np.zeros((2, 3, 4), np.float32))
    with pytest.raises(ValueError, match="K is 4 in A"):
        ov.gemm(x[:, :4], packed)
    with pytest.raises(TypeError, match="codes without scales"):
        ov.pack(ov.encode(x, "e4m3fn"))
    with pytest.raises(TypeError, match="threads"):
        ov.pack(x, threads="2")
    with pytest.raises(TypeError, match="pack them again"):
        copy.deepcopy(packed)
    with pytest.raises(TypeError, match="pack them again"):
        pickle.dumps(packed)
    with pytest.raises(TypeError, match="no values in rows"):
        np.asarray(packed)
    with pytest.raises(ValueError, match=r"the matrix has shape \[96\]"):
        ov.pack(x[0])
    if packed.in_panels:
        with pytest.raises(RuntimeError, match="sum in float32"):
            ov.gemm(x, packed, accumulator="float64")
