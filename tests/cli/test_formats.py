"""octavo formats against oracles that share no code with it: ml_dtypes, and exact fractions."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

PEERS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "e4m3": ml_dtypes.float8_e4m3,
    "e3m4": ml_dtypes.float8_e3m4,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "e3m2fn": ml_dtypes.float6_e3m2fn,
    "e2m3fn": ml_dtypes.float6_e2m3fn,
    "e2m1fn": ml_dtypes.float4_e2m1fn,
    "e5m10": np.float16,
    "e8m7": ml_dtypes.bfloat16,
}


def table(octavo, name):
    return octavo.good("formats", name, "--json").json


@pytest.mark.parametrize("name", PEERS)
def test_every_code_is_what_the_peer_says(octavo, name):
    facts = table(octavo, name)
    unsigned = np.uint8 if facts["bits"] <= 8 else np.uint16
    codes = np.arange(2 ** facts["bits"], dtype=unsigned)
    with np.errstate(invalid="ignore"):  # signaling NaNs
        values = codes.view(PEERS[name]).astype(np.float64)
    assert [row["code"] for row in facts["table"]] == codes.tolist()
    for row, value in zip(facts["table"], values, strict=True):
        if math.isnan(value):
            assert (row["class"], row["text"], row["value"]) == ("nan", "NaN", None)
        elif math.isinf(value):
            assert (row["class"], row["value"]) == ("inf", None)
            assert row["text"] == ("-Inf" if value < 0 else "Inf")
        else:
            assert row["value"] == value
            assert math.copysign(1, row["value"]) == math.copysign(1, value)


@pytest.mark.parametrize("name", PEERS)
def test_limits_are_those_of_the_peer(octavo, name):
    facts = table(octavo, name)
    peer = ml_dtypes.finfo(PEERS[name])
    assert facts["max"] == float(peer.max)
    assert facts["lowest"] == float(peer.min)
    assert facts["min_normal"] == float(peer.smallest_normal)
    assert facts["min_positive"] == float(peer.smallest_subnormal)
    if name != "e8m0fnu":  # ml_dtypes gives the step below a power of two there
        assert facts["epsilon"] == float(peer.eps)


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e8m0fnu", "e2m1fn", "e4m11", "e3m6b-2fn"])
def test_text_has_every_digit(octavo, name):
    for row in table(octavo, name)["table"]:
        if row["value"] is None:
            continue
        text = row["text"]
        if "..." in text:  # long ones are cut, and say so
            shown = text.replace("...", "")
            assert len(text) == 40 and Decimal(shown) != Decimal(row["value"])
            assert abs(Decimal(shown) / Decimal(row["value"]) - 1) < Decimal("1e-20")
        else:
            assert Fraction(text) == Fraction(row["value"])


def test_bits_are_split_into_their_fields(octavo):
    rows = table(octavo, "e4m3fn")["table"]
    assert rows[0x7E]["bits"] == "0|1111|110"
    assert rows[0xB8]["bits"] == "1|0111|000"
    assert table(octavo, "e8m0fnu")["table"][0x7F]["bits"] == "01111111"
    assert table(octavo, "mxint8")["table"][0xC0]["bits"] == "1|1000000"
    for row in rows:
        assert int(row["bits"].replace("|", ""), 2) == row["code"] == int(row["hex"], 16)


def test_classes_are_counted(octavo):
    facts = table(octavo, "e4m3fn")
    classes = [row["class"] for row in facts["table"]]
    assert classes.count("nan") == 2 and classes.count("inf") == 0 and classes.count("zero") == 2
    assert classes.count("subnormal") == facts["subnormal_codes"] == 14
    assert facts["finite_codes"] == 254 and facts["finite_values"] == 253


def test_the_table_names_every_format(octavo):
    formats = octavo.good("formats", "--json").json["formats"]
    names = [row["name"] for row in formats]
    assert set(PEERS) - {"e5m10", "e8m7"} <= set(names) and len(names) == len(set(names))
    text = octavo.good("formats").out
    for name in names:
        assert f"\n{name} " in text
    for row in formats:
        one = table(octavo, row["name"])
        del one["table"]
        assert one == row


def test_sixteen_bits_are_fine(octavo):
    lines = octavo.good("formats", "e5m10").out.splitlines()
    assert sum(line.startswith("0x") for line in lines) == 65536


def test_plain_text_agrees_with_json(octavo):
    rows = {row["hex"]: row for row in table(octavo, "e3m4")["table"]}
    lines = [line for line in octavo.good("formats", "e3m4").out.splitlines() if line[:2] == "0x"]
    assert len(lines) == len(rows) == 256
    for line in lines:
        code, bits, value, *reading, name = line.split()
        row = rows[code]
        assert (bits, value, name) == (row["bits"], row["text"], row["class"])
        if reading:  # "1.75 * 2^8"
            factor, _, power = reading
            assert Fraction(factor) * Fraction(2) ** int(power[2:]) == Fraction(row["value"])
