"""decode and cast."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


@pytest.mark.parametrize(
    "name", [f.name for f in ov.formats()] + ["e3m3", "e5m10", "e8m7", "e2m5", "e6m9"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_code_of_every_format(name, dtype):
    f = ov.format(name)
    values = ov.decode(f.codes(), dtype, f)
    assert values.dtype == dtype
    with np.errstate(over="ignore", under="ignore"):
        expected = f.values().astype(dtype)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e2m1fn", "e3m4", "e4m3b11fnuz"])
def test_sixteen_bit_values(name, ml_dtypes, torch):
    f = ov.format(name)
    for dtype in ("float16", "bfloat16"):
        values = ov.decode(f.codes(), dtype, f)
        assert values.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16)
        np.testing.assert_array_equal(values.astype(np.float64), f.values())
        theirs = ov.decode(torch.from_numpy(f.codes()), dtype, f)
        assert theirs.dtype is getattr(torch, dtype)
        np.testing.assert_array_equal(theirs.double().numpy(), f.values())


def test_dtype_names(torch, ml_dtypes):
    codes = ov.fp8_encode([1.0])
    for dtype in (
        "float64",
        "f64",
        np.float64,
        np.dtype("float64"),
        float,
        "torch.float64",
        torch.float64,
    ):
        assert ov.decode(codes, dtype).dtype == np.float64
    assert ov.decode(codes).dtype == np.float32
    assert (
        ov.decode(codes, "bf16").dtype
        == ov.decode(codes, ml_dtypes.bfloat16).dtype
        == ml_dtypes.bfloat16
    )
    t = ov.fp8_encode(torch.ones(1))
    for dtype in ("bfloat16", "bf16", torch.bfloat16, ml_dtypes.bfloat16):
        assert ov.decode(t, dtype).dtype is torch.bfloat16


def test_format_from_dtype(torch, ml_dtypes):
    assert ov.decode(np.array([1, 2], ml_dtypes.float8_e5m2)).tolist() == [1, 2]
    assert ov.decode(np.array([1, 2], ml_dtypes.float4_e2m1fn)).tolist() == [1, 2]
    assert ov.decode(torch.ones(2).to(torch.float8_e4m3fnuz)).tolist() == [1, 1]
    # Saying what the dtype says as well is no error.
    assert ov.decode(torch.ones(2).to(torch.float8_e5m2), format="e5m2").tolist() == [1, 1]


def test_python_codes():
    assert ov.decode([0x38, 0x40], format="e4m3fn").tolist() == [1, 2]
    assert ov.decode(0x38, format="e4m3fn").shape == ()
    assert ov.decode(bytes([0x38, 0x40]), format="e4m3fn").tolist() == [1, 2]
    assert ov.decode([], format="e4m3fn").shape == (0,)


def test_errors(torch, ml_dtypes):
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got uint8 codes without a format; say which: format='e4m3fn'$",
    ):
        ov.decode(np.zeros(3, np.uint8))
    with pytest.raises(TypeError, match=r"^\[decode\] got uint8 codes without a format"):
        ov.decode(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got float32; expected codes: a float8 dtype, or uint8 or uint16",
    ):
        ov.decode(np.zeros(3, np.float32))
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got format = e4m3fn, whose codes of 8 bits are uint8 or int8, "
        "but the array is of dtype float32$",
    ):
        ov.decode(np.zeros(3, np.float32), format="e4m3fn")
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got format = e5m6, whose codes of 12 bits are uint16 or int16, "
        "but the array is of dtype uint8$",
    ):
        ov.decode(np.zeros(3, np.uint8), format="e5m6")
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got format = e4m3fn, but the array is of dtype float8_e5m2; "
        "leave format out, or pass its bits as uint8 or int8$",
    ):
        ov.decode(np.zeros(3, ml_dtypes.float8_e5m2), format="e4m3fn")
    with pytest.raises(
        TypeError,
        match=r"^\[decode\] got dtype int32; expected float64, float32, float16 or bfloat16",
    ):
        ov.decode(ov.fp8_encode([1.0]), "int32")
    with pytest.raises(
        ValueError, match=r"^\[decode\] got codes from 0 to 70000; expected codes from 0 to 65535"
    ):
        ov.decode([0, 70000], format="e4m3fn")


class TestCast:
    def test_to_a_format_is_encode(self, ml_dtypes):
        x = np.float32([1.0625, 1e9])
        codes, counts = ov.cast(x, "e4m3fn", rounding="up", counts=True)
        expected = ov.encode(x, "e4m3fn", rounding="up")
        assert (
            codes.dtype == expected.dtype
            and codes.tolist() == expected.tolist()
            and counts.saturated == 1
        )
        assert ov.cast(codes, "e5m2").dtype == ml_dtypes.float8_e5m2
        assert ov.cast(np.uint8([0x38]), "e5m2", source_format="e4m3fn").tolist() == [1.0]

    def test_codes_to_a_dtype_is_decode(self, torch):
        codes = ov.fp8_encode(torch.tensor([1.0, 2.0]))
        assert ov.cast(codes, "bfloat16").dtype is torch.bfloat16
        assert ov.cast(np.uint8([0x38]), np.float64, source_format="e4m3fn").tolist() == [1.0]

    @pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16"])
    @pytest.mark.parametrize("target", ["float64", "float32", "float16", "bfloat16"])
    def test_between_values(self, source, target, torch, ml_dtypes):
        numbers = [0.0, -0.0, 1.5, -3.0, 448.0, np.inf, -np.inf, np.nan]
        dtype = {"bfloat16": ml_dtypes.bfloat16}
        x = np.array(numbers).astype(dtype.get(source, source))
        y = ov.cast(x, target)
        assert y.dtype == dtype.get(target, target) and y is not x and not np.shares_memory(x, y)
        np.testing.assert_array_equal(y.astype(np.float64), numbers)
        np.testing.assert_array_equal(np.signbit(y.astype(np.float64)), np.signbit(numbers))
        t = ov.cast(torch.tensor(numbers, dtype=getattr(torch, source)), target)
        assert t.dtype is getattr(torch, target)
        np.testing.assert_array_equal(t.double().numpy(), numbers)

    def test_all_f32_edges_to_sixteen_bits(self, edges_f32, torch):
        with np.errstate(all="ignore"):
            expected = edges_f32.astype(np.float16)
        np.testing.assert_array_equal(ov.cast(edges_f32, "float16"), expected)
        t = torch.from_numpy(edges_f32)
        theirs = t.to(torch.bfloat16)
        mine = ov.cast(t, "bfloat16")
        nan = torch.isnan(theirs)
        assert torch.equal(torch.isnan(mine), nan)
        assert torch.equal(mine.view(torch.int16)[~nan], theirs.view(torch.int16)[~nan])

    def test_float64_is_rounded_once(self):
        # Just above a midpoint of bfloat16; through float32 it would fall on it and go down.
        x = np.float64([1 + 2**-8 + 2**-40])
        assert ov.cast(x, "bfloat16").astype(np.float64).tolist() == [1 + 2**-7]
        assert ov.cast(np.float64([1e300, -1e300]), "float32").tolist() == [np.inf, -np.inf]

    def test_out(self, torch):
        x = np.float32([[1, 2, 3], [4, 5, 6]])
        out = np.empty((2, 3), np.float64)
        assert ov.cast(x, "float64", out=out) is out and out.tolist() == x.tolist()
        t = torch.empty(2, 3, dtype=torch.float32)
        assert (
            ov.cast(torch.from_numpy(x).double(), "float32", out=t) is t
            and t.tolist() == x.tolist()
        )

    def test_policies_are_for_formats(self):
        for kwargs in (
            {"rounding": "up"},
            {"overflow": "ieee"},
            {"nan": "zero"},
            {"profile": "torch"},
            {"counts": True},
            {"seed": 1},
        ):
            with pytest.raises(
                ValueError,
                match=r"^\[cast\] rounding, overflow, nan, profile, seed and counts are for",
            ):
                ov.cast(np.float32([1]), "float16", **kwargs)
        assert ov.cast(np.float32([1e9]), "e5m10", overflow="saturate").tolist() == [65504]
