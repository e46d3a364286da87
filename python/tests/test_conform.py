"""ov.conform: octavo itself, callables on arrays of any library, and answers that are none."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov


def quantizer(rule):
    def convert(values, name):
        scaling = ov.Scaling(name, tile=(1, 32), scale="e8m0", rule=rule, packed=False)
        q = ov.quantize(values, scaling)
        return q.scales.view(np.uint8).reshape(-1), q.codes.view(np.uint8)

    return convert


def test_octavo_conforms():
    found = ov.conform()
    assert found.conforms and not found.deviations()
    assert {one["clause"] for one in found.findings} >= {"5.1", "5.4.1", "6.1", "6.2", "6.3"}
    assert "6.3  conforms  the scale of a block" in str(found)


def test_callables_are_judged():
    floor = ov.conform(convert=quantizer("floor"))
    assert floor.conforms
    rceil = ov.conform(convert=quantizer("rceil"))
    assert {one["check"] for one in rceil.deviations()} == {"the scale of a block"}
    assert repr(rceil).endswith(f"{len(rceil.deviations())} deviate)")


def test_arrays_of_torch(torch):
    def convert(values, name):
        scales, codes = quantizer("floor")(values, name)
        return torch.from_numpy(scales.copy()), torch.from_numpy(codes.copy())

    assert ov.conform(convert=convert).conforms

    def dequantize(scales, codes, name):
        if name != "e4m3fn":
            raise NotImplementedError("E4M3 alone")
        values = torch.from_numpy(codes.copy()).view(torch.float8_e4m3fn).double()
        factor = torch.from_numpy(np.where(scales == 255, np.nan, 2.0 ** (scales - 127.0)))
        return (values * factor[:, None]).float()

    found = ov.conform(dequantize=dequantize)
    assert found.conforms
    assert any(one["what"] == "E4M3 alone" for one in found.findings)


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (lambda values, name: None, TypeError, "expected two arrays"),
        (lambda values, name: (np.zeros(1), np.zeros(1)), TypeError, "expected bytes"),
        (lambda values, name: (np.zeros(1, np.uint8),) * 2, ValueError, "got a reply with"),
    ],
)
def test_answers_that_are_none(answer, error, why):
    with pytest.raises(error, match=why):
        ov.conform(convert=answer)
    with pytest.raises(TypeError, match="expected a callable"):
        ov.conform(convert=3)


def test_what_a_callable_raises_goes_through():
    def convert(values, name):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        ov.conform(convert=convert)
