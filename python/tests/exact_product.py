"""Products by the definition, in float64, from the bits of codes and scales: independent of
octavo's decoders. And the error bound of a product with a float32 accumulator."""

from __future__ import annotations

import numpy as np

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
# Half a unit in the last place of what results are rounded to, relative to them.
HALF_ULP = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 2.0**-53}


def unpacked_fp4(codes: np.ndarray, cols: int) -> np.ndarray:
    """Two codes to a byte, the first in the low half."""
    codes = np.ascontiguousarray(codes).view(np.uint8)
    nibbles = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    return FP4[nibbles[..., :cols]]


def spread(scales: np.ndarray, tile: tuple[int, int], shape: tuple[int, ...]) -> np.ndarray:
    """The scale of each element."""
    if scales.ndim < 2:
        return np.broadcast_to(scales, shape)
    rows, cols = (t or size for t, size in zip(tile, shape[-2:], strict=True))
    full = np.repeat(np.repeat(scales, rows, axis=-2), cols, axis=-1)
    return full[..., : shape[-2], : shape[-1]]


def values_of(x) -> np.ndarray:
    """A QuantizedTensor of NumPy, or values, in float64."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64)
    if x.scaling.format.name == "e2m1fn":
        codes = unpacked_fp4(x.codes, x.shape[-1])
    else:
        codes = x.codes.astype(np.float64)
    values = codes * spread(x.scales.astype(np.float64), x.tile, x.shape)
    return values if x.tensor_scale is None else values * np.float64(x.tensor_scale)


def product(a, b) -> tuple[np.ndarray, np.ndarray]:
    """a b^T, and the same with all signs taken off, which errors are relative to."""
    left, right = values_of(a), np.swapaxes(values_of(b), -1, -2)
    return left @ right, np.abs(left) @ np.abs(right)


def bound(exact: np.ndarray, magnitude: np.ndarray, depth: int, out: str = "float32") -> np.ndarray:
    """docs/numerics/gemm.md: a term of a sum of K products in float32, in any order, is rounded at
    most K times on its way through the sum, twice as a number and up to six times where scales are
    applied; each is 2^-24 relative. Then the result is rounded. What is below the least normal
    float32 may be flushed: 2^-126 each."""
    f32 = (depth + 8) * 2.0**-24
    sums = magnitude * (f32 / (1 - f32)) + (depth + 1) * 2.0**-126
    least = 2.0**-25 if out == "float16" else 2.0**-134
    return sums + (np.abs(exact) + sums) * HALF_ULP[out] + least


def check(got, a, b, out: str = "float32") -> None:
    """got is the product of a and b, as a float32 accumulator may have it."""
    exact, magnitude = product(a, b)
    found = np.asarray(got).astype(np.float64)
    assert found.shape == exact.shape
    wrong = np.abs(found - exact) > bound(exact, magnitude, values_of(a).shape[-1], out)
    assert not wrong.any(), (found[wrong][:4], exact[wrong][:4])
