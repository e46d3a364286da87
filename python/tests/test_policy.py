"""Rounding, overflow, NaN, profiles and counts: what the arguments of encode do."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def bits(x) -> list[int]:
    return np.asarray(x).view(np.uint8).ravel().tolist()


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
