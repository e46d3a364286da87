"""encode: what comes in, and what comes out."""

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
