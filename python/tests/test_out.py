"""out=: written in place, never copied, and refused with one clear error when it does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
CODES = ov.encode(X, "e4m3fn").view(np.uint8)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float8_e4m3fn"])
def test_numpy(dtype, ml_dtypes):
    out = np.empty((4, 6), getattr(ml_dtypes, dtype, dtype))
    assert ov.encode(X, "e4m3fn", out=out) is out
    np.testing.assert_array_equal(out.view(np.uint8), CODES)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float8_e4m3fn"])
def test_torch(dtype, torch):
    out = torch.empty(4, 6, dtype=getattr(torch, dtype))
    assert ov.encode(torch.from_numpy(X), "e4m3fn", out=out) is out
    np.testing.assert_array_equal(out.view(torch.uint8).numpy(), CODES)


def test_wide_codes(torch):
    expected = ov.encode(X, "e5m6")
    for dtype in (np.uint16, np.int16):
        out = np.empty((4, 6), dtype)
        np.testing.assert_array_equal(ov.encode(X, "e5m6", out=out).view(np.uint16), expected)
    out = np.empty((4, 6), np.float16)
    np.testing.assert_array_equal(ov.encode(X, "e5m10", out=out), X.astype(np.float16))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_decode(dtype, torch):
    codes = ov.encode(X, "e4m3fn")
    out = np.empty((4, 6), dtype)
    assert ov.decode(codes, out=out) is out  # the dtype is out's
    np.testing.assert_array_equal(out, codes.astype(dtype))
    t = torch.empty(4, 6, dtype=getattr(torch, dtype))
    assert ov.decode(ov.encode(torch.from_numpy(X), "e4m3fn"), dtype, out=t) is t
    np.testing.assert_array_equal(t.numpy(), out)


def test_counts_beside_out():
    out = np.empty((4, 6), np.uint8)
    codes, counts = ov.encode(X * 1e6, "e4m3fn", out=out, counts=True)
    assert codes is out and counts.saturated == 24


def test_fortran_order(torch):
    out = np.empty((4, 6), np.uint8, order="F")
    np.testing.assert_array_equal(ov.encode(X, "e4m3fn", out=out), CODES)
    t = torch.empty(6, 4, dtype=torch.uint8).T
    np.testing.assert_array_equal(ov.encode(torch.from_numpy(X), "e4m3fn", out=t).numpy(), CODES)


def test_part_of_a_larger_array():
    whole = np.full((6, 6), 0xAA, np.uint8)
    ov.encode(X, "e4m3fn", out=whole[1:5])
    np.testing.assert_array_equal(whole[1:5], CODES)
    assert (whole[[0, 5]] == 0xAA).all()


def test_packed():
    x = np.float32([[0.5, 1, 6], [1, 1, 1]])
    out = np.empty((2, 2), np.uint8)
    assert ov.encode(x, "e2m1fn", packed=True, out=out).tolist() == [[0x21, 0x07], [0x22, 0x02]]
    with pytest.raises(ValueError, match=r"^\[encode\] out has shape \(2, 3\); expected \(2, 2\)"):
        ov.encode(x, "e2m1fn", packed=True, out=np.empty((2, 3), np.uint8))


class TestInPlace:
    def test_codes_over_values(self):
        x = X.ravel().copy()
        out = x.view(np.uint8)[: x.size]
        ov.encode(x, "e4m3fn", out=out)
        np.testing.assert_array_equal(out, CODES.ravel())

    def test_large_and_threaded(self):
        x = np.random.default_rng(0).normal(size=1 << 20).astype(np.float32)
        expected = ov.encode(x, "e5m2").view(np.uint8)
        out = x.view(np.uint8)[: x.size]
        ov.encode(x, "e5m2", out=out, threads=2)
        np.testing.assert_array_equal(out, expected)

    def test_codes_over_codes(self, torch):
        t = torch.arange(256, dtype=torch.uint8)
        expected = ov.encode(t, "e5m2", source_format="e4m3fn").view(torch.uint8).clone()
        assert ov.encode(t, "e5m2", source_format="e4m3fn", out=t) is t and torch.equal(t, expected)

    def test_half_over_half(self):
        x = X.astype(np.float16)
        expected = ov.encode(x, "e5m6")
        np.testing.assert_array_equal(ov.encode(x, "e5m6", out=x.view(np.uint16)), expected)

    @pytest.mark.parametrize(
        "source, target",
        [(slice(0, 24), slice(1, 25)), (slice(1, 25), slice(0, 24))],
    )
    def test_shifted_overlap(self, source, target):
        memory = np.arange(32, dtype=np.uint8)
        before = memory.copy()
        with pytest.raises(
            ValueError, match=r"^\[encode\] input and output overlap; give separate memory"
        ):
            ov.encode(memory[source], "e5m2", source_format="e4m3fn", out=memory[target])
        np.testing.assert_array_equal(memory, before)

    def test_values_do_not_fit_over_codes(self):
        memory = np.zeros(40, np.uint8)
        with pytest.raises(ValueError, match=r"^\[decode\] input and output overlap"):
            ov.decode(memory[:10], format="e4m3fn", out=memory.view(np.float32))


class TestRefused:
    """Nothing is written when an out is refused."""

    def refuse(self, out, error, match, x=X, **kwargs):
        before = out.copy() if isinstance(out, np.ndarray) else None
        with pytest.raises(error, match=match):
            ov.encode(x, "e4m3fn", out=out, **kwargs)
        if before is not None:
            np.testing.assert_array_equal(out, before)

    def test_shape(self, torch):
        self.refuse(
            np.zeros((6, 4), np.uint8),
            ValueError,
            r"^\[encode\] out has shape \(6, 4\); expected \(4, 6\)$",
        )
        self.refuse(
            np.zeros(24, np.uint8),
            ValueError,
            r"^\[encode\] out has shape \(24,\); expected \(4, 6\)$",
        )
        self.refuse(
            torch.zeros(4, dtype=torch.uint8),
            ValueError,
            r"^\[encode\] out has shape \(4,\); expected \(4, 6\)$",
            x=torch.from_numpy(X),
        )

    def test_dtype(self, ml_dtypes):
        wanted = r"expected uint8, int8 or a dtype of e4m3fn$"
        for dtype in ("float32", "uint16", "bool"):
            self.refuse(
                np.zeros((4, 6), dtype),
                TypeError,
                rf"^\[encode\] out is of dtype {dtype}; {wanted}",
            )
        self.refuse(
            np.zeros((4, 6), ml_dtypes.float8_e5m2),
            TypeError,
            rf"^\[encode\] out is of dtype float8_e5m2; {wanted}",
        )
        with pytest.raises(
            TypeError, match=r"^\[decode\] out is of dtype float64; expected float32$"
        ):
            ov.decode(CODES, "float32", "e4m3fn", out=np.zeros((4, 6)))
        with pytest.raises(
            TypeError,
            match=r"^\[decode\] got dtype int32; expected float64, float32, float16 or bfloat16",
        ):
            ov.decode(CODES, format="e4m3fn", out=np.zeros((4, 6), np.int32))

    def test_read_only(self):
        out = np.zeros((4, 6), np.uint8)
        out.flags.writeable = False
        self.refuse(out, ValueError, r"^\[encode\] out is read-only; give one that can be written$")

    def test_not_contiguous(self, torch):
        match = r"^\[encode\] the output is not contiguous; give a contiguous \(row-major\) buffer"
        self.refuse(np.zeros((4, 12), np.uint8)[:, ::2], ValueError, match)
        self.refuse(np.zeros((4, 6), np.uint8)[::-1], ValueError, match)
        self.refuse(np.zeros((4, 8), np.uint8)[:, :6], ValueError, match)
        t = torch.from_numpy(X)
        self.refuse(torch.zeros(4, 12, dtype=torch.uint8)[:, ::2], ValueError, match, x=t)
        self.refuse(torch.zeros(1, 6, dtype=torch.uint8).expand(4, 6), ValueError, match, x=t)
        # Stochastic draws are counted in row-major order, so out must be in that order.
        self.refuse(np.zeros((4, 6), np.uint8, order="F"), ValueError, match, rounding="stochastic")

    def test_other_library(self, torch):
        match = r"^\[encode\] out is a torch tensor, but the input is a NumPy array; give an out of"
        self.refuse(torch.zeros(4, 6, dtype=torch.uint8), TypeError, match)
        match = r"^\[encode\] out is a NumPy array, but the input is a torch tensor; give an out of"
        self.refuse(np.zeros((4, 6), np.uint8), TypeError, match, x=torch.from_numpy(X))
        self.refuse([0] * 24, TypeError, r"^\[encode\] out is list, but the input is a NumPy array")

    def test_a_failed_policy_writes_nothing(self):
        out = np.full((2,), 0xAA, np.uint8)
        with pytest.raises(ValueError, match="NaN"):
            ov.encode([1.0, np.nan], "e2m1fn", out=out)
        assert out.tolist() == [0xAA, 0xAA]


def test_autograd_learns_of_the_write(torch):
    saved = torch.ones(3)
    w = torch.ones(3, requires_grad=True)
    loss = (w * saved).sum()
    ov.decode(ov.fp8_encode(torch.zeros(3)), out=saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors(torch):
    with torch.inference_mode():
        out = torch.zeros(3)
        ov.decode(ov.fp8_encode(torch.ones(3)), out=out)
        assert out.tolist() == [1, 1, 1]
