"""The compatibility layer, and what public functions of these names get wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import octavo as ov
from octavo.compat import (
    fp8_format,
    int32_to_bfloat16,
    round_to_fp8_represented_as_int8,
    undo_int8_fp8,
)


def test_exported_at_the_top():
    assert ov.round_to_fp8_represented_as_int8 is round_to_fp8_represented_as_int8
    assert ov.undo_int8_fp8 is undo_int8_fp8 and ov.int32_to_bfloat16 is int32_to_bfloat16
    assert ov.compat.fp8_format is fp8_format


@pytest.mark.parametrize("n", range(8))
@pytest.mark.parametrize("signed", [True, False])
def test_every_width_round_trips(n, signed, torch):
    f = fp8_format(n, signed)
    widths = (f.bits, f.is_signed, f.mantissa_bits, f.exponent_bits)
    assert widths == (8, signed, n, 7 - n if signed else 8 - n)
    codes = torch.arange(256, dtype=torch.uint8)
    values = undo_int8_fp8(codes, n, torch.bfloat16, signed=signed)
    assert values.dtype is torch.bfloat16
    np.testing.assert_array_equal(values.double().numpy(), f.values())
    again = round_to_fp8_represented_as_int8(values, n, signed=signed)
    assert again.dtype is torch.uint8
    number = ~torch.isnan(values)
    assert torch.equal(again[number], codes[number])
    assert torch.isnan(undo_int8_fp8(again, n, signed=signed)[~number]).all()


def test_formats():
    assert [fp8_format(n, signed=False).name for n in range(8)] == [
        "e8m0fnu",
        "e7m1fnu",
        "e6m2fnu",
        "e5m3fnu",
        "e4m4fnu",
        "e3m5fnu",
        "e2m6fnu",
        "e1m7fnu",
    ]
    assert [fp8_format(n).name for n in range(8)] == [
        "e7m0fn",
        "e6m1",
        "e5m2",
        "e4m3fn",
        "e3m4",
        "e2m5",
        "e1m6",
        "e0m7",
    ]
    for n in (8, 9, -1):
        with pytest.raises(
            ValueError, match=rf"^\[fp8_format\] got n_mantissa = {n}; expected 0 to "
        ):
            fp8_format(n)
    with pytest.raises(
        TypeError, match=r"^\[fp8_format\] got n_mantissa of type float; expected an integer"
    ):
        fp8_format(3.0)


def test_what_public_versions_got_wrong(torch):
    # 1.0 .. 1.75 all encoded alike; E4M3 1.0 became 256; minus zero was lost; 600 wrapped around.
    x = torch.tensor(
        [1.0, 1.25, 1.5, 1.75, -0.0, 600.0, math.inf, -math.inf, 2.0**-9], dtype=torch.bfloat16
    )
    assert round_to_fp8_represented_as_int8(x, 3).tolist() == [
        0x38,
        0x3A,
        0x3C,
        0x3E,
        0x80,
        0x7E,
        0x7E,
        0xFE,
        0x01,
    ]
    assert round_to_fp8_represented_as_int8(x, 2).tolist() == [
        0x3C,
        0x3D,
        0x3E,
        0x3F,
        0x80,
        0x61,
        0x7C,
        0xFC,
        0x18,
    ]
    assert undo_int8_fp8(
        round_to_fp8_represented_as_int8(x[:4], 3), 3, torch.bfloat16
    ).tolist() == [1, 1.25, 1.5, 1.75]


@pytest.mark.parametrize("n, dtype", [(3, "float8_e4m3fn"), (2, "float8_e5m2")])
def test_agrees_with_torch_in_range(n, dtype, torch, all_16_bits):
    x = torch.from_numpy(all_16_bits.view(np.int16).copy()).view(torch.bfloat16)
    x = x[x.abs() <= fp8_format(n).max]
    theirs = x.to(getattr(torch, dtype)).view(torch.uint8)
    assert torch.equal(round_to_fp8_represented_as_int8(x, n), theirs)


def test_overflow_argument(torch):
    x = torch.tensor([1e6, math.inf])
    assert round_to_fp8_represented_as_int8(x, 2, overflow="saturate").tolist() == [0x7B, 0x7B]
    assert round_to_fp8_represented_as_int8(x, 2, overflow="ieee").tolist() == [0x7C, 0x7C]


def test_numpy_and_lists(ml_dtypes):
    codes = round_to_fp8_represented_as_int8([1.0, 2.0, 3.0], 3)
    assert type(codes) is np.ndarray and codes.dtype == np.uint8
    values = undo_int8_fp8(codes, 3)
    assert values.dtype == ml_dtypes.bfloat16 and values.astype(float).tolist() == [1, 2, 3]


class TestOut:
    @pytest.mark.parametrize("dtype", ["uint8", "int8"])
    def test_codes(self, dtype, torch):
        x = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
        out = torch.empty(2, dtype=getattr(torch, dtype))
        assert round_to_fp8_represented_as_int8(x, 3, out) is out
        assert out.view(torch.uint8).tolist() == [0x38, 0xC0]
        assert round_to_fp8_represented_as_int8(x, 3, out=out, scaling_factor=2) is out
        assert out.view(torch.uint8).tolist() == [0x40, 0xC8]
        assert undo_int8_fp8(out, 3, "float32", scaling_factor=2).tolist() == [1, -2]

    @pytest.mark.parametrize("factor", [1, 2, 0.3])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_values(self, dtype, factor, torch):
        codes = torch.tensor([0x38, 0xC0], dtype=torch.uint8)
        out = torch.empty(2, dtype=getattr(torch, dtype))
        assert undo_int8_fp8(codes, 3, out.dtype, out, factor) is out
        expected = torch.tensor([1 / factor, -2 / factor], dtype=torch.float64).to(out.dtype)
        assert torch.equal(out, expected)

    def test_wrong(self, torch):
        x = torch.ones(2)
        with pytest.raises(
            TypeError,
            match=r"^\[round_to_fp8_represented_as_int8\] out is of dtype float32; expected uint8",
        ):
            round_to_fp8_represented_as_int8(x, 3, torch.empty(2))
        with pytest.raises(
            ValueError,
            match=r"^\[round_to_fp8_represented_as_int8\] out has shape \(3,\); expected \(2,\)",
        ):
            round_to_fp8_represented_as_int8(x, 3, torch.empty(3, dtype=torch.uint8), 4.0)


class TestScalingFactor:
    def test_given(self, torch):
        x = torch.tensor([1e-4, 3e-4, -2e-4], dtype=torch.bfloat16)
        assert round_to_fp8_represented_as_int8(x, 3).tolist() == [
            0,
            0,
            0x80,
        ]  # below 2^-10: flushed
        codes = round_to_fp8_represented_as_int8(x, 3, scaling_factor=1e6)
        values = undo_int8_fp8(codes, 3, torch.float32, scaling_factor=1e6)
        torch.testing.assert_close(values, x.float(), rtol=2**-4, atol=0)

    def test_product_is_rounded_once(self, torch):
        # The product lies just above the midpoint 1.0625; float32 rounds it to the midpoint.
        x, factor = torch.tensor([1.0078125], dtype=torch.bfloat16), 1.0542635917663574
        assert float(np.float32(factor)) == factor and 1.0078125 * factor > 1.0625
        assert np.float32(1.0078125) * np.float32(factor) == 1.0625
        assert round_to_fp8_represented_as_int8(x, 3, scaling_factor=factor).tolist() == [0x39]

    @pytest.mark.parametrize("n", range(7))
    @pytest.mark.parametrize("magnitude", [1e-30, 1e-3, 1.0, 448.0, 449.0, 1e30])
    def test_auto(self, n, magnitude, torch):
        x = (torch.linspace(-1, 1, 101) * magnitude).to(torch.bfloat16)
        codes, factor, counts = round_to_fp8_represented_as_int8(
            x, n, scaling_factor="auto", return_counts=True
        )
        assert isinstance(factor, float) and math.frexp(factor)[0] == 0.5  # a power of two
        amax, largest = x.abs().max().item(), fp8_format(n).max
        assert amax * factor <= largest < amax * factor * 2
        assert counts.saturated == counts.nan == 0
        again = undo_int8_fp8(codes, n, "float64", scaling_factor=factor)
        step = max(2.0 ** -(n + 1) * amax, fp8_format(n).smallest_subnormal / factor)
        assert (again - x.double()).abs().max() <= step

    def test_auto_is_deterministic_at_the_limit(self):
        # The largest |t| lands exactly on the largest value: the factor is 1, not 1/2.
        assert round_to_fp8_represented_as_int8([448.0], 3, scaling_factor="auto")[1] == 1
        assert (
            round_to_fp8_represented_as_int8([np.nextafter(448.0, 449)], 3, scaling_factor="auto")[
                1
            ]
            == 0.5
        )

    def test_auto_edges(self):
        assert round_to_fp8_represented_as_int8(np.zeros(3), 3, scaling_factor="auto")[1] == 1
        assert round_to_fp8_represented_as_int8(np.zeros(0), 3, scaling_factor="auto")[1] == 1
        codes, factor = round_to_fp8_represented_as_int8(
            [np.inf, np.nan, 7.0], 3, scaling_factor="auto"
        )
        assert factor == 64 and codes.tolist() == [0x7E, 0x7F, 0x7E]
        codes, factor = round_to_fp8_represented_as_int8([5e-324], 2, scaling_factor="auto")
        assert factor == 2.0**1023

    def test_wrong(self):
        for factor in (0, -1, math.inf, math.nan):
            with pytest.raises(
                ValueError, match=r"got scaling_factor = .*; expected a positive, finite number"
            ):
                round_to_fp8_represented_as_int8([1.0], 3, scaling_factor=factor)
        with pytest.raises(
            ValueError, match=r"got scaling_factor 'max'; expected a number, an array, 'auto' or"
        ):
            round_to_fp8_represented_as_int8([1.0], 3, scaling_factor="max")
        with pytest.raises(
            TypeError, match=r"^\[undo_int8_fp8\] got scaling_factor 'auto'; expected a number"
        ):
            undo_int8_fp8(np.uint8([0]), 3, "float32", scaling_factor="auto")
        with pytest.raises(TypeError, match=r"got scaling_factor None; expected a number"):
            round_to_fp8_represented_as_int8([1.0], 3, scaling_factor=None)


class TestStochastic:
    @pytest.mark.parametrize("n", [1, 2, 3, 4])
    @pytest.mark.parametrize("factor", [1, 3.0])
    def test_mean_converges(self, n, factor, torch):
        # Within 5 sigma of the mean of `count` coins of one step, all but once in a million.
        count, value = 1 << 20, 1.0859375
        codes = round_to_fp8_represented_as_int8(
            torch.full((count,), value, dtype=torch.bfloat16),
            n,
            scaling_factor=factor,
            stochastic=True,
            seed=n,
        )
        mean = undo_int8_fp8(codes, n, torch.float64, scaling_factor=factor).mean().item()
        step = 2.0 ** (math.floor(math.log2(value * factor)) - n) / factor
        assert abs(mean - value) < 5 * step / 2 / count**0.5
        assert len(codes.unique()) == 2

    def test_seed(self, torch):
        x = torch.linspace(-2, 2, 1000)
        one = round_to_fp8_represented_as_int8(x, 3, stochastic=True, seed=1)
        assert torch.equal(one, round_to_fp8_represented_as_int8(x, 3, stochastic=True, seed=1))
        assert not torch.equal(one, round_to_fp8_represented_as_int8(x, 3, stochastic=True, seed=2))


def test_counts(torch):
    x = torch.tensor([1e9, -1e9, 1e-30, math.nan, 1.0, 0.0])
    codes, counts = round_to_fp8_represented_as_int8(x, 3, return_counts=True)
    assert counts == ov.Counts(saturated=2, flushed=1, nan=1) and codes.dtype is torch.uint8


def test_shapes_and_strides(torch):
    x = torch.randn(5, 7).to(torch.bfloat16).T
    for factor in (1, 4.0):
        codes = round_to_fp8_represented_as_int8(x, 3, scaling_factor=factor)
        expected = round_to_fp8_represented_as_int8(x.contiguous(), 3, scaling_factor=factor)
        assert codes.shape == (7, 5) and torch.equal(codes, expected)
        values = undo_int8_fp8(codes, 3, "float32", scaling_factor=factor)
        assert torch.equal(values, undo_int8_fp8(expected, 3, "float32", scaling_factor=factor))


class TestInt32ToBfloat16:
    def test_bits(self, torch):
        bits = torch.tensor([[0x3F800000, 0x40490FDB], [-(2**31), 0x7F800000]], dtype=torch.int32)
        values = int32_to_bfloat16(bits)
        assert values.dtype is torch.bfloat16 and values.tolist() == [
            [1.0, 3.140625],
            [-0.0, math.inf],
        ]
        assert torch.signbit(values[1, 0])
        assert torch.equal(values, bits.view(torch.float32).to(torch.bfloat16))

    def test_every_bfloat16_comes_back(self, all_16_bits, ml_dtypes):
        x = (all_16_bits.astype(np.uint32) << 16).view(np.int32)
        values = int32_to_bfloat16(x)
        assert values.dtype == ml_dtypes.bfloat16
        number = ~np.isnan(values.astype(np.float32))
        np.testing.assert_array_equal(values.view(np.uint16)[number], all_16_bits[number])
        np.testing.assert_array_equal(number, ~np.isnan(x.view(np.float32)))

    def test_out_and_errors(self, torch):
        out = torch.empty(1, dtype=torch.bfloat16)
        assert (
            int32_to_bfloat16(torch.tensor([0x3F800000], dtype=torch.int32), out) is out
            and out.item() == 1
        )
        with pytest.raises(
            TypeError,
            match=r"^\[int32_to_bfloat16\] got int64; expected an array of int32 or uint32",
        ):
            int32_to_bfloat16(torch.tensor([1]))


def test_a_factor_of_many_bits_does_not_round_twice():
    # k * f is just above the tie 1.0625 between 1.0 (0x38) and 1.125 (0x39), by less than float64
    # shows.
    witnesses = 0
    for k in range(3, 400, 2):
        factor = 1.0625 / k
        exact = Fraction(factor) * k
        if exact == Fraction(17, 16):
            continue
        wanted = 0x39 if exact > Fraction(17, 16) else 0x38
        for sign in (1, -1):
            codes = ov.round_to_fp8_represented_as_int8(
                np.float32([sign * k]), 3, scaling_factor=factor
            )
            assert int(codes[0]) == wanted | (0x80 if sign < 0 else 0), (k, factor)
        witnesses += float(factor) * k == 1.0625
    assert witnesses > 50
