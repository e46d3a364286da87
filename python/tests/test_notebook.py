"""What a notebook shows: well-formed, small, self-contained, escaped, in the page's own colours."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import octavo as ov
from octavo._checkpoint_report import CheckpointReport, Findings, Plan

X = np.linspace(-4, 4, 128, dtype=np.float32).reshape(2, 64)
EVIL = '<script>alert("x")</script>&'
FINDING = {
    "severity": "error",
    "loader": "vllm",
    "rule": "R1",
    "tensor": EVIL,
    "message": EVIL,
}


class Checked(HTMLParser):
    """All tags are closed in their order; texts are collected."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts = [], set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def checkpoint_report():
    import json

    metrics = {"sqnr": 30.25, "cosine": 0.9995, "max_abs": None}
    tensors = [{"name": f"{EVIL}{i}", "quantized": True, "metrics": metrics} for i in range(7)]
    return CheckpointReport(
        Plan(
            json.dumps(
                {
                    "title": EVIL,
                    "verb": "quantize",
                    "tensors": tensors,
                    "worst": [one["name"] for one in tensors],
                    "bytes_before": 10,
                    "bytes_after": 5,
                }
            )
        )
    )


def findings(count):
    said = {"good": False, "quantized": True, "dialect": None, "weights": 3}
    return Findings(said | {"checked": {}, "loaders": {}, "findings": [FINDING] * count})


def attention_report():
    q = np.random.default_rng(0).normal(size=(1, 2, 64, 32)).astype(np.float32)
    return ov.attention(q, q, q, return_report=True)[1]


SHOWN = {
    **{f.name: lambda f=f: f for f in ov.formats()},
    "e3m3": lambda: ov.format("e3m3"),
    **{name: lambda name=name: ov.quantize(X, name) for name in ov.preset_names()},
    "columnwise": lambda: ov.quantize(X, ov.preset("mxfp8").replace(columnwise=True)),
    "empty": lambda: ov.quantize(X[:0], "mxfp8"),
    "scalar": lambda: ov.quantize(np.float32(3), "fp8"),
    "checkpoint": checkpoint_report,
    "findings": lambda: findings(30),
    "no findings": lambda: findings(0),
    "attention": attention_report,
    "gemm_error": lambda: ov.gemm_error(X, X, ov.quantize(X, "mxfp8"), X),
}


@pytest.mark.parametrize("name", SHOWN)
def test_pages(name):
    page = SHOWN[name]()._repr_html_()
    seen = Checked(page)
    assert not seen.open
    assert seen.tags <= {"div", "b", "table", "tr", "th", "td", "span"}  # no script, no style sheet
    assert "http" not in page and "url(" not in page
    assert len(page) < 10_000
    # Text has the page's colour, on backgrounds that let the page's through.
    assert set(re.findall(r"(?<![-\w])color:([^;\"]+)", page)) == {"inherit"}
    backgrounds = set(re.findall(r"background:([^;\"]+)", page)) - {"transparent"}
    assert all(re.fullmatch(r"rgba\(\d+,\d+,\d+,\.\d\)", one) for one in backgrounds)


def test_texts():
    text = " ".join(Checked(ov.format("e4m3fn")._repr_html_()).texts)
    assert "e4m3fn" in text and "448" in text and "S E E E E M M M" in text
    text = " ".join(Checked(ov.quantize(X, "mxfp8")._repr_html_()).texts)
    assert "(2, 64) from float32" in text and "132 bytes, 8.25 bits a value" in text


@pytest.mark.parametrize("made", [checkpoint_report, lambda: findings(2)])
def test_names_from_files_are_escaped(made):
    page = made()._repr_html_()
    assert "<script" not in page
    assert EVIL in " ".join(Checked(page).texts)


def test_long_lists_are_cut():
    assert "and 20 more" in findings(30)._repr_html_()
    assert "and 2 more" in checkpoint_report()._repr_html_()


def test_a_tensor_of_torch_s(torch):
    import octavo.torch as te

    q = te.MXFP8Quantizer("e4m3fn")(torch.ones(4, 32))
    assert "(4, 32) from float32" in q._repr_html_()
