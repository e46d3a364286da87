"""Formats and their limits."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import octavo as ov

NAMED = [f.name for f in ov.formats()]


def test_e4m3fn_limits():
    f = ov.Format("e4m3fn")
    assert (f.bits, f.exponent_bits, f.mantissa_bits, f.bias) == (8, 4, 3, 7)
    assert (f.max, f.min, f.eps) == (448.0, -448.0, 0.125)
    assert f.smallest_normal == f.tiny == 2.0**-6
    assert f.smallest_subnormal == 2.0**-9
    assert (f.is_signed, f.has_inf, f.has_nan, f.has_negative_zero) == (True, False, True, True)
    assert (f.itemsize, f.code_dtype) == (1, "uint8")
    assert f.note.startswith("OFP8")


# From the specifications: bits, bias, max, smallest normal, smallest value.
@pytest.mark.parametrize(
    "name, bits, bias, largest, normal, smallest",
    [
        ("e4m3fn", 8, 7, 448, 2**-6, 2**-9),
        ("e5m2", 8, 15, 57344, 2**-14, 2**-16),
        ("e4m3fnuz", 8, 8, 240, 2**-7, 2**-10),
        ("e5m2fnuz", 8, 16, 57344, 2**-15, 2**-17),
        ("e4m3", 8, 7, 240, 2**-6, 2**-9),
        ("e3m4", 8, 3, 15.5, 2**-2, 2**-6),
        ("e4m3b11fnuz", 8, 11, 30, 2**-10, 2**-13),
        ("e8m0fnu", 8, 127, 2.0**127, 2.0**-127, 2.0**-127),
        ("e3m2fn", 6, 3, 28, 2**-2, 2**-4),
        ("e2m3fn", 6, 1, 7.5, 1, 2**-3),
        ("e2m1fn", 4, 1, 6, 1, 0.5),
        ("mxint8", 8, 0, 127 / 64, 1 / 64, 1 / 64),
        ("int8", 8, -6, 127, 1, 1),
        ("int4", 4, -2, 7, 1, 1),
    ],
)
def test_named_limits(name, bits, bias, largest, normal, smallest):
    f = ov.format(name)
    assert (f.bits, f.bias, f.max, f.smallest_normal, f.smallest_subnormal) == (
        bits,
        bias,
        largest,
        normal,
        smallest,
    )
    lowest = {"e8m0fnu": 2.0**-127, "mxint8": -2.0, "int8": -128.0, "int4": -8.0}
    assert f.min == lowest.get(name, -largest)


@pytest.mark.parametrize("name", NAMED)
def test_tables_agree_with_limits(name):
    f = ov.format(name)
    codes, values = f.codes(), f.values()
    assert codes.dtype == f.code_dtype and values.dtype == np.float64
    assert codes.tolist() == list(range(2**f.bits)) and len(values) == len(codes)
    finite = values[np.isfinite(values)]
    assert (finite.max(), finite.min()) == (f.max, f.min)
    assert finite[finite > 0].min() == f.smallest_subnormal
    assert np.isnan(values).any() == f.has_nan and np.isinf(values).any() == f.has_inf
    assert bool(((values == 0) & np.signbit(values)).any()) == f.has_negative_zero
    assert bool((values == 0).any()) == f.has_zero


@pytest.mark.parametrize("name", [n for n in NAMED if n not in ("mxint8", "int8", "int4")])
def test_tables_agree_with_ml_dtypes(name, ml_dtypes):
    f = ov.format(name)
    theirs = f.codes().view(f.numpy_dtype)
    np.testing.assert_array_equal(f.values(), theirs.astype(np.float64))
    info = ml_dtypes.finfo(f.numpy_dtype)
    assert (f.max, f.min, f.eps, f.bits) == (
        float(info.max),
        float(info.min),
        float(info.eps),
        info.bits,
    )
    assert f.smallest_subnormal == float(info.smallest_subnormal) or name == "e8m0fnu"
    assert f.tiny == float(info.tiny)


def test_wide_tables():
    f = ov.format("e5m10")
    assert f.codes().dtype == np.uint16
    with np.errstate(invalid="ignore"):
        theirs = f.codes().view(np.float16).astype(np.float64)
    np.testing.assert_array_equal(f.values(), theirs)


@pytest.mark.parametrize("name", [*NAMED, "e5m10", "e8m7", "e3m3", "e1m6", "e7m0fn", "e4m3b3"])
def test_name_equality_hash_pickle(name):
    f = ov.Format(name)
    assert f.name == str(f) == name and repr(f) == f"octavo.Format('{name}')"
    assert eval(repr(f), {"octavo": ov}) == f
    assert f == ov.format(name) and hash(f) == hash(ov.format(name))
    assert f != ov.format("e2m2") and f != name
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(f, protocol)) == f
    assert copy.deepcopy(f) == copy.copy(f) == f
    assert {f: 1}[ov.Format(name)] == 1


def test_formats_are_immutable():
    with pytest.raises(AttributeError):
        ov.format("e4m3fn").bias = 3


def test_names_of_formats(ml_dtypes):
    e4m3fn = ov.Format("e4m3fn")
    for spec in ("float8_e4m3fn", "torch.float8_e4m3fn", "E4M3FN", e4m3fn, ml_dtypes.float8_e4m3fn):
        assert ov.format(spec) == e4m3fn
    assert ov.format(np.dtype(ml_dtypes.float4_e2m1fn)) == ov.Format("e2m1fn")
    assert ov.format(np.float16) == ov.format("float16") == ov.Format("e5m10")
    assert ov.format(ml_dtypes.bfloat16) == ov.format("bfloat16") == ov.Format("e8m7")


def test_torch_names(torch):
    assert ov.format(torch.float8_e5m2) == ov.Format("e5m2")
    assert ov.format(torch.float8_e8m0fnu) == ov.Format("e8m0fnu")
    assert ov.format(torch.float4_e2m1fn_x2) == ov.Format("e2m1fn")
    assert ov.format(torch.bfloat16) == ov.Format("e8m7")


def test_dtypes_of_formats(torch, ml_dtypes):
    f = ov.format("e4m3fn")
    assert (
        f.numpy_dtype == np.dtype(ml_dtypes.float8_e4m3fn) and f.torch_dtype is torch.float8_e4m3fn
    )
    assert ov.format("e3m4").torch_dtype is None
    assert ov.format("e3m3").numpy_dtype is None
    assert (
        ov.format("e5m10").numpy_dtype == np.float16
        and ov.format("e8m7").torch_dtype is torch.bfloat16
    )


def test_finfo(ml_dtypes):
    assert ov.finfo("e4m3fn") is not None and ov.finfo("e4m3fn").max == 448
    assert ov.finfo(ml_dtypes.float8_e5m2).max == 57344
    assert ov.finfo(np.float32).max == np.finfo(np.float32).max
    assert ov.finfo("float64").eps == np.finfo(np.float64).eps
    for name in ("float16", "bfloat16"):
        mine, theirs = ov.finfo(name), ml_dtypes.finfo(name)
        for field in ("bits", "max", "min", "eps", "tiny", "smallest_normal", "smallest_subnormal"):
            assert getattr(mine, field) == float(getattr(theirs, field)), field


@pytest.mark.parametrize(
    "name", ["", "e4", "fp8", "e0m16", "e9m9", "e4m3xx", "float8_e5m10", "e4m3fn ", "x" * 1000, "é"]
)
def test_impossible_names(name):
    with pytest.raises(ValueError, match=r"^\[format\] '.*' is not a format: "):
        ov.format(name)


def test_impossible_types():
    with pytest.raises(
        TypeError, match=r"^\[format\] got a format of type int; expected a name such as 'e4m3fn'"
    ):
        ov.format(8)
    with pytest.raises(TypeError, match=r"^\[format\] dtype int64 is not a format"):
        ov.format(np.int64)
    with pytest.raises(TypeError, match=r"^\[finfo\] dtype int8 is not a format"):
        ov.finfo(np.dtype("int8"))
