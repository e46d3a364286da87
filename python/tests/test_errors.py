"""Bad input gives one clear error: [op] got X; expected Y; fix."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64", "bool", "complex64"])
def test_dtypes_without_a_meaning(dtype, torch):
    wanted = "expected float64, float32, float16, bfloat16 or a float8 dtype; convert first"
    with pytest.raises(
        TypeError, match=rf"^\[encode\] got {dtype}; {wanted}: x\.astype\(np\.float32\)$"
    ):
        ov.encode(np.zeros(3, dtype), "e4m3fn")
    with pytest.raises(TypeError, match=rf"^\[encode\] got {dtype}; {wanted}: x\.float\(\)$"):
        ov.encode(torch.zeros(3, dtype=getattr(torch, dtype)), "e4m3fn")


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_small_integers_may_be_codes(dtype):
    with pytest.raises(
        TypeError,
        match=rf"^\[encode\] got {dtype}, which may be numbers or codes; if they are numbers, "
        r"convert first: x\.astype\(np\.float32\); if they are codes, say of which format: ",
    ):
        ov.encode(np.zeros(3, dtype), "e5m2")


def test_long_double():
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long double is float64 on this machine")
    with pytest.raises(TypeError, match=r"^\[encode\] got (long|float96|float128)"):
        ov.encode(np.zeros(3, np.longdouble), "e4m3fn")


def test_objects(ml_dtypes):
    with pytest.raises(TypeError, match=r"^\[encode\] got object; expected float64"):
        ov.encode(np.array([object()]), "e4m3fn")
    with pytest.raises(
        TypeError, match=r"^\[encode\] got a Python value that NumPy reads as <U1; expected numbers"
    ):
        ov.encode(["1"], "e4m3fn")
    with pytest.raises(
        TypeError,
        match=r"^\[encode\] got a Python value that NumPy reads as bool; expected numbers",
    ):
        ov.encode(True, "e4m3fn")
    with pytest.raises(ValueError, match=r"^\[encode\] got nested lists that do not make an array"):
        ov.encode([[1.0], [1.0, 2.0]], "e4m3fn")
    for value in ("e4m3fn", {}, object(), None):
        with pytest.raises(
            TypeError, match=rf"^\[encode\] got {type(value).__name__}; expected an array of NumPy"
        ):
            ov.encode(value, "e4m3fn")
    with pytest.raises(
        TypeError, match=r"^\[encode\] got a masked array, and a mask would be lost; pass x\.filled"
    ):
        ov.encode(np.ma.array([1.0]), "e4m3fn")


def test_foreign_byte_order():
    swapped = np.dtype(np.float32).newbyteorder()
    with pytest.raises(
        TypeError,
        match=r"^\[encode\] got dtype [<>]f4 in foreign byte order; expected native order",
    ):
        ov.encode(np.zeros(3, swapped), "e4m3fn")
    assert ov.encode(np.ones(1, swapped).astype(swapped.newbyteorder("=")), "e4m3fn").tolist() == [
        1.0
    ]


@pytest.mark.parametrize("argument, known", [
    ("rounding", "nearest_even, nearest_away, toward_zero, up, down, to_odd, stochastic"),
    ("overflow", "saturate, propagate, saturate_finite, ieee"),
    ("nan", "error, zero, max, negated_zero"),
    ("profile", "torch, torch_2_11, ml_dtypes, cuda, ocp_sat, ocp_nonsat, onnx"),
])  # fmt: skip
def test_unknown_names(argument, known):
    for name in ("nearest", "", "é" * 50, "Saturate"):
        with pytest.raises(
            ValueError, match=rf"^\[{argument}(_input)?\] got '.*'; expected one of {known}$"
        ):
            ov.encode([1.0], "e4m3fn", **{argument: name})


@pytest.mark.parametrize(
    "argument, most, limit",
    [
        ("seed", 2**64 - 1, r"2\*\*64 - 1"),
        ("first_index", 2**64 - 1, r"2\*\*64 - 1"),
        ("stochastic_bits", 2**31 - 1, r"2\*\*31 - 1"),
        ("threads", 1024, "1024"),  # as octavo cast --threads and OCTAVO_THREADS
    ],
)
def test_numbers_out_of_range(argument, most, limit):
    for value in (-1, most + 1):
        with pytest.raises(
            ValueError, match=rf"^\[encode\] got {argument} = {value}; expected 0 to {limit}$"
        ):
            ov.encode([1.0], "e4m3fn", **{argument: value})
    with pytest.raises(
        TypeError, match=rf"^\[encode\] got {argument} of type float; expected an integer$"
    ):
        ov.encode([1.0], "e4m3fn", **{argument: 1.5})
    assert ov.encode([1.0], "e4m3fn", seed=2**64 - 1, rounding="stochastic").tolist() == [1.0]
    assert ov.encode([1.0], "e4m3fn", threads=1024).tolist() == [1.0]


@pytest.mark.parametrize("argument", ["seed", "stochastic_bits"])
def test_stochastic_arguments_need_stochastic_rounding(argument):
    """As on the command line: a seed that changes nothing is a mistake."""
    wanted = rf"got {argument}, which is for stochastic rounding; leave it out or say rounding='sto"
    for more in ({}, {"rounding": "up"}, {"profile": "torch"}):
        with pytest.raises(ValueError, match=rf"^\[encode\] {wanted}"):
            ov.encode([1.0], "e4m3fn", **{argument: 1}, **more)
        with pytest.raises(ValueError, match=rf"^\[cast\] {wanted}"):
            ov.cast([1.0], "e4m3fn", **{argument: 1}, **more)
    with pytest.raises(
        ValueError, match=r"^\[round_to_fp8_\w+\] got seed, which is for stochastic="
    ):
        ov.round_to_fp8_represented_as_int8([1.0], 3, seed=0)
    # Where x stands in a larger array is true whatever the rounding.
    assert ov.encode([1.0], "e4m3fn", first_index=5).tolist() == [1.0]


def test_formats():
    with pytest.raises(ValueError, match=r"^\[format\] 'e4m33' is not a format: "):
        ov.encode([1.0], "e4m33")
    with pytest.raises(
        TypeError,
        match=r"^\[encode\] got a format of type NoneType; expected a name such as 'e4m3fn'",
    ):
        ov.encode([1.0], None)
    with pytest.raises(
        TypeError, match=r"^\[encode\] dtype float32 is not a format of 16 bits or fewer"
    ):
        ov.encode([1.0], np.float32)


def test_cast_names_what_it_takes(ml_dtypes):
    with pytest.raises(
        ValueError,
        match=r"^\[format\] 'int5' is not a format: expected e<E>m<M>.*, or mxint8, int8 or int4; "
        r"or a dtype: float64, float32, float16, bfloat16$",
    ):
        ov.cast([1.0], "int5")
    with pytest.raises(
        TypeError,
        match=r"^\[cast\] dtype int8 is not a format of 16 bits or fewer; .*; "
        r"or a dtype: float64, float32, float16, bfloat16$",
    ):
        ov.cast([1.0], np.int8)


class TestTorch:
    def test_requires_grad(self, torch):
        x = torch.ones(3, requires_grad=True)
        match = r"^\[encode\] got a tensor that requires grad, and no gradient flows through codes;"
        with pytest.raises(RuntimeError, match=match):
            ov.encode(x, "e4m3fn")
        with pytest.raises(RuntimeError, match=match):
            ov.encode(torch.nn.Parameter(torch.ones(3)), "e4m3fn")
        assert ov.encode(x.detach(), "e4m3fn").tolist() == [1, 1, 1]
        with torch.no_grad():
            codes = ov.encode(x, "e4m3fn")
        assert not codes.requires_grad and codes.tolist() == [1, 1, 1]

    def test_other_devices(self, torch):
        with pytest.raises(
            RuntimeError,
            match=r"^\[encode\] got a tensor on meta, and octavo computes on the CPU and on CUDA",
        ):
            ov.encode(torch.ones(3, device="meta"), "e4m3fn")

    def test_other_layouts(self, torch):
        with pytest.raises(
            TypeError,
            match=r"^\[encode\] got a tensor of layout torch\.sparse_coo; expected a strided one",
        ):
            ov.encode(torch.ones(3).to_sparse(), "e4m3fn")

    def test_negated_view(self, torch):
        x = torch.tensor([1 + 2j]).conj().imag
        assert x.is_neg() and ov.encode(x, "e4m3fn").tolist() == [-2]


def test_a_warning_of_the_pool_is_no_output(capfd):
    ov.encode(np.zeros(1 << 20, np.float32), "e4m3fn")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
