"""octavo attention-report: table, JSON, picture, files and limits."""

from __future__ import annotations

import json

import numpy as np

SMALL = ("--tokens", "256", "--head-size", "64", "--rows", "16")


def test_table(octavo):
    out = octavo.good("attention-report", *SMALL).out
    for name in ("normal", "outlier", "peaked", "biased", "normal, causal"):
        assert f"\n{name}\n" in out
    for rung in ("bf16", "strict", "balanced", "fast", "naive", "auto"):
        assert out.count(f"  {rung} ") == 5
    assert "inputs" in out and "softmax" in out


def test_json(octavo):
    done = octavo.good("attention-report", *SMALL, "--json", "--inputs", "normal")
    report = json.loads(done.out)
    assert report["q_shape"] == [1, 1, 256, 64] and report["rtol"] == report["atol"] == 0.005
    (case,) = report["cases"]
    rungs = {entry["rung"]: entry for entry in case["rungs"]}
    assert rungs["bf16"]["failures"] == rungs["auto"]["failures"] == 0
    assert rungs["naive"]["failures"] > 0
    assert rungs["bf16"]["elements"] == 16 * 64
    assert 0.02 < rungs["fast"]["stages"]["inputs"] < 0.03
    assert sum(rungs["auto"]["rows_by_rung"].values()) == 256  # all, of which 16 are compared


def test_picture(octavo):
    octavo.good("attention-report", *SMALL, "--inputs", "peaked", "--html", "a.html")
    text = (octavo.folder / "a.html").read_text()
    assert text.startswith("<!doctype html>") and "<svg" in text and "after softmax" in text
    result = octavo("attention-report", *SMALL, "--html", "a.svg")
    assert result.code == 2 and ".html" in result.err


def test_page_explains_its_rungs_and_has_the_numbers(octavo):
    done = octavo.good("attention-report", *SMALL, "--html", "a.html", "--json")
    text = (octavo.folder / "a.html").read_text()
    report = json.loads(done.out)
    for rung in ("bf16", "strict", "balanced", "fast", "naive", "auto"):
        assert f"<b>{rung}</b>" in text
    assert "<h2>The rungs</h2>" in text and "a counterexample" in text
    assert text.count("<table>") == 1 + len(report["cases"])
    for case in report["cases"]:
        for entry in case["rungs"]:
            assert f"<td>{entry['max_abs']:.2e}</td>" in text
    assert len(report["advice"]) == len(report["cases"]) + 1
    for line in report["advice"]:
        assert line.replace("&", "&amp;") in text.replace("\u00a0", " ")  # percents do not break
    for outside in ("http:", "https:", "src=", "url(", "<script"):
        assert outside not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_advice_is_the_cheapest_that_passes(octavo):
    done = octavo.good("attention-report", *SMALL, "--inputs", "normal", "--json")
    (case,) = json.loads(done.out)["cases"]
    (line,) = json.loads(done.out)["advice"]
    passing = [entry["rung"] for entry in case["rungs"] if entry["failures"] == 0]
    cheapest = next(r for r in ("fast", "strict", "balanced", "bf16") if r in passing)
    assert line.startswith(f"normal: {cheapest} is the cheapest that passes")
    shown = octavo.good("attention-report", *SMALL, "--inputs", "normal").out
    assert f"advice, {line}" in shown and "  fast: everything in FP8" in shown
    none = octavo.good("attention-report", *SMALL, "--inputs", "peaked", "--rung", "fast").out
    assert "none of the rungs that were run passes; fast fails at" in none


def test_files(octavo):
    random = np.random.default_rng(0)
    for name in "qkv":
        np.save(octavo.folder / f"{name}.npy", random.standard_normal((2, 100, 32), np.float32))
    files = ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy")
    report = json.loads(octavo.good("attention-report", *files, "--causal", "--json").out)
    assert report["q_shape"] == [1, 2, 100, 32] and report["cases"][0]["inputs"] == "given, causal"
    result = octavo("attention-report", "--q", "q.npy")
    assert result.code == 2 and "all three" in result.err
    np.save(octavo.folder / "k.npy", random.standard_normal((2, 100, 16), np.float32))
    result = octavo("attention-report", *files)
    assert result.code == 1 and "head size is 32 in Q and 16 in K" in result.err


def test_limits(octavo):
    common = ("attention-report", *SMALL, "--inputs", "normal", "--fail-above", "0")
    assert octavo(*common, "--rung", "auto").code == 0
    result = octavo(*common, "--rung", "naive")
    assert result.code == 3 and "limit missed" in result.err and "naive" in result.err


def test_limits_that_are_none(octavo):
    for name in ("--rtol", "--atol", "--fail-above"):
        for limit in ("nan", "-1", "inf"):
            result = octavo("attention-report", *SMALL, f"{name}={limit}")
            assert result.code == 2 and name in result.err and "at least 0" in result.err


def test_errors_name_the_command(octavo):
    np.save(octavo.folder / "q.npy", np.zeros((2, 8, 32), np.int32))
    result = octavo("attention-report", "--q", "q.npy", "--k", "q.npy", "--v", "q.npy")
    assert result.code == 1
    assert "[attention-report]" in result.err and "[quantize]" not in result.err


def test_words(octavo):
    result = octavo("attention-report", "--rung", "strct")
    assert result.code == 2 and "strict" in result.err
    result = octavo("attention-report", "--inputs", "norml")
    assert result.code == 2 and "normal" in result.err
