"""encode_scaled and decode_scaled: factors of every kind, each element rounded once. The oracle is
fractions.Fraction: the exact product, then the format's own encode of a value that lies on the
same side of every midpoint."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import octavo as ov


def to_nearest_even(product: Fraction, values: list[Fraction]) -> int:
    """The magnitude code whose value is nearest; values are those of codes 0, 1, ..."""
    best = 0
    for code, value in enumerate(values):
        distance, least = abs(value - product), abs(values[best] - product)
        if distance < least or (distance == least and code % 2 == 0):
            best = code
    return best


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e3m4", "e0m7", "e4m4fnu", "e2m1fn"])
@pytest.mark.parametrize("factor", [0.3, 3.0, 1.0542635917663574, 2.0**-12])
def test_codes_are_those_of_the_exact_product(name, factor):
    f = ov.format(name)
    numbers = [float(v) for v in f.values() if math.isfinite(v) and not np.signbit(v)]
    values = [Fraction(v) for v in numbers]
    middles = [(a + b) / 2 for a, b in zip(values, values[1:], strict=False)]
    near = np.float32([float(m / Fraction(factor)) for m in values[:40] + middles[:40]])
    x = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(9))])
    codes = ov.encode_scaled(x, f, factor).view(np.uint8)
    for value, code in zip(x, codes, strict=True):
        assert code == to_nearest_even(Fraction(float(value)) * Fraction(factor), values), value


class TestFactors:
    x = np.linspace(-3, 3, 96, dtype=np.float32).reshape(2, 6, 8)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("shape", [(8,), (6, 1), (2, 1, 1), (2, 6, 8), (1,), ()])
    def test_arrays_broadcast_as_in_numpy(self, shape, dtype):
        factors = np.linspace(0.37, 5.0, int(np.prod(shape))).reshape(shape).astype(dtype)
        codes = ov.encode_scaled(self.x, "e4m3fn", factors).view(np.uint8)
        each = np.broadcast_to(factors, self.x.shape)
        for at in np.ndindex(self.x.shape):
            one = ov.encode_scaled(self.x[at], "e4m3fn", float(each[at])).view(np.uint8)
            assert codes[at] == one
        back = ov.decode_scaled(codes, "float32", "e4m3fn", scale=factors)
        exact = ov.decode(codes, "float64", "e4m3fn") * each
        np.testing.assert_array_equal(back, exact.astype(np.float32))

    def test_any_order_of_memory(self, torch):
        x = torch.randn(6, 8, 4, generator=torch.manual_seed(0)).permute(2, 0, 1)
        factors = torch.rand(6, 1) + 0.5
        codes = ov.encode_scaled(x, "e5m2", factors)
        same = ov.encode_scaled(x.contiguous(), "e5m2", factors)
        assert codes.stride() == x.stride()
        assert torch.equal(codes.contiguous().view(torch.uint8), same.view(torch.uint8))
        values = ov.decode_scaled(codes, "bfloat16", inv_scale=factors)
        exact = codes.double() / factors.double()
        assert torch.equal(values, exact.to(torch.bfloat16))

    def test_wrong_shape(self):
        with pytest.raises(
            ValueError, match=r"inv_scale has shape \(7,\), which does not broadcast"
        ):
            ov.encode_scaled(self.x, "e4m3fn", np.ones(7))
        with pytest.raises(ValueError, match=r"scale has shape \(1, 2, 6, 8\), which does not"):
            ov.decode_scaled(
                np.zeros((2, 6, 8), np.uint8), format="e5m2", scale=np.ones((1, 2, 6, 8))
            )

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
    def test_wrong_numbers(self, bad):
        wanted = r"got inv_scale = .*; expected a positive, finite number"
        with pytest.raises(ValueError, match=wanted):
            ov.encode_scaled(self.x, "e4m3fn", bad)
        with pytest.raises(ValueError, match=wanted):
            ov.encode_scaled(self.x, "e4m3fn", np.float32([1, 2, 3, bad, 5, 6, 7, 8]))
        with pytest.raises(ValueError, match=r"got scale = .*; expected a positive, finite number"):
            ov.decode_scaled(np.uint8([1]), format="e4m3fn", scale=bad)

    def test_wrong_types(self, torch):
        with pytest.raises(TypeError, match="got inv_scale of int64; expected float32 or float64"):
            ov.encode_scaled(self.x, "e4m3fn", np.ones(8, np.int64))
        with pytest.raises(TypeError, match="expected a number or an array of numbers"):
            ov.encode_scaled(self.x, "e4m3fn", None)
        with pytest.raises(ValueError, match="got inv_scale 'auto'; expected a number, an array"):
            ov.encode_scaled(self.x, "e4m3fn", "auto")
        for given in ({}, {"scale": 1.0, "inv_scale": 1.0}):
            with pytest.raises(ValueError, match="of scale and inv_scale; expected one of them"):
                ov.decode_scaled(np.uint8([1]), format="e4m3fn", **given)
        with pytest.raises(TypeError, match="codes of 8 bits are uint8 or int8"):
            ov.decode_scaled(np.int64([300]), format="e4m3fn", scale=1.0)

    def test_nothing_is_written_before_an_error(self):
        out = np.full(8, 7, np.uint8)
        with pytest.raises(ValueError, match="positive, finite"):
            ov.encode_scaled(self.x[0, 0], "e4m3fn", np.float32([1] * 7 + [0]), out=out)
        assert (out == 7).all()
        with pytest.raises(ValueError, match="NaN"):
            ov.encode_scaled(np.float32([1, math.nan]), "e0m7", 2.0, out=out[:2])
        assert (out == 7).all()

    def test_overlap_is_refused(self):
        x = np.ones(4, np.float64)
        with pytest.raises(ValueError, match="overlap"):
            ov.encode_scaled(x, "e4m3fn", 2.0, out=x.view(np.uint8)[:4])

    def test_empty(self):
        assert ov.encode_scaled(np.empty((0, 3)), "e4m3fn", np.ones((0, 1))).shape == (0, 3)
        codes, factor = ov.encode_scaled(np.empty(0), "e4m3fn", "value")
        assert codes.shape == (0,) and factor == 1.0


class TestDynamic:
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e0m7", "e5m3fnu"])
    def test_factor(self, name, dtype, torch):
        x = torch.rand(64, generator=torch.manual_seed(1)).mul(0.01).to(getattr(torch, dtype))
        amax, largest = x.abs().max().item(), ov.format(name).max
        codes, power = ov.encode_scaled(x, name, "power_of_two")
        assert math.frexp(power)[0] == 0.5 and amax * power <= largest < 2 * amax * power
        same = ov.encode_scaled(x, name, power)
        assert np.array_equal(codes.view(torch.uint8), same.view(torch.uint8))
        codes, quotient, counts = ov.encode_scaled(x, name, "value", counts=True)
        assert quotient == np.float32(largest / amax) and counts.saturated == 0
        top = ov.decode_scaled(codes, "float64", name, inv_scale=quotient).max().item()
        # The largest value has the largest code: half a unit of a float32 factor away.
        assert abs(top - amax) <= 2.0**-24 * amax

    @pytest.mark.parametrize("amax", [2.0**-149, 2.0**-130, 1e-300, 1e300, 2.0**1023])
    @pytest.mark.parametrize("rule", ["power_of_two", "value"])
    def test_amaxes_that_ask_for_factors_beyond_float32(self, rule, amax):
        """A factor at the end of float32 would flush or saturate all of them."""
        x = amax * np.array([1.0, -0.5, 0.25])
        x = x.astype(np.float32) if 2.0**-149 <= amax < 1 and np.float32(amax) == amax else x
        wide = x.astype(np.float64)
        codes, factor, counts = ov.encode_scaled(x, "e4m3fn", rule, counts=True)
        assert counts.saturated == counts.flushed == 0
        back = ov.decode_scaled(codes, "float64", inv_scale=factor)
        # Halves of the largest are as exact as it is: three bits and the sticky half of another.
        assert (np.abs(back - wide) <= 2.0**-4 * np.abs(wide)).all()

    def test_special_values_do_not_count(self):
        codes, factor = ov.encode_scaled(np.float32([math.inf, math.nan, -7]), "e5m2", "value")
        assert factor == 57344 / 7 and codes.view(np.uint8).tolist()[2] == 0xFB


class TestFp8:
    def test_decode_with_scale_undoes_quantize(self, torch):
        x = torch.randn(32, 16, generator=torch.manual_seed(3))
        for name in ("e4m3fn", "e5m2", "e3m4", "e4m3fnuz", "e2m3fn"):
            codes, scale = ov.fp8_quantize(x, name)
            values = ov.fp8_decode(codes, scale=scale, format=name)
            exact = ov.decode(codes, "float64", name) * float(scale)
            assert values.dtype == torch.float32 and torch.equal(values, exact.float())
            assert float(scale) == np.float32(x.abs().max().item() / ov.format(name).max)

    def test_power_of_two(self):
        x = np.float32([3, -7])
        codes, scale = ov.fp8_quantize(x, power_of_two=True)
        assert scale == 1 / 64 and ov.fp8_decode(codes, scale=scale).tolist() == [3, -7]

    def test_without_scale_it_is_decode(self):
        assert ov.fp8_decode(np.uint8([0x38])).tolist() == [1]
        assert ov.fp8_decode(np.uint8([0x3C]), format="e5m2").tolist() == [1]
        assert ov.fp8_decode(ov.encode([1.0], "e5m2")).tolist() == [1]


class TestThreads:
    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_bits_do_not_depend_on_threads(self, threads):
        x = np.random.default_rng(2).normal(size=(257, 1031)).astype(np.float32)
        rows = np.linspace(0.5, 2, 257)[:, None]
        one = ov.encode_scaled(x, "e4m3fn", rows, threads=1).view(np.uint8)
        many = ov.encode_scaled(x, "e4m3fn", rows, threads=threads).view(np.uint8)
        np.testing.assert_array_equal(one, many)
        drawn = {"rounding": "stochastic", "seed": 5}
        np.testing.assert_array_equal(
            ov.encode_scaled(x, "e5m2", 0.7, threads=1, **drawn).view(np.uint8),
            ov.encode_scaled(x, "e5m2", 0.7, threads=threads, **drawn).view(np.uint8),
        )
