"""encode: what comes in, what comes out, and what the arguments do."""

from __future__ import annotations

import array

import numpy as np
import pytest

import octavo as ov


def bits(x) -> list[int]:
    return np.asarray(x).view(np.uint8).ravel().tolist()


# Where other encoders go wrong: ties, double rounding, a carry into the exponent, minus zero.
@pytest.mark.parametrize(
    "value, dtype, code",
    [
        (np.uint32(0x3F880001).view(np.float32), np.float32, 0x39),
        (1.0625 + 2.0**-40, np.float64, 0x39),
        (255.0, np.float32, 0x78),
        (-0.0, np.float32, 0x80),
        (1.0625, np.float16, 0x38),
    ],
)
def test_witnesses(value, dtype, code):
    assert bits(ov.encode(np.array([value], dtype), "e4m3fn")) == [code]


def test_values_come_back():
    codes = ov.fp8_encode([1, 2, 3])
    assert bits(codes) == [0x38, 0x40, 0x44]
    np.testing.assert_array_equal(ov.fp8_decode(codes), np.float32([1, 2, 3]))
    np.testing.assert_array_equal(ov.decode(ov.encode([1.0, 2.0, 3.0], "e4m3fn")), [1, 2, 3])


def test_torch_value_semantics(torch):
    x = torch.tensor([1.0, 2.0, 3.0])
    codes = ov.fp8_encode(x)
    assert codes.dtype is torch.float8_e4m3fn and torch.equal(ov.fp8_decode(codes), x)
    assert torch.equal(codes.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_python_numbers():
    assert ov.encode(1, "e4m3fn").shape == () and bits(ov.encode(1.5, "e4m3fn")) == [0x3C]
    assert ov.encode([[1, 2], [3, 4]], "e4m3fn").shape == (2, 2)
    assert ov.encode((1.0,), "e4m3fn").shape == (1,)
    assert ov.encode([], "e4m3fn").shape == (0,)
    # Python floats are float64, and are rounded once.
    assert bits(ov.encode(1.0625 + 2.0**-40, "e4m3fn")) == [0x39]


def test_other_containers():
    expected = [0x38, 0x40]
    assert bits(ov.encode(array.array("f", [1, 2]), "e4m3fn")) == expected
    assert bits(ov.encode(memoryview(np.float32([1, 2])), "e4m3fn")) == expected
    assert bits(ov.encode(np.float32(1), "e4m3fn")) == [0x38]

    class HasArray:
        def __array__(self, dtype=None, copy=None):
            return np.float32([1, 2])

    assert bits(ov.encode(HasArray(), "e4m3fn")) == expected


@pytest.mark.parametrize(
    "name", ["e4m3fn", "e5m2", "e4m3fnuz", "e8m0fnu", "e3m2fn", "e2m1fn", "e3m4"]
)
def test_numpy_results_are_ml_dtypes(name, ml_dtypes):
    codes = ov.encode(np.float32([1, 2]), name)
    assert type(codes) is np.ndarray and codes.dtype == ov.format(name).numpy_dtype
    assert codes.astype(np.float32).tolist() == [1, 2]


def test_results_without_a_dtype(torch):
    assert ov.encode(np.float32([1]), "e3m3").dtype == np.uint8
    assert ov.encode(np.float32([1]), "mxint8").dtype == np.uint8
    assert ov.encode(np.float32([1]), "e5m6").dtype == np.uint16
    assert ov.encode(torch.ones(1), "e3m4").dtype is torch.uint8
    assert ov.encode(torch.ones(1), "e2m1fn").dtype is torch.uint8
    assert ov.encode(torch.ones(1), "e5m6").dtype is torch.uint16


def test_sixteen_bit_formats_are_the_types_everyone_has(ml_dtypes, torch):
    x = np.float64([1 + 2**-11 + 2**-40, 1e9])
    halves = ov.encode(x, "e5m10", overflow="ieee")
    assert halves.dtype == np.float16 and halves.tolist() == [1 + 2**-10, np.inf]
    assert ov.encode(x, "e8m7").dtype == ml_dtypes.bfloat16
    assert ov.encode(torch.ones(1), "e8m7").dtype is torch.bfloat16
    np.testing.assert_array_equal(ov.decode(halves, "float64"), halves.astype(np.float64))


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"])
def test_torch_results_are_torch(name, torch):
    codes = ov.encode(torch.tensor([1.0, 2.0]), name)
    assert codes.dtype is ov.format(name).torch_dtype and codes.float().tolist() == [1, 2]


def test_format_may_be_a_dtype(torch, ml_dtypes):
    assert ov.encode([1.0], ml_dtypes.float8_e5m2).dtype == ml_dtypes.float8_e5m2
    assert ov.encode(torch.ones(1), torch.float8_e5m2).dtype is torch.float8_e5m2
    assert ov.encode(torch.ones(1), ml_dtypes.float8_e5m2).dtype is torch.float8_e5m2
    assert ov.encode([1.0], ov.format("e5m2")).dtype == ml_dtypes.float8_e5m2


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_every_value_type(dtype, torch, ml_dtypes):
    expected = [0x38, 0xC4, 0x7E, 0x00]
    values = [1, -3, 448, 0]
    numpy_dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    assert bits(ov.encode(np.array(values, numpy_dtype), "e4m3fn")) == expected
    codes = ov.encode(torch.tensor(values, dtype=getattr(torch, dtype)), "e4m3fn")
    assert codes.view(torch.uint8).tolist() == expected


@pytest.mark.parametrize(
    "rounding, expected",
    [
        ("nearest_even", [1.0, 1.25, -1.0, 1.0]),
        ("nearest_away", [1.125, 1.25, -1.125, 1.0]),
        ("toward_zero", [1.0, 1.125, -1.0, 1.0]),
        ("up", [1.125, 1.25, -1.0, 1.125]),
        ("down", [1.0, 1.125, -1.125, 1.0]),
        ("to_odd", [1.125, 1.125, -1.125, 1.125]),
    ],
)
def test_roundings(rounding, expected):
    x = [1.0625, 1.1875, -1.0625, 1.001]
    assert ov.decode(ov.encode(x, "e4m3fn", rounding=rounding)).tolist() == expected


@pytest.mark.parametrize(
    "overflow, format, expected",
    [
        ("saturate", "e5m2", [57344, 57344]),
        ("propagate", "e5m2", [57344, np.inf]),
        ("saturate_finite", "e5m2", [57344, np.inf]),
        ("ieee", "e5m2", [np.inf, np.inf]),
        ("saturate", "e4m3fn", [448, 448]),
        ("propagate", "e4m3fn", [448, 448]),
        ("saturate_finite", "e4m3fn", [448, np.nan]),
        ("ieee", "e4m3fn", [np.nan, np.nan]),
        ("ieee", "e2m1fn", [6, 6]),
    ],
)
def test_overflows(overflow, format, expected):
    x = [1e9, np.inf]
    np.testing.assert_array_equal(ov.decode(ov.encode(x, format, overflow=overflow)), expected)


def test_nan():
    x = [np.nan, 1.0]
    assert np.isnan(ov.decode(ov.encode(x, "e4m3fn"))).tolist() == [True, False]
    assert ov.decode(ov.encode(x, "e2m1fn", nan="zero")).tolist() == [0, 1]
    assert ov.decode(ov.encode(x, "e2m1fn", nan="max")).tolist() == [6, 1]
    with pytest.raises(
        ValueError, match=r"^\[encode\] the input has 1 NaN, and e2m1fn cannot hold NaN"
    ):
        ov.encode(x, "e2m1fn")


def test_counts():
    x = np.float32([1e9, -np.inf, 1e-9, -1e-30, 0.0, -0.0, np.nan, 1.0, 448.0])
    codes, counts = ov.encode(x, "e4m3fn", counts=True)
    assert counts == ov.Counts(saturated=2, flushed=2, nan=1)
    assert counts.saturated == 2 and bits(codes) == bits(ov.encode(x, "e4m3fn"))
    assert ov.encode(np.float32([]), "e4m3fn", counts=True)[1] == ov.Counts(0, 0, 0)


def test_profile_is_where_the_policy_starts():
    x = [1e9, 1.0625]
    # torch: e5m2 overflows to Inf. What is named beside the profile wins.
    assert np.isinf(ov.decode(ov.encode(x, "e5m2", profile="torch")))[0]
    assert ov.decode(ov.encode(x, "e5m2", profile="torch", overflow="saturate"))[0] == 57344
    mixed = ov.decode(ov.encode(x, "e5m2", profile="torch", rounding="up"))
    assert np.isinf(mixed[0]) and mixed[1] == 1.25


def test_codes_to_codes(torch, ml_dtypes):
    x = np.arange(256, dtype=np.uint8)
    expected = ov.encode(ov.decode(x, "float64", "e4m3fn"), "e5m2").view(np.uint8)
    np.testing.assert_array_equal(
        ov.encode(x, "e5m2", source_format="e4m3fn").view(np.uint8), expected
    )
    np.testing.assert_array_equal(
        ov.encode(x.view(ml_dtypes.float8_e4m3fn), "e5m2").view(np.uint8), expected
    )
    t = torch.from_numpy(x).view(torch.float8_e4m3fn)
    np.testing.assert_array_equal(ov.encode(t, "e5m2").view(torch.uint8).numpy(), expected)
    assert ov.encode([0x38], "e5m2", source_format="e4m3fn").view(np.uint8).tolist() == [0x3C]


class TestStochastic:
    def test_mean_converges(self):
        # 1.03125 lies a quarter of the way from 1 to 1.125. The mean of n draws is off by at most
        # 5 sigma = 5 * 0.125 * sqrt(3/16 / n), all but once in a million.
        n = 1 << 20
        mean = ov.decode(
            ov.encode(np.full(n, 1.03125), "e4m3fn", rounding="stochastic", seed=1)
        ).mean(dtype=np.float64)
        assert abs(mean - 1.03125) < 5 * 0.125 * (3 / 16 / n) ** 0.5

    def test_depends_on_seed_and_index_alone(self):
        x = np.random.default_rng(0).normal(size=10001).astype(np.float32)
        kwargs = {"rounding": "stochastic", "seed": 7}
        whole = ov.encode(x, "e4m3fn", **kwargs).view(np.uint8)
        for threads in (1, 2, 3):
            np.testing.assert_array_equal(
                ov.encode(x, "e4m3fn", threads=threads, **kwargs).view(np.uint8), whole
            )
        parts = [
            ov.encode(x[i : i + 777], "e4m3fn", first_index=i, **kwargs).view(np.uint8)
            for i in range(0, 10001, 777)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert (ov.encode(x, "e4m3fn", rounding="stochastic", seed=8).view(np.uint8) != whole).any()

    def test_index_counts_in_row_major_order(self, torch):
        x = np.random.default_rng(0).normal(size=(31, 17)).astype(np.float32)
        kwargs = {"rounding": "stochastic", "seed": 3}
        expected = ov.encode(x, "e4m3fn", **kwargs).view(np.uint8)
        np.testing.assert_array_equal(
            ov.encode(np.asfortranarray(x), "e4m3fn", **kwargs).view(np.uint8), expected
        )
        t = torch.from_numpy(x.T.copy()).T
        np.testing.assert_array_equal(
            ov.encode(t, "e4m3fn", **kwargs).view(torch.uint8).numpy(), expected
        )

    def test_bits(self):
        # One bit is a coin: a quarter (1.03125) never rounds up, a half (1.0625) half the time.
        up = (
            ov.decode(
                ov.encode(
                    np.full(1000, 1.03125), "e4m3fn", rounding="stochastic", stochastic_bits=1
                )
            )
            > 1
        )
        assert not up.any()
        up = (
            ov.decode(
                ov.encode(np.full(1000, 1.0625), "e4m3fn", rounding="stochastic", stochastic_bits=1)
            )
            > 1
        )
        assert 400 < up.sum() < 600

    @pytest.mark.parametrize("bits", [0, 17])
    def test_bits_beyond_the_range(self, bits):
        with pytest.raises(
            ValueError, match=rf"^\[encode\] got stochastic_bits = {bits}, wanted 1 to 16"
        ):
            ov.encode([1.0], "e4m3fn", rounding="stochastic", stochastic_bits=bits)


class TestShapes:
    @pytest.mark.parametrize(
        "shape", [(), (0,), (1,), (0, 3), (3, 0, 2), (7,), (2, 3, 4), (1,) * 8]
    )
    def test_any_shape(self, shape, torch):
        x = np.full(shape, 1.5, np.float32)
        codes = ov.encode(x, "e4m3fn")
        assert codes.shape == shape and set(bits(codes)) <= {0x3C}
        np.testing.assert_array_equal(ov.decode(codes), x)
        t = torch.full(shape, 1.5)
        assert ov.encode(t, "e4m3fn").shape == t.shape and torch.equal(
            ov.decode(ov.encode(t, "e4m3fn")), t
        )

    def test_strides_of_every_kind(self):
        base = np.random.default_rng(0).normal(size=(6, 8, 10)).astype(np.float32)
        for x in (
            base[::2],
            base[:, ::-1],
            base[..., 1::3],
            base.T,
            base.transpose(1, 0, 2),
            base[::-1, ::2, ::-3],
            np.broadcast_to(base[:1], (6, 8, 10)),
            base[2],
            base[:, 3, 4],
            np.asfortranarray(base),
        ):
            expected = ov.encode(np.ascontiguousarray(x), "e4m3fn").view(np.uint8)
            for threads in (1, 2):
                np.testing.assert_array_equal(
                    ov.encode(x, "e4m3fn", threads=threads).view(np.uint8), expected
                )

    def test_torch_strides(self, torch):
        base = torch.randn(6, 8, 10)
        for x in (
            base[::2],
            base[..., 1::3],
            base.permute(2, 0, 1),
            base[:1].expand(6, 8, 10),
            base.transpose(0, 1)[1],
        ):
            expected = ov.encode(x.contiguous(), "e4m3fn")
            assert torch.equal(ov.encode(x, "e4m3fn").view(torch.uint8), expected.view(torch.uint8))

    def test_results_keep_the_order_of_dimensions(self, torch):
        x = np.asfortranarray(np.ones((3, 4), np.float32))
        assert ov.encode(x, "e4m3fn").flags.f_contiguous
        assert ov.decode(ov.encode(x, "e4m3fn")).flags.f_contiguous
        t = torch.ones(3, 4).T
        assert ov.encode(t, "e4m3fn").stride() == t.stride()

    def test_misaligned(self):
        raw = np.zeros(4 * 100 + 1, np.uint8)
        x = raw[1:].view(np.float32)
        x[:] = np.linspace(-4, 4, 100)
        np.testing.assert_array_equal(
            ov.encode(x, "e4m3fn").view(np.uint8), ov.encode(x.copy(), "e4m3fn").view(np.uint8)
        )

    def test_subclass_gives_plain_array(self):
        class Mine(np.ndarray):
            pass

        assert type(ov.encode(np.ones(3, np.float32).view(Mine), "e4m3fn")) is np.ndarray

    def test_too_many_dimensions(self):
        with pytest.raises(
            ValueError,
            match=r"^\[encode\] got an array of 9 dimensions, and the most is 8; reshape",
        ):
            ov.encode(np.ones((1,) * 9, np.float32), "e4m3fn")


class TestPacked:
    def test_fp4_low_nibble_first(self):
        packed = ov.encode([[0.5, 1.0, 6.0], [-0.5, 0.0, 2.0]], "e2m1fn", packed=True)
        assert packed.dtype == np.uint8 and packed.tolist() == [[0x21, 0x07], [0x09, 0x04]]
        assert ov.decode(packed, format="e2m1fn", packed=True, cols=3).tolist() == [
            [0.5, 1, 6],
            [-0.5, 0, 2],
        ]
        assert ov.decode(packed, format="e2m1fn", packed=True).shape == (2, 4)

    @pytest.mark.parametrize("name", ["e2m1fn", "e3m2fn", "e2m3fn", "e2m2fn", "e3m3fn"])
    @pytest.mark.parametrize("cols", [0, 1, 2, 3, 4, 5, 31, 64])
    def test_round_trip(self, name, cols):
        f = ov.format(name)
        x = np.random.default_rng(cols).choice(f.values(), (5, cols))
        packed = ov.encode(x, f, packed=True)
        assert packed.shape == (5, -(-cols * f.bits // 8))
        np.testing.assert_array_equal(ov.decode(packed, "float64", f, packed=True, cols=cols), x)
        np.testing.assert_array_equal(ov.decode(ov.encode(x, f), "float64", f), x)

    def test_torch_fp4_dtype(self, torch):
        x = torch.tensor([[0.5, 1.0, 6.0, -2.0]])
        packed = ov.encode(x, "e2m1fn", packed=True)
        assert packed.dtype is torch.float4_e2m1fn_x2 and packed.shape == (1, 2)
        assert torch.equal(ov.decode(packed), x)
        assert ov.encode(packed, "e4m3fn").float().tolist() == x.tolist()
        assert ov.encode(x, "e3m2fn", packed=True).dtype is torch.uint8
        out = torch.empty(1, 2, dtype=torch.float4_e2m1fn_x2)
        assert ov.encode(x, "e2m1fn", packed=True, out=out) is out
        assert torch.equal(out.view(torch.uint8), packed.view(torch.uint8))

    def test_packed_codes_as_a_source(self, torch):
        packed = ov.encode(torch.tensor([0.5, 1.0, 6.0, -2.0]), "e2m1fn", packed=True)
        codes = ov.round_to_fp8_represented_as_int8(packed, 3, scaling_factor=2)
        assert ov.undo_int8_fp8(codes, 3).tolist() == [1, 2, 12, -4]
        with pytest.raises(ValueError, match=r"^\[decode\] got a scalar of dtype torch.float4"):
            ov.decode(packed[0])

    def test_strided_rows(self):
        packed = ov.encode(np.ones((4, 6), np.float32), "e2m1fn", packed=True)
        assert ov.decode(packed[::2], format="e2m1fn", packed=True).tolist() == [[1.0] * 6] * 2
        with pytest.raises(
            ValueError,
            match=r"^\[decode\] got packed rows with a stride of 2 bytes, wanted them contiguous",
        ):
            ov.decode(packed[:, ::2], format="e2m1fn", packed=True)

    def test_errors(self, torch):
        with pytest.raises(
            ValueError,
            match=r"^\[encode\] got packed codes of e4m3fn, which has 8 bits, and only codes",
        ):
            ov.encode([1.0], "e4m3fn", packed=True)
        with pytest.raises(
            ValueError,
            match=r"^\[encode\] a scalar cannot be packed; give an array of at least one",
        ):
            ov.encode(1.0, "e2m1fn", packed=True)
        with pytest.raises(
            ValueError,
            match=r"^\[decode\] got cols = 5, but 5 codes of e2m1fn take 3 bytes and the rows",
        ):
            ov.decode(np.zeros((1, 2), np.uint8), format="e2m1fn", packed=True, cols=5)
        with pytest.raises(ValueError, match=r"^\[decode\] got cols, which is for packed codes"):
            ov.decode(np.zeros((1, 2), np.uint8), format="e2m1fn", cols=2)
        with pytest.raises(
            ValueError,
            match=r"^\[decode\] got packed=False, but the dtype of the codes is a packed one",
        ):
            ov.decode(torch.empty(2, dtype=torch.float4_e2m1fn_x2), packed=False)
        with pytest.raises(
            TypeError,
            match=r"^\[encode\] out is of dtype e2m1fn, wanted uint8 or a dtype of e2m1fn",
        ):
            ov.encode(torch.ones(2), "e2m1fn", out=torch.empty(2, dtype=torch.float4_e2m1fn_x2))
