"""Grouped GEMM: rows of one matrix times the matrices of their groups."""

from __future__ import annotations

import numpy as np
import pytest

import octavo as ov

ROWS = [4, 0, 1, 11]


def made(k: int = 64, n: int = 24) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    x = random.standard_normal((sum(ROWS), k), np.float32)
    return x, random.standard_normal((len(ROWS), n, k), np.float32)


@pytest.mark.parametrize("scaling", ["mxfp8", "fp8-channel", "nvfp4", None])
def test_is_a_product_for_each_group(scaling):
    x, w = made()
    quantized = (lambda values: values) if scaling is None else (lambda v: ov.quantize(v, scaling))
    bias = np.arange(24, dtype=np.float32)
    got = ov.gemm_grouped(quantized(x), quantized(w), ROWS, bias, activation="relu")
    first = 0
    for i, count in enumerate(ROWS):
        if scaling == "nvfp4":  # one scale for a whole tensor: not that of a part of it
            wanted = ov.gemm(quantized(x), ov.dequantize(quantized(w))[i], bias, activation="relu")
            close = np.abs(got[first : first + count] - wanted[first : first + count])
            assert close.max(initial=0) < 1e-3
        elif count:
            part = quantized(x[first : first + count])
            assert np.array_equal(
                got[first : first + count],
                ov.gemm(part, quantized(w[i]), bias, activation="relu"),
            )
        first += count


def test_into_memory_and_counts_of_any_kind(torch):
    x, w = (torch.from_numpy(part) for part in made())
    out = torch.full((sum(ROWS), 24), torch.nan, dtype=torch.bfloat16)
    assert ov.gemm_grouped(x, w, torch.tensor(ROWS), out=out) is out
    assert torch.equal(out, ov.gemm_grouped(x, w, np.array(ROWS), out=torch.bfloat16))
    assert not out.isnan().any()


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([4, 0, 1, 12], ValueError, "group 3 has 12 rows"),
        ([4, 0, 1], ValueError, "got rows of 3 groups, and B has 4"),
        ([4, 0, 1, 10], ValueError, "groups have 15 rows, and A has 16"),
        ([4, -1, 2, 11], ValueError, r"rows\[1\] = -1"),
        ([4.0, 0, 1, 11], TypeError, r"rows\[0\] of type float"),
        ("4011", TypeError, "rows of type str"),
        (16, TypeError, "rows of type int"),
        ({4, 0, 1, 11}, TypeError, "rows of type set"),
        ({4: 0, 0: 1}, TypeError, "rows of type dict"),
        ([4, False, 1, 11], TypeError, r"rows\[1\] of type bool"),
        ([2**62 + 1, 0, 0, 0], ValueError, r"expected 0 to 2\*\*62$"),
    ],
)
def test_refused(rows, error, message):
    x, w = made()
    with pytest.raises(error, match=message):
        ov.gemm_grouped(x, w, rows)


def test_shapes_and_outputs_are_refused():
    x, w = made()
    with pytest.raises(ValueError, match=r"expected \[rows, K\] and \[groups, N, K\]"):
        ov.gemm_grouped(x, w[0], [16])
    with pytest.raises(TypeError, match="expected a type of values or an array"):
        ov.gemm_grouped(x, w, ROWS, out="mxfp8")
