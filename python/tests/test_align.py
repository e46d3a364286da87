"""octavo.align_exponents and octavo.quantize_aligned: codes against a NumPy oracle, products,
errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import octavo as ov


def noise(*shape, seed=0, wide=3.0, dtype=np.float32):
    random = np.random.default_rng((seed, *shape))
    return (random.normal(size=shape) * np.exp2(wide * random.normal(size=shape))).astype(dtype)


def aligned(codes, exponents, run, dtype):
    """By ml_dtypes: numbers in float64, times a power of two, cast to nearest even. Their cast of
    float64 goes by way of float32, which holds every such number."""
    exponents = np.repeat(exponents.astype(np.int64), 32, axis=1)[:, : codes.shape[1]]
    values = codes.view(dtype).astype(np.float64)
    made, scales = codes.copy(), []
    for first in range(0, codes.shape[1], run):
        part = np.s_[:, first : first + run]
        top = exponents[part].max(axis=1)
        scales.append(np.exp2(top - 127.0))
        with np.errstate(all="ignore"):
            lowered = values[part] * np.exp2(exponents[part] - top[:, None])
            cast = lowered.astype(np.float32).astype(dtype).view(np.uint8)
        made[part] = np.where(np.isfinite(values[part]), cast, codes[part])
    return made, np.stack(scales, axis=1)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp8:e5m2"])
@pytest.mark.parametrize("to", ["rows", "blocks"])
def test_codes_scales_and_counts(name, to):
    dtype = ml_dtypes.float8_e5m2 if "e5m2" in name else ml_dtypes.float8_e4m3fn
    for rows, cols in [(1, 1), (5, 96), (3, 300), (40, 1024)]:
        q = ov.quantize(noise(rows, cols), name)
        tensor, changed = ov.align_exponents(q, to)
        codes, scales = aligned(
            np.asarray(q.codes).view(np.uint8),
            np.asarray(q.scales).view(np.uint8),
            max(cols, 1) if to == "rows" else 128,
            dtype,
        )
        assert np.array_equal(np.asarray(tensor.codes).view(np.uint8), codes)
        assert tensor.scales.dtype == np.float32 and np.array_equal(tensor.scales, scales)
        before, after = ov.dequantize(q, "float64"), ov.dequantize(tensor, "float64")
        assert changed == np.count_nonzero(before != after)
        again = ov.quantize_aligned(noise(rows, cols), name, to)
        assert again.changed == changed
        assert np.array_equal(np.asarray(again.tensor.codes).view(np.uint8), codes)


def test_scales_for_128_lie_by_column():
    tensor, _ = ov.align_exponents(ov.quantize(noise(6, 512), "mxfp8"), "blocks")
    assert tensor.scales.shape == (6, 4) and tensor.scales.strides == (4, 24)
    assert tensor.scaling.tile == (1, 128) and tensor.scaling.scale_order == "col_major"


def test_products_are_those_of_mx():
    # Small integers: every sum is exact in float32.
    random = np.random.default_rng(1)
    x, w = (random.integers(-4, 5, (n, 160)).astype(np.float32) for n in (7, 9))
    a, b = ov.quantize(x, "mxfp8"), ov.quantize(w, "mxfp8")
    for to in ("rows", "blocks"):
        left, right = ov.quantize_aligned(x, to=to), ov.align_exponents(b, to)
        assert left.changed == right.changed == 0
        assert np.array_equal(ov.gemm(left.tensor, right.tensor), ov.gemm(a, b))
        assert np.array_equal(ov.gemm(a, right.tensor), x @ w.T)


def test_without_a_count():
    q = ov.quantize(noise(4, 64), "mxfp8")
    assert ov.align_exponents(q, count=False).changed is None
    assert ov.quantize_aligned(noise(4, 64), count=False).changed is None


def test_out():
    x = noise(4, 256)
    first, changed = ov.quantize_aligned(x)
    kept = np.array(np.asarray(first.codes).view(np.uint8))
    other = ov.quantize_aligned(noise(4, 256, seed=5)).tensor
    again = ov.align_exponents(ov.quantize(x, "mxfp8"), out=other)
    assert again.tensor is other and again.changed == changed
    assert np.array_equal(np.asarray(other.codes).view(np.uint8), kept)
    assert ov.quantize_aligned(x, out=other).tensor is other
    with pytest.raises(ValueError, match="out is for"):
        ov.align_exponents(ov.quantize(x, "mxfp8"), "blocks", out=other)
    with pytest.raises(ValueError, match="shape"):
        ov.quantize_aligned(noise(5, 256), out=other)
    with pytest.raises(TypeError, match="torch"):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        ov.quantize_aligned(torch.ones(4, 256), out=other)


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.from_numpy(noise(8, 320)).to(torch.bfloat16)
    tensor, changed = ov.quantize_aligned(x)
    assert tensor.codes.dtype == torch.float8_e4m3fn and tensor.scales.dtype == torch.float32
    wanted = ov.align_exponents(ov.quantize(x, "mxfp8"))
    assert changed == wanted.changed
    assert torch.equal(tensor.codes.view(torch.uint8), wanted.tensor.codes.view(torch.uint8))


def test_both_copies():
    q = ov.quantize(noise(96, 64), ov.preset("mxfp8").replace(columnwise=True))
    tensor, changed = ov.align_exponents(q)
    transposed = ov.align_exponents(ov.transposed(q)).tensor
    assert changed == ov.align_exponents(ov.transposed(q)).changed
    assert np.array_equal(
        np.asarray(ov.transposed(tensor).codes).view(np.uint8),
        np.asarray(transposed.codes).view(np.uint8),
    )


def test_mistakes():
    q = ov.quantize(noise(4, 64), "mxfp8")
    with pytest.raises(ValueError, match="'rows' or 'blocks'"):
        ov.align_exponents(q, "columns")
    with pytest.raises(TypeError, match="expected 'rows' or 'blocks'"):
        ov.align_exponents(q, 128)
    with pytest.raises(TypeError, match="expected a QuantizedTensor"):
        ov.align_exponents(noise(4, 64))
    with pytest.raises(TypeError, match="use align_exponents"):
        ov.quantize_aligned(q)
    for name in ("fp8", "fp8-1x128", "nvfp4"):
        with pytest.raises(ValueError, match="expected MX"):
            ov.align_exponents(ov.quantize(noise(4, 64), name))
        with pytest.raises(ValueError, match="expected MX"):
            ov.quantize_aligned(noise(4, 64), name)
    with pytest.raises(TypeError, match="requantize to mxfp8 first"):
        ov.align_exponents(ov.quantize(noise(4, 64), "mxfp4"))
