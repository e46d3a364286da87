"""Per-tensor E4M3 as torch._scaled_mm takes it: codes in the order of the input, a scale beside."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def test_codes_and_scale():
    codes, scale = ov.fp8_quantize(np.float32([1.0, 2.0, 3.0]))
    # 3 / 448, and what 1, 2 and 3 are in units of it, to four significant bits.
    assert scale.shape == () and scale.dtype == np.float32 and scale == np.float32(3) / 448
    assert ov.fp8_decode(codes).tolist() == [144.0, 288.0, 448.0]


def test_the_codes_are_those_of_the_preset(torch):
    x = np.random.default_rng(6).normal(size=(5, 6, 7)).astype(np.float32)
    q = ov.quantize(x, "fp8")
    for same in (x, np.asfortranarray(x), x.transpose(2, 0, 1).copy().transpose(1, 2, 0)):
        codes, scale = ov.fp8_quantize(same)
        np.testing.assert_array_equal(codes.view(np.uint8), q.codes.view(np.uint8))
        assert scale == q.scales and codes.strides == tuple(stride // 4 for stride in same.strides)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_torch_keeps_strides(dtype, torch):
    row_major = torch.randn(48, 32, generator=torch.manual_seed(0)).to(getattr(torch, dtype))
    col_major = row_major.t()
    codes, scale = ov.fp8_quantize(col_major)
    assert codes.dtype == torch.float8_e4m3fn and codes.stride() == col_major.stride() == (1, 32)
    assert scale.dtype == torch.float32 and scale.shape == ()
    same, same_scale = ov.fp8_quantize(row_major)
    assert same.stride() == (32, 1) and scale == same_scale
    assert torch.equal(codes.t().view(torch.uint8), same.view(torch.uint8))


def test_strided_slices_become_dense(torch):
    wide = torch.randn(16, 64, generator=torch.manual_seed(0))
    codes, _ = ov.fp8_quantize(wide[:, ::2])
    assert codes.stride() == (32, 1)
    codes, _ = ov.fp8_quantize(wide[:, ::2].t())
    assert codes.stride() == (1, 32)


def test_edges(torch):
    codes, scale = ov.fp8_quantize(np.zeros((2, 3), np.float32))
    assert scale == 1 and not codes.view(np.uint8).any()
    codes, scale = ov.fp8_quantize(np.empty((0, 3)))
    assert scale == 1 and codes.shape == (0, 3)
    codes, scale = ov.fp8_quantize(torch.tensor(2.0))
    assert codes.shape == () and codes.float() * scale == 2.0
    assert np.isnan(ov.fp8_quantize(np.float32([1, np.inf]))[1])


def error_bound(x: np.ndarray, scale: float) -> np.ndarray:
    """How far scale * decode(code) may be from x: half a unit in the last of four significant bits,
    at most 2**-4 of x, or half the smallest E4M3 value, 2**-10, times the scale. The scale, its
    reciprocal and the product are rounded to float32, which a per cent more covers many times."""
    return 1.01 * np.maximum(np.abs(x) * 2.0**-4, scale * 2.0**-10)


@pytest.mark.parametrize("b_order", ["row-major", "column-major"])
def test_scaled_mm(b_order, torch):
    """The matrix product of the seed: A [M,K], B [K,N], scales given explicitly."""
    m, k, n = 32, 128, 48
    torch.manual_seed(0)
    a, b = torch.randn(m, k), torch.randn(k, n)
    if b_order == "column-major":
        b = b.t().contiguous().t()
    a_q, a_scale = ov.fp8_quantize(a)
    b_q, b_scale = ov.fp8_quantize(b)
    assert b_q.shape == (k, n) and b_q.stride() == b.stride()
    result = torch._scaled_mm(
        a_q, b_q, scale_a=a_scale, scale_b=b_scale, out_dtype=torch.float32
    ).numpy()

    a64, b64 = a.double().numpy(), b.double().numpy()
    a_error, b_error = error_bound(a64, float(a_scale)), error_bound(b64, float(b_scale))
    size = (np.abs(a64) + a_error) @ (np.abs(b64) + b_error)
    # (a + da)(b + db) - ab, and a float32 sum of K products in any order with its two scales.
    bound = np.abs(a64) @ b_error + a_error @ np.abs(b64) + a_error @ b_error
    bound += (k + 4) * 2.0**-24 * size
    assert (np.abs(result - a64 @ b64) <= bound).all()
    # The bound is worth something: it is a small part of what the terms could add up to.
    assert bound.max() < 0.15 * size.max()
    # And without scales the product is far outside it.
    assert np.abs(result / float(a_scale * b_scale) - a64 @ b64).min() > bound.max()


def test_dlpack_strides(foreign):
    codes, scale = ov.fp8_quantize(foreign(np.asfortranarray(np.ones((3, 4), np.float32))))
    assert codes.x.shape == (3, 4) and codes.x.strides == (1, 3) and scale.x.shape == ()
