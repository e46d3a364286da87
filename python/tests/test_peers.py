"""Bit for bit with the peers, over all 16-bit and 8-bit inputs, under the profile named after each.

A profile promises a peer's bits even where they are wrong (a float64 rounded twice). Where they are
right, the default policy must give the same.
"""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

ML_DTYPES_FORMATS = [
    "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "e4m3", "e3m4", "e8m0fnu",
    "e3m2fn", "e2m3fn", "e2m1fn",
]  # fmt: skip
TORCH_FORMATS = ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"]


def assert_same_bits(mine: np.ndarray, theirs: np.ndarray, inputs: np.ndarray) -> None:
    mine, theirs = np.asarray(mine).view(np.uint8), np.asarray(theirs).view(np.uint8)
    wrong = np.flatnonzero(mine != theirs)
    shown = [f"{inputs[i]!r}: {mine[i]:#04x}, theirs {theirs[i]:#04x}" for i in wrong[:5]]
    assert wrong.size == 0, f"{wrong.size} of {mine.size} differ: " + "; ".join(shown)


def ml_dtypes_inputs(ml_dtypes, all_16_bits, edges_f32):
    yield all_16_bits.view(ml_dtypes.bfloat16)
    yield all_16_bits.view(np.float16)
    yield edges_f32
    for name in ML_DTYPES_FORMATS:
        f = ov.format(name)
        codes = f.codes()
        if name.endswith("fnuz"):
            # NaN in the place of minus zero: ml_dtypes reads it as negative, torch and octavo not.
            codes = np.delete(codes, 0x80)
        yield codes.view(f.numpy_dtype)


@pytest.mark.parametrize("name", ML_DTYPES_FORMATS)
def test_ml_dtypes_profile(name, ml_dtypes, all_16_bits, edges_f32):
    dtype = ov.format(name).numpy_dtype
    for x in ml_dtypes_inputs(ml_dtypes, all_16_bits, edges_f32):
        if x.dtype == dtype or (x.dtype.itemsize == 1 and "e8m0" in x.dtype.name + name):
            continue  # to itself astype copies; between e8m0fnu and float8 ml_dtypes has none
        with np.errstate(all="ignore"):
            theirs = x.astype(dtype)
        assert_same_bits(ov.encode(x, dtype, profile="ml_dtypes"), theirs, x)


@pytest.mark.parametrize("name", TORCH_FORMATS)
def test_torch_profile(name, torch, all_16_bits, edges_f32):
    if torch.__version__ < "2.12":
        pytest.skip("this torch overflows e4m3fn to NaN; profile torch_2_11 is tested below")
    compare_with_torch(name, "torch", torch, all_16_bits, edges_f32)


@pytest.mark.parametrize("name", ["e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu"])
def test_torch_2_11_profile(name, torch, all_16_bits, edges_f32):
    # The profiles differ in e4m3fn alone.
    compare_with_torch(name, "torch_2_11", torch, all_16_bits, edges_f32)


def test_torch_2_11_profile_e4m3fn(ml_dtypes, all_16_bits):
    """Up to 2.11 torch overflowed e4m3fn to NaN, as ml_dtypes does."""
    x = all_16_bits.view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        theirs = x.astype(ml_dtypes.float8_e4m3fn)
    assert_same_bits(ov.encode(x, "e4m3fn", profile="torch_2_11"), theirs, x)


def compare_with_torch(name, profile, torch, all_16_bits, edges_f32):
    dtype = ov.format(name).torch_dtype
    bits = torch.from_numpy(all_16_bits.view(np.int16).copy())
    codes = torch.arange(256, dtype=torch.uint8)
    inputs = [bits.view(torch.bfloat16), bits.view(torch.float16), torch.from_numpy(edges_f32)]
    inputs += [codes.view(ov.format(other).torch_dtype) for other in TORCH_FORMATS if other != name]
    for x in inputs:
        mine, theirs = ov.encode(x, dtype, profile=profile), x.to(dtype)
        shown = x.view(torch.uint8).numpy() if x.element_size() == 1 else x.float().numpy()
        assert_same_bits(mine.view(torch.uint8).numpy(), theirs.view(torch.uint8).numpy(), shown)


def test_float64_profiles_round_twice_as_the_peers_do(ml_dtypes, torch):
    rng = np.random.default_rng(5)
    # Values a hair off the midpoints of e4m3fn: float32 cannot hold the hair.
    f = ov.format("e4m3fn").values()
    values = np.unique(f[np.isfinite(f)])
    middle = (values[1:] + values[:-1]) / 2
    x = np.concatenate(
        [middle, middle * (1 + 2**-40), middle * (1 - 2**-40), rng.normal(size=1000) * 100]
    )
    theirs = x.astype(ml_dtypes.float8_e4m3fn)
    assert_same_bits(ov.encode(x, "e4m3fn", profile="ml_dtypes"), theirs, x)
    t = torch.from_numpy(x)
    assert_same_bits(
        ov.encode(t, "e4m3fn", profile="torch").view(torch.uint8).numpy(),
        t.to(torch.float8_e4m3fn).view(torch.uint8).numpy(),
        x,
    )
    # By default each is rounded once: to the value whose distance is smallest.
    mine = ov.decode(ov.encode(x, "e4m3fn"), "float64")
    nearest = np.abs(x[:, None] - values[None, :]).min(axis=1)
    np.testing.assert_array_equal(np.abs(x - mine), nearest)
    assert (mine != theirs.astype(np.float64)).any()


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_default_agrees_in_range(name, ml_dtypes, all_16_bits):
    """In range all peers agree with each other, and the default policy with them."""
    f = ov.format(name)
    x = all_16_bits.view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        wide, theirs = x.astype(np.float64), x.astype(f.numpy_dtype)
    inside = np.abs(wide) <= f.max
    assert_same_bits(ov.encode(x, f)[inside], theirs[inside], wide[inside])


@pytest.mark.parametrize("name", TORCH_FORMATS)
def test_decode_agrees_with_torch(name, torch):
    f = ov.format(name)
    codes = torch.arange(256, dtype=torch.uint8).view(f.torch_dtype)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        mine, theirs = ov.decode(codes, dtype), codes.to(dtype)
        both_nan = torch.isnan(mine) & torch.isnan(theirs)
        assert torch.equal(mine[~both_nan], theirs[~both_nan])
        assert torch.equal(torch.signbit(mine)[~both_nan], torch.signbit(theirs)[~both_nan])


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e3m4", "e3m3", "e2m1fn", "e5m6"])
@pytest.mark.parametrize("rounding", ["nearest_even", "nearest_away", "toward_zero", "up", "down"])
def test_against_a_search_of_the_table(name, rounding, all_16_bits, ml_dtypes):
    """An oracle independent of the encoder: searches the neighbours among all values."""
    f = ov.format(name)
    values = f.values()
    finite = np.isfinite(values)
    grid, first = np.unique(values[finite], return_index=True)
    codes = f.codes()[finite][first]
    with np.errstate(all="ignore"):
        x = all_16_bits.view(ml_dtypes.bfloat16).astype(np.float64)
    x = x[np.abs(x) <= f.max]
    above = np.searchsorted(grid, x, "left")
    below = np.where(grid[above] == x, above, above - 1)
    to_above, to_below = grid[above] - x, x - grid[below]
    tie = to_above == to_below
    even = np.where(codes[above] % 2 == 0, above, below)
    away = np.where(x > 0, above, below)
    nearest = np.where(to_above < to_below, above, below)
    index = {
        "nearest_even": np.where(tie, even, nearest),
        "nearest_away": np.where(tie, away, nearest),
        "toward_zero": np.where(x > 0, below, above),
        "up": above,
        "down": below,
    }[rounding]
    mine = ov.decode(ov.encode(x, f, rounding=rounding), "float64", f)
    np.testing.assert_array_equal(mine, grid[index])
