"""octavo cast: the right bits in the right places. The library's own tests prove each rounding;
these test that files, options, chunking and packing do not change its results."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

EIGHT_BITS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e3m4": ml_dtypes.float8_e3m4,
    "e2m1fn": ml_dtypes.float4_e2m1fn,
    "e3m2fn": ml_dtypes.float6_e3m2fn,
}
# More elements than one chunk, and not a multiple of it.
MANY = (1 << 20) + 12345


def some_values(count=5000, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * np.exp2(rng.integers(-12, 9, count))).astype(np.float32)


@pytest.mark.parametrize("name", EIGHT_BITS)
@pytest.mark.parametrize("source", [np.float32, np.float16, np.float64])
def test_profile_gives_the_peers_bits(octavo, name, source):
    x = some_values().astype(source)
    octavo.save("x.npy", x)
    octavo.good("cast", "x.npy", "c.npy", "--to", name, "--profile", "ml_dtypes")
    codes = octavo.load("c.npy")
    assert codes.dtype == np.uint8 and codes.shape == x.shape
    assert np.array_equal(codes, x.astype(EIGHT_BITS[name]).view(np.uint8))


@pytest.mark.parametrize("name", EIGHT_BITS)
@pytest.mark.parametrize("target", ["float32", "float64", "float16", "bfloat16"])
def test_codes_come_back_as_their_values(octavo, name, target):
    bits = octavo.good("formats", name, "--json").json["bits"]
    codes = np.arange(2**bits, dtype=np.uint8)
    octavo.save("c.npy", codes)
    octavo.good("cast", "c.npy", "y.npy", "--from", name, "--to", target)
    y = octavo.load("y.npy")
    peer = codes.view(EIGHT_BITS[name]).astype(np.float64)
    if target == "bfloat16":
        assert y.dtype == np.uint16
        y = y.view(ml_dtypes.bfloat16)
    else:
        assert y.dtype == np.dtype(target)
    assert np.array_equal(y.astype(np.float64), peer, equal_nan=True)


def test_one_two_three(octavo):
    octavo.save("x.npy", np.float32([1, 2, 3]))
    octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn")
    octavo.good("cast", "c.npy", "y.npy", "--from", "e4m3fn", "--to", "float32")
    assert octavo.load("y.npy").tolist() == [1, 2, 3]


def test_default_saturates_and_counts(octavo):
    octavo.save("x.npy", np.float32([1000, -1000, np.inf, np.nan, 1e-9, 0, 1]))
    result = octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn", "--json")
    assert octavo.load("c.npy").tolist() == [0x7E, 0xFE, 0x7E, 0x7F, 0, 0, 0x38]
    assert result.json["counts"] == {"saturated": 3, "flushed": 1, "nan": 1}
    assert result.err == ""
    policy = result.json["policy"]
    assert (policy["rounding"], policy["overflow"], policy["nan"]) == (
        "nearest_even",
        "saturate",
        "error",
    )


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (["--overflow", "ieee"], [0x7C, 0xFC, 0x7C, 0x3C]),
        (["--overflow", "propagate"], [0x7B, 0xFB, 0x7C, 0x3C]),
        (["--rounding", "up"], [0x7B, 0xFB, 0x7B, 0x3D]),
        (["--rounding", "toward_zero", "--overflow", "ieee"], [0x7B, 0xFB, 0x7C, 0x3C]),
        (["--profile", "torch"], [0x7C, 0xFC, 0x7C, 0x3C]),
        (["--profile", "torch", "--overflow", "saturate"], [0x7B, 0xFB, 0x7B, 0x3C]),
    ],
)
def test_options_reach_the_library(octavo, options, codes):
    octavo.save("x.npy", np.float32([1e6, -1e6, np.inf, 1.01]))
    octavo.good("cast", "x.npy", "c.npy", "--to", "e5m2", *options)
    assert octavo.load("c.npy").tolist() == codes


@pytest.mark.parametrize(("rule", "code"), [("zero", 0), ("max", 7), ("negated_zero", 8)])
def test_nan_rule(octavo, rule, code):
    octavo.save("x.npy", np.float32([np.nan]))
    octavo.good("cast", "x.npy", "c.npy", "--to", "e2m1fn", "--nan", rule)
    assert octavo.load("c.npy").tolist() == [code]


def test_float_targets_behave_as_floats_do(octavo):
    x = np.concatenate([some_values(), np.float32([1e10, -1e10, np.inf, np.nan, 65519, 65520])])
    octavo.save("x.npy", x)
    result = octavo.good("cast", "x.npy", "h.npy", "--to", "float16", "--json")
    with np.errstate(over="ignore"):
        assert np.array_equal(octavo.load("h.npy"), x.astype(np.float16), equal_nan=True)
    assert result.json["counts"]["saturated"] == 4 and result.json["dtype"] == "<f2"
    octavo.good("cast", "x.npy", "h.npy", "--to", "f16", "--overflow", "saturate")
    assert np.abs(octavo.load("h.npy")[-6:-3]).tolist() == [65504] * 3
    octavo.good("cast", "x.npy", "b.npy", "--to", "bfloat16")
    b = octavo.load("b.npy").view(ml_dtypes.bfloat16)
    assert np.array_equal(b.astype("f4"), x.astype(ml_dtypes.bfloat16).astype("f4"), equal_nan=True)


def test_codes_to_codes(octavo):
    codes = np.arange(256, dtype=np.uint8)
    octavo.save("c.npy", codes)
    octavo.good(
        "cast", "c.npy", "d.npy", "--from", "e4m3fn", "--to", "e5m2", "--profile", "ml_dtypes"
    )
    wanted = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32).astype(ml_dtypes.float8_e5m2)
    assert np.array_equal(octavo.load("d.npy"), wanted.view(np.uint8))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_files_that_ml_dtypes_saved(octavo, dtype):
    name = "bfloat16" if dtype is ml_dtypes.bfloat16 else "e5m2"
    x = some_values(300).reshape(20, 15).astype(dtype)
    octavo.save("x.npy", x)  # numpy writes '<V2' and '<V1'
    octavo("cast", "x.npy", "y.npy", "--to", "float32").refused(2, "V", "--from")
    octavo.good("cast", "x.npy", "y.npy", "--from", name, "--to", "float32")
    assert np.array_equal(octavo.load("y.npy"), x.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 0, 3), (3, 5, 7), (1,) * 20])
@pytest.mark.parametrize("order", ["C", "F"])
def test_shapes_and_orders(octavo, shape, order):
    x = np.asarray(some_values(int(np.prod(shape))).reshape(shape), order=order)
    octavo.save("x.npy", x)
    result = octavo.good("cast", "x.npy", "c.npy", "--to", "e5m2", "--json")
    codes = octavo.load("c.npy")
    assert codes.shape == shape and codes.flags.f_contiguous == x.flags.f_contiguous
    assert np.array_equal(codes, x.astype(ml_dtypes.float8_e5m2).view(np.uint8))
    assert result.json["shape"] == list(shape) and result.json["elements"] == x.size


def test_codes_wider_than_a_byte(octavo):
    x = some_values()
    octavo.save("x.npy", x)
    octavo.good("cast", "x.npy", "c.npy", "--to", "e5m10", "--overflow", "ieee")
    codes = octavo.load("c.npy")
    assert codes.dtype == np.uint16 and np.array_equal(codes.view(np.float16), x.astype(np.float16))


@pytest.mark.parametrize("threads", [1, 2])
def test_many_pieces_are_as_one(octavo, threads):
    x = some_values(MANY)
    x[[0, -1]] = np.inf
    octavo.save("x.npy", x)
    result = octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn", "--threads", threads, "--json")
    wanted = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(octavo.load("c.npy"), wanted)
    # 464 is the middle between 448 and the next value there would be; ties go to the even one, 448.
    assert result.json["counts"]["saturated"] == np.count_nonzero(np.abs(x) > 464)
    assert result.json["counts"]["flushed"] == np.count_nonzero((wanted & 0x7F == 0) & (x != 0))


def test_stochastic_depends_on_the_seed_alone(octavo):
    octavo.save("x.npy", np.full(MANY, 1.0625, np.float32))  # the middle of 1 and 1.125
    codes = []
    for seed, threads, backend in [(7, 1, "reference"), (7, 2, ""), (8, 2, "")]:
        options = ["--rounding", "stochastic", "--seed", seed, "--threads", threads]
        env = {"OCTAVO_BACKEND": backend}
        octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn", *options, env=env)
        codes.append(octavo.load("c.npy"))
    assert np.array_equal(codes[0], codes[1]) and not np.array_equal(codes[0], codes[2])
    up = np.mean(codes[0] == 0x39)
    assert set(np.unique(codes[0])) == {0x38, 0x39}
    assert abs(up - 0.5) < 5 * 0.5 / np.sqrt(MANY)  # five standard deviations of a fair coin


@pytest.mark.parametrize(("name", "bits"), [("e2m1fn", 4), ("e3m2fn", 6), ("e2m2fn", 5)])
@pytest.mark.parametrize("shape", [(5,), (3, 8), (2, 3, 7), (4, 0), (MANY,), (3, MANY // 3)])
def test_packed(octavo, name, bits, shape):
    x = some_values(int(np.prod(shape))).reshape(shape)
    octavo.save("x.npy", x)
    octavo.good("cast", "x.npy", "plain.npy", "--to", name)
    octavo.good("cast", "x.npy", "packed.npy", "--to", name, "--packed")
    plain, packed = octavo.load("plain.npy"), octavo.load("packed.npy")
    # Each row a little-endian stream of bits that begins on a byte.
    stream = np.unpackbits(plain[..., None], axis=-1, bitorder="little", count=bits)
    stream = stream.reshape(*plain.shape[:-1], plain.shape[-1] * bits)
    assert np.array_equal(packed, np.packbits(stream, axis=-1, bitorder="little"))

    back = ["--from", name, "--from-packed", "--columns", shape[-1]]
    octavo.good("cast", "packed.npy", "y.npy", "--to", "float32", *back)
    octavo.good("cast", "plain.npy", "z.npy", "--to", "float32", "--from", name)
    assert np.array_equal(octavo.load("y.npy"), octavo.load("z.npy"))


def test_packed_columns(octavo):
    octavo.save("c.npy", np.zeros((2, 3), np.uint8))
    cast = ["cast", "c.npy", "y.npy", "--from", "e3m2fn", "--from-packed", "--to", "float32"]
    octavo.good(*cast)
    assert octavo.load("y.npy").shape == (2, 4)
    octavo.good(*cast, "--columns", 3)
    assert octavo.load("y.npy").shape == (2, 3)
    for wrong in (2, 5, -1, 2**62):
        octavo(*cast, "--columns", wrong).refused(2, "--columns")


def test_a_scalar_is_not_packed(octavo):
    """As in Python: packed codes run along the last dimension."""
    octavo.save("x.npy", np.float32(1))
    octavo.save("c.npy", np.uint8(1))
    octavo("cast", "x.npy", "y.npy", "--to", "e2m1fn", "--packed").refused(2, "scalar")
    back = ["--from", "e2m1fn", "--from-packed", "--to", "float32"]
    octavo("cast", "c.npy", "y.npy", *back).refused(2, "scalar")
    assert octavo.files() == {"x.npy", "c.npy"}


def test_a_file_named_dash(octavo):
    octavo.save("-", np.float32([1, 2]))
    (octavo.folder / "-.npy").rename(octavo.folder / "-")
    octavo("cast", "-", "y.npy", "--to", "e4m3fn").refused(2, "/dev/stdin", "./-")
    octavo.good("cast", "./-", "y.npy", "--to", "e4m3fn")
    (octavo.folder / "-").unlink()
    octavo("cast", "y.npy", "-", "--from", "e4m3fn", "--to", "e5m2").refused(2, "stdout", "./-")
    assert octavo.files() == {"y.npy"}
    octavo.good("cast", "y.npy", "./-", "--from", "e4m3fn", "--to", "e5m2")
    assert octavo.files() == {"y.npy", "-"}


def test_threads_0_is_every_core(octavo):
    octavo.save("x.npy", np.float32([1, 2]))
    octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn", "--threads", 0)
    octavo.good("cast", "x.npy", "y.npy", "--to", "e4m3fn", "--threads", 1024)


@pytest.mark.parametrize("argument", ["--seed", "--stochastic-bits"])
def test_stochastic_options_need_stochastic_rounding(octavo, argument):
    """As in Python: a seed that changes nothing is a mistake."""
    octavo.save("x.npy", np.float32([1, 2]))
    for more in ([], ["--rounding", "up"], ["--profile", "torch"]):
        result = octavo("cast", "x.npy", "y.npy", "--to", "e4m3fn", argument, 1, *more)
        result.refused(2, f"{argument} needs --rounding stochastic")
    assert octavo.files() == {"x.npy"}


def test_packed_refuses_fortran_order(octavo):
    octavo.save("x.npy", np.asfortranarray(np.zeros((3, 4), np.float32)))
    octavo("cast", "x.npy", "y.npy", "--to", "e2m1fn", "--packed").refused(2, "Fortran")
    assert octavo.files() == {"x.npy"}


def test_error_is_measured(octavo):
    x = some_values()
    octavo.save("x.npy", x)
    measured = octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn", "--error", "--json").json[
        "error"
    ]
    y = octavo.load("c.npy").view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    exact = x.astype(np.float64)
    assert measured["max_absolute"] == np.max(np.abs(y - exact))
    assert measured["max_relative"] == np.max(np.abs(y - exact) / np.abs(exact))
    rms = np.sqrt(np.sum((y - exact) ** 2) / np.sum(exact**2))
    assert measured["rms_relative"] == pytest.approx(rms, rel=1e-12)
    assert octavo.good("cast", "x.npy", "c.npy", "--to", "e4m3fn", "--json").json["error"] is None


def test_decoding_beyond_float32_is_counted(octavo):
    octavo.save("c.npy", np.array([0x7BF0, 0x0001, 0x7C00], np.uint16))  # e11m4: huge, tiny, 2^961
    cast = octavo.good(
        "cast", "c.npy", "y.npy", "--from", "e11m4", "--to", "float32", "--json"
    ).json
    assert octavo.load("y.npy").tolist() == [np.inf, 0, np.inf]
    assert cast["counts"] == {"saturated": 2, "flushed": 1, "nan": 0} and cast["policy"] is None
    said = octavo.good("cast", "c.npy", "y.npy", "--from", "e11m4", "--to", "float32").err
    assert "3 elements: 2 saturated, 1 flushed to zero, 0 NaN" in said
    said = octavo.good("cast", "c.npy", "y.npy", "--from", "e11m4", "--to", "float64").err
    assert "3 elements: all exact, 0 NaN" in said


def test_exact_decoding_counts_nan_alone(octavo):
    octavo.save("c.npy", np.uint8([0x38, 0x7F, 0xFF]))
    to_float = ["cast", "c.npy", "y.npy", "--from", "e4m3fn", "--to", "float32"]
    assert "3 elements: all exact, 2 NaN" in octavo.good(*to_float).err
    cast = octavo.good(*to_float, "--json", "--error").json
    assert cast["counts"] == {"saturated": 0, "flushed": 0, "nan": 2}
    assert cast["error"]["max_absolute"] == 0


def test_every_backend_gives_the_same_file(octavo):
    octavo.save("x.npy", some_values())
    names = [b["name"] for b in octavo("doctor", "--json").json["backends"] if b["usable"]]
    results = set()
    for name in names:
        cast = octavo.good(
            "cast", "x.npy", "c.npy", "--to", "e3m2fn", "--json", env={"OCTAVO_BACKEND": name}
        )
        assert cast.json["backend"] == name
        results.add((octavo.folder / "c.npy").read_bytes())
    assert len(names) >= 2 and len(results) == 1


def test_backend_that_is_not_there(octavo):
    octavo.save("x.npy", some_values())
    result = octavo("cast", "x.npy", "c.npy", "--to", "e4m3fn", env={"OCTAVO_BACKEND": "nope"})
    result.refused(1, "nope")
    assert octavo.files() == {"x.npy"}
