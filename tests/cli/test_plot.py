"""The pictures: well-formed, whole, and showing what they say they show."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

SVG = "{http://www.w3.org/2000/svg}"
FORMATS = ["e4m3fn", "e5m2", "e4m3fnuz", "e8m0fnu", "e2m1fn", "mxint8", "e5m10", "e8m7", "e11m4"]
FORMATS += ["e1m2fn", "e2m0fn", "e1m14fn", "e3m2b-5"]


def picture(octavo, *arguments):
    result = octavo.good("formats", *arguments, "--plot", "p.svg")
    assert result.out == "" and "wrote p.svg" in result.err
    return ET.parse(octavo.folder / "p.svg").getroot()


def texts(root):
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def check_geometry(root):
    """Every coordinate is a number, and everything is on the page."""
    width, height = float(root.get("width")), float(root.get("height"))
    for element in root.iter():
        for name in ("x", "y", "x1", "y1", "x2", "y2", "width", "height"):
            if element.get(name) is not None:
                assert math.isfinite(float(element.get(name))), element.attrib
        if element.tag == f"{SVG}text":
            assert -1 <= float(element.get("x")) <= width + 1, element.text
            assert -1 <= float(element.get("y")) <= height + 1, element.text
        if element.tag == f"{SVG}rect":
            assert float(element.get("width")) >= 0 and float(element.get("height")) >= 0
        if element.tag == f"{SVG}path":
            numbers = re.findall(r"-?[\d.]+", element.get("d"))
            assert numbers and not re.search(r"nan|inf", element.get("d"))


@pytest.mark.parametrize("name", FORMATS)
def test_one_format(octavo, name):
    root = picture(octavo, name)
    check_geometry(root)
    facts = octavo.good("formats", name, "--json").json
    assert facts["name"] in texts(root)
    assert facts["name"] in root.find(f"{SVG}title").text
    assert any(text.startswith("largest ") for text in texts(root))
    assert ("subnormal" in texts(root)) == (facts["subnormal_codes"] > 0)
    assert (octavo.folder / "p.svg").stat().st_size < 1_000_000


def test_limits_are_written_on_it(octavo):
    labels = texts(picture(octavo, "e4m3fn"))
    for label in ("largest 448", "smallest normal 0.015625", "smallest 0.001953125", "253"):
        assert label in labels


def test_every_positive_value_has_its_mark(octavo):
    root = picture(octavo, "e4m3fn")
    shown = {rect.find(f"{SVG}title").text for rect in root.iter(f"{SVG}rect") if len(rect)}
    facts = octavo.good("formats", "e4m3fn", "--json").json
    wanted = [row for row in facts["table"] if row["value"] is not None and row["value"] > 0]
    assert shown == {f"{row['hex']} = {row['text']}" for row in wanted}


def test_all_formats(octavo):
    root = picture(octavo)
    check_geometry(root)
    for row in octavo.good("formats", "--json").json["formats"]:
        assert row["name"] in texts(root)
    assert "up to 448" in texts(root) and "8 bits, 253 values" in texts(root)


def test_with_json(octavo):
    result = octavo.good("formats", "e2m1fn", "--json", "--plot", "p.svg")
    assert result.json["name"] == "e2m1fn" and (octavo.folder / "p.svg").exists()


def test_not_written(octavo):
    octavo("formats", "e4m3fn", "--plot", "nope/p.svg").refused(1, "nope/p.svg", "No such file")
    octavo("formats", "nope", "--plot", "p.svg").refused(2)
    octavo("formats", "e4m3fn", "--plot", "p.png").refused(2, "--plot: got 'p.png'", "'p.svg'")
    assert octavo.files() == set()
