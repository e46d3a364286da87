"""octavo.gemm_error beside its definitions in float64."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # pytest's importlib mode does not
from exact_product import values_of  # noqa: E402

import octavo as ov  # noqa: E402


def uniform(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).uniform(0.5, 1.5, shape).astype(np.float32)


def distance(x, y):
    norm = np.linalg.norm
    cosine = float((x * y).sum() / (norm(x) * norm(y)))
    return float(norm(y - x) / norm(x)), float(np.abs(y - x).max()), cosine


@pytest.mark.parametrize("preset", ["fp8", "mxfp8", "nvfp4"])
def test_three_products(preset):
    x, w = uniform(9, 300), uniform(11, 300, seed=1)
    qx, qw = ov.quantize(x, preset), ov.quantize(w, preset)
    result = ov.gemm(qx, qw, out="bfloat16")
    found = ov.gemm_error(x, w, qx, qw, result)
    exact = x.astype(np.float64) @ w.T.astype(np.float64)
    used, made = values_of(qx) @ values_of(qw).T, result.astype(np.float64)
    assert isinstance(found, ov.GemmError)
    assert found.elements == 99 and found.not_finite == 0
    for got, wanted in [
        (found.quantization, distance(exact, used)),
        (found.accumulation, distance(used, made)),
        (found.total, distance(exact, made)),
    ]:
        # Sums of 300 in float64 differ by their order alone: 300 * 2^-53 of about 300, where the
        # least distance here is that of a rounding to bfloat16, some 2^-10 of as much.
        np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_without_a_result_it_is_that_of_gemm(torch):
    x, w = uniform(4, 4096), uniform(3, 4096, seed=1)
    qx, qw = ov.quantize(x, "fp8"), ov.quantize(w, "fp8")
    found = ov.gemm_error(x, w, qx, qw)
    assert found == ov.gemm_error(x, w, qx, qw, ov.gemm(qx, qw), threads=1)
    tensors = [torch.from_numpy(v) for v in (x, w)]
    assert found == ov.gemm_error(*tensors, ov.quantize(tensors[0], "fp8"), qw)
    # What stays of long sums in the accumulator of an FP8 tensor core, and with promotion.
    never, often = (
        ov.gemm_error(x, w, qx, qw, accumulator="hopper_fp8", promote_every=every)
        for every in (0, 128)
    )
    assert never.quantization == often.quantization == found.quantization
    assert never.accumulation.relative_l2 > 0.01 > 1e-3 > often.accumulation.relative_l2
    assert ov.gemm_error(x, w, x, w).quantization.max_abs == 0.0


def test_refused():
    x, w = uniform(4, 64), uniform(3, 64, seed=1)
    q = ov.quantize(x, "fp8")
    with pytest.raises(TypeError, match=r"\[gemm_error\] a_used is float8_e4m3fn, codes without"):
        ov.gemm_error(x, w, q.codes, w)
    with pytest.raises(ValueError, match=r"\[gemm_error\] got threads = -1"):
        ov.gemm_error(x, w, q, w, threads=-1)
    with pytest.raises(ValueError, match="shape"):
        ov.gemm_error(x, w, q, w, np.zeros((4, 4), np.float32))
    with pytest.raises(ValueError, match="shape"):
        ov.gemm_error(x[:3], w, q, w, np.zeros((4, 3), np.float32))
    with pytest.raises(TypeError, match=r"\[gemm_error\] got int64"):
        ov.gemm_error(np.ones((4, 64), np.int64), w, q, w)
