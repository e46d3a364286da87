"""octavo.gemm beside products in float64, on every kind of operand and array."""

from __future__ import annotations

import math
import pathlib
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from exact_product import HALF_ULP, bound, check, product, values_of  # noqa: E402

import octavo as ov  # noqa: E402

PRESETS = ["fp8", "fp8:e5m2", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8", "mxfp4", "nvfp4"]


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng((seed, *shape)).normal(0, 2, shape).astype(dtype)


def integers(*shape, seed=0):
    """Small enough that every sum is exact in float32, in any order."""
    return np.random.default_rng((seed, *shape)).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("right", PRESETS)
@pytest.mark.parametrize("left", PRESETS)
def test_every_pair_of_scalings(left, right):
    for m, n, k in [(1, 1, 1), (7, 3, 33), (5, 130, 257)]:
        a, b = ov.quantize(normal(m, k), left), ov.quantize(normal(n, k, seed=1), right)
        got = ov.gemm(a, b)
        assert got.dtype == np.float32
        check(got, a, b)


@pytest.mark.parametrize("shape", [(2, 31, 127), (31, 2, 129), (1, 16, 1000), (16, 1, 1000)])
@pytest.mark.parametrize("scaling", ["mxfp8", "fp8-1x128"])
def test_ragged_shapes(shape, scaling):
    m, n, k = shape
    a, b = ov.quantize(normal(m, k), scaling), ov.quantize(normal(n, k, seed=1), scaling)
    check(ov.gemm(a, b), a, b)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_values_beside_codes(dtype):
    x, w = normal(6, 70, dtype=dtype), ov.quantize(normal(9, 70, seed=1), "mxfp8")
    if dtype is np.float64:
        x = x.astype(np.float32).astype(np.float64)  # a float32 accumulator takes no more
    check(ov.gemm(x, w), x, w)
    check(ov.gemm(w, x), w, x)
    check(ov.gemm(x, x), x, x)
    # Of any strides, and lists count as NumPy's.
    check(ov.gemm(x[::-2, ::3], x[:, ::3]), x[::-2, ::3], x[:, ::3])
    assert ov.gemm([[1, 2]], [[3, 4]]).tolist() == [[11]]


@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
def test_exact_sums_are_exact(out):
    a, b = integers(17, 96), integers(19, 96, seed=1)
    wanted = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32)
    name = ov.gemm(a, b, out=out).dtype  # 16 bits hold less, and round once
    for left in (a, ov.quantize(a, "mxfp8")):
        for right in (b, ov.quantize(b, "mxfp8")):
            np.testing.assert_array_equal(ov.gemm(left, right, out=out), wanted.astype(name))


def activations(x):
    erf = np.vectorize(math.erf, otypes=[np.float64])
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return {
        "gelu": 0.5 * x * (1 + erf(x / math.sqrt(2))),
        "gelu_tanh": 0.5 * x * (1 + np.tanh(inner)),
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
    }


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "relu", "silu"])
def test_what_comes_after_the_sum(activation):
    a, b = ov.quantize(normal(5, 64) / 8, "fp8"), ov.quantize(normal(12, 64, seed=1) / 8, "mxfp8")
    bias, residual = normal(12, seed=2), normal(5, 12, seed=3, dtype=np.float16)
    exact, magnitude = product(a, b)
    before = exact + bias
    wanted = before if activation is None else activations(before)[activation]
    wanted = wanted + residual
    got = ov.gemm(a, b, bias, activation=activation, residual=residual)
    # No activation here is steeper than 1.13; sums of the bias and the residual, and the activation
    # itself, round once more each.
    room = 1.13 * bound(exact, magnitude, 64)
    room += 4 * 2.0**-24 * (np.abs(before) + np.abs(wanted) + np.abs(residual) + magnitude)
    assert (np.abs(got - wanted) <= room).all()
    # The order: the activation is of the sum with the bias, and not of the residual.
    if activation == "relu":
        low = ov.gemm(a, b, np.full(12, -1e6, np.float32), activation="relu", residual=residual)
        np.testing.assert_array_equal(low, residual.astype(np.float32))


def test_out_is_a_dtype_of_any_library(torch):
    a, b = ov.quantize(normal(3, 32), "mxfp8"), ov.quantize(normal(4, 32, seed=1), "mxfp8")
    for out, name in [
        ("float16", "float16"),
        ("bf16", "bfloat16"),
        (np.float16, "float16"),
        (np.dtype("float32"), "float32"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (torch.bfloat16, "bfloat16"),
    ]:
        got = ov.gemm(a, b, out=out)
        assert isinstance(got, np.ndarray) and got.dtype.name == name
        check(got, a, b, name)
    tensor = ov.gemm(torch.ones(2, 8), torch.ones(3, 8, dtype=torch.bfloat16), out=np.float16)
    assert tensor.dtype == torch.float16 and tensor.tolist() == [[8.0] * 3] * 2


def test_results_are_of_the_library_of_a(torch, foreign):
    x, w = integers(4, 32), integers(6, 32, seed=1)
    wanted = (x @ w.T).tolist()
    tx, tw = torch.from_numpy(x), torch.from_numpy(w)
    for left, right in [(tx, tw), (tx, w), (ov.quantize(tx, "mxfp8"), ov.quantize(w, "mxfp8"))]:
        got = ov.gemm(left, right)
        assert isinstance(got, torch.Tensor) and got.tolist() == wanted
    assert isinstance(ov.gemm(ov.quantize(x, "fp8"), tw), np.ndarray)
    got = ov.gemm(foreign(x), w)
    assert isinstance(got, foreign) and got.x.tolist() == wanted


def test_into_memory_of_the_caller(torch):
    a, b = ov.quantize(normal(4, 64), "mxfp8"), ov.quantize(normal(8, 64, seed=1), "mxfp8")
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        out = np.full((4, 8), 7, dtype)
        assert ov.gemm(a, b, out=out) is out
        np.testing.assert_array_equal(out, ov.gemm(a, b, out=dtype))
    tensor = torch.zeros(4, 8)
    ta, version = ov.quantize(torch.from_numpy(normal(4, 64)), "mxfp8"), tensor._version
    assert ov.gemm(ta, b, out=tensor) is tensor and tensor._version > version
    np.testing.assert_array_equal(tensor.numpy(), ov.gemm(a, b))


@pytest.mark.parametrize("scaling", PRESETS)
def test_straight_into_a_quantization(scaling):
    a, b = ov.quantize(normal(40, 64), "mxfp8"), ov.quantize(normal(72, 64, seed=1), "nvfp4")
    bias = normal(72, seed=2)
    got = ov.gemm(a, b, bias, activation="silu", out=scaling)
    wanted = ov.quantize(ov.gemm(a, b, bias, activation="silu"), scaling)
    assert got.scaling == wanted.scaling and got.shape == (40, 72) and got.dtype == np.float32
    for part in ("codes", "scales", "tensor_scale"):
        one, other = getattr(got, part), getattr(wanted, part)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.tobytes() == other.tobytes()
    assert ov.gemm(
        a, b, out=ov.preset(scaling).replace(columnwise=True)
    ).columnwise_codes.shape == (
        72,
        20 if "fp4" in scaling else 40,
    )


def test_batches():
    x, w = normal(2, 3, 5, 64), normal(2, 3, 4, 64, seed=1)
    q, r = ov.quantize(x, "mxfp8"), ov.quantize(w, "mxfp8")
    one = ov.quantize(w[1, 2], "mxfp8")
    for a, b in [(q, r), (q, one), (one, r), (x, r), (q, w)]:
        check(ov.gemm(a, b), a, b)


def test_products_of_training(torch):
    both = ov.preset("mxfp8").replace(columnwise=True)
    x, w, dy = (integers(*shape, seed=i) for i, shape in enumerate([(64, 32), (96, 32), (64, 96)]))
    q = {name: ov.quantize(v, both) for name, v in (("x", x), ("w", w), ("dy", dy))}
    transposed = {name: ov.transposed(one) for name, one in q.items()}
    assert transposed["x"].shape == (32, 64) and ov.transposed(transposed["x"]).shape == (64, 32)
    assert np.shares_memory(transposed["x"].codes, q["x"].columnwise_codes)
    np.testing.assert_array_equal(ov.gemm(q["x"], q["w"]), x @ w.T)
    np.testing.assert_array_equal(ov.gemm(q["dy"], transposed["w"]), dy @ w)
    np.testing.assert_array_equal(ov.gemm(transposed["dy"], transposed["x"]), dy.T @ x)
    t = ov.transposed(ov.quantize(torch.from_numpy(x), both))
    assert isinstance(ov.gemm(t, t), torch.Tensor)


def test_accumulators():
    # Uniform and positive: what a narrow accumulator cuts off is never made up for.
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, 4096)).astype(np.float32)
    q = ov.quantize(x, "fp8")
    exact, magnitude = product(q, q)
    off = {}
    for name, every in [("float32", 128), ("float64", 128), ("hopper_fp8", 0), ("hopper_fp8", 128)]:
        got = ov.gemm(q, q, accumulator=name, promote_every=every, out="float32")
        off[name, every] = np.max(np.abs(got - exact) / exact)
    assert off["float32", 128] <= 4102 * 2.0**-24
    assert off["float64", 128] <= 2.0**-24
    assert off["hopper_fp8", 0] > 0.01  # a few per cent are lost
    assert off["hopper_fp8", 128] < 1e-3
    wide = ov.gemm(q, q, accumulator="float64", out=np.float64)
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, exact, rtol=4200 * HALF_ULP["float64"])
    # docs/numerics/gemm.md: runs of at most 128 products, each sum of theirs rounded to 11 bits;
    # what is subnormal in float16 is off by up to 2^-25 times the scale of codes divided by 32.
    half = ov.gemm(q, q, accumulator="float16")
    step = 130 * 2.0**-11
    unit = 32 * float(q.scales)
    small = 4096 * (2 * 1.6 * unit + unit * unit)
    room = (step / (1 - step) + 4104 * 2.0**-24) * magnitude + 2.0**-25 * small
    assert (np.abs(half - exact) <= room).all()


def test_nothing_to_sum_and_nothing_to_make():
    nothing = np.zeros((3, 0), np.float32)
    bias = np.float32([1, 2, 3, 4])
    for a in (nothing, ov.quantize(nothing, "mxfp8")):
        got = ov.gemm(a, np.zeros((4, 0), np.float32), bias)
        np.testing.assert_array_equal(got, np.broadcast_to(bias, (3, 4)))
    assert ov.gemm(np.zeros((0, 8), np.float32), np.ones((4, 8), np.float32)).shape == (0, 4)
    assert ov.gemm(np.zeros((4, 8), np.float32), np.ones((0, 8), np.float32)).shape == (4, 0)


def test_nan_goes_where_ieee_says():
    a, b = normal(3, 64), normal(4, 64, seed=1)
    a[1, 40] = np.nan
    got = ov.gemm(ov.quantize(a, "mxfp8"), ov.quantize(b, "mxfp8"))
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()
    infinite = ov.encode(np.float32([[np.inf, 1.0], [np.inf, 0.0]]), "e5m2", overflow="ieee")
    q = ov.quantized(infinite, np.float32(1), "fp8:e5m2")
    got = ov.gemm(q, np.float32([[1, -1], [-2, 5], [0, 1]]))
    assert got[0, 0] == np.inf and got[0, 1] == -np.inf and np.isnan(got[:, 2]).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_results(threads):
    a, b = ov.quantize(normal(65, 300), "mxfp8"), ov.quantize(normal(70, 300, seed=1), "fp8-1x128")
    np.testing.assert_array_equal(ov.gemm(a, b, threads=threads), ov.gemm(a, b))


def test_gil_is_released(monkeypatch):
    monkeypatch.setenv("OCTAVO_BACKEND", "reference")  # slow on purpose
    a = ov.quantize(normal(64, 2048), "mxfp8")
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        start = time.perf_counter()
        ov.gemm(a, a, threads=1)
        end = time.perf_counter()
    finally:
        stop.set()
        ticker.join()
    during = [t for t in ticks if start + 0.1 * (end - start) < t < end - 0.1 * (end - start)]
    assert end - start > 0.005 and during


def test_the_oracle_knows_what_is_wrong():
    """A product that is off by one part in a thousand does not pass."""
    a, b = ov.quantize(normal(6, 64), "nvfp4"), ov.quantize(normal(7, 64, seed=1), "mxfp4")
    np.testing.assert_allclose(values_of(a), ov.dequantize(a, "float64"), rtol=2.0**-22)
    with pytest.raises(AssertionError):
        check(ov.gemm(a, b) * np.float32(1.001), a, b)


def test_no_out_is_float32():
    x = np.ones((2, 3), np.float32)
    assert ov.gemm(x, x, out=None).dtype == np.float32


def test_nothing_is_aligned_on_a_cpu():
    x = np.ones((4, 64), np.float32)
    q = ov.quantize(x, "mxfp8")
    got, aligned = ov.gemm(q, q, return_aligned=True)
    assert aligned == 0 and np.array_equal(got, ov.gemm(q, q))
    made, aligned = ov.gemm(q, q, out="fp8", return_aligned=True)
    assert aligned == 0 and isinstance(made, ov.QuantizedTensor)
    experts = ov.quantize(np.ones((2, 8, 64), np.float32), "mxfp8")
    assert ov.gemm_grouped(q, experts, [1, 3], return_aligned=True)[1] == 0
    with pytest.raises(TypeError, match="return_aligned"):
        ov.gemm(q, q, return_aligned=1)
