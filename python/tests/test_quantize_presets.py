"""Every preset against its definition written down in NumPy: tables of values made here, exact
arithmetic in float64 and single operations in float32. Nothing of the library is used but the call
that is tested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import octavo as ov


def magnitudes(exponent_bits: int, mantissa_bits: int, codes: int) -> np.ndarray:
    """The values of the first codes of a format with a sign, subnormal numbers included."""
    bias = 2 ** (exponent_bits - 1) - 1
    code = np.arange(codes)
    exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    normal = (1 + fraction) * 2.0 ** (exponent - bias)
    return np.where(exponent == 0, fraction * 2.0 ** (1 - bias), normal)


@dataclass
class Element:
    values: np.ndarray  # of the codes from 0 on
    sign: int  # the bit of the sign

    @property
    def max(self) -> float:
        return float(self.values[-1])

    def encode(self, u: np.ndarray) -> np.ndarray:
        """The nearest code, ties to the even one, beyond the largest value that."""
        size = np.abs(u).astype(np.float64)
        above = np.clip(np.searchsorted(self.values, size), 1, len(self.values) - 1)
        below = above - 1
        up, down = self.values[above] - size, size - self.values[below]
        code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
        return (code + np.where(np.signbit(u), self.sign, 0)).astype(np.uint8)


class Integer(Element):
    """Two's complement, in units of the smallest value: MXINT8 1/64, INT8 and INT4 one."""

    def encode(self, u: np.ndarray) -> np.ndarray:
        most = len(self.values) - 1
        numbers = np.clip(np.rint(u / self.values[1]), -most - 1, most).astype(np.int8)
        return numbers.view(np.uint8) & np.uint8(2 * most + 1)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        beyond = codes.astype(np.int16) >= len(self.values)
        return (codes - beyond * 2.0 * len(self.values)) * self.values[1]


E4M3 = Element(magnitudes(4, 3, 0x7F), 0x80)
E5M2 = Element(magnitudes(5, 2, 0x7C), 0x80)
E2M3 = Element(magnitudes(2, 3, 0x20), 0x20)
E3M2 = Element(magnitudes(3, 2, 0x20), 0x20)
E2M1 = Element(magnitudes(2, 1, 0x08), 0x08)
MXINT8 = Integer(np.arange(128) / 64.0, 0)
INT8 = Integer(np.arange(128) / 1.0, 0)
INT4 = Integer(np.arange(8) / 1.0, 0)

PRESETS = {
    "fp8": (E4M3, (0, 0), "f32"),
    "fp8:e5m2": (E5M2, (0, 0), "f32"),
    "fp8-channel": (E4M3, (1, 0), "f32"),
    "fp8-1x128": (E4M3, (1, 128), "f32"),
    "fp8-block": (E4M3, (128, 128), "f32"),
    "mxfp8": (E4M3, (1, 32), "e8m0"),
    "mxfp8:e5m2": (E5M2, (1, 32), "e8m0"),
    "mxfp6": (E2M3, (1, 32), "e8m0"),
    "mxfp6:e3m2fn": (E3M2, (1, 32), "e8m0"),
    "mxfp4": (E2M1, (1, 32), "e8m0"),
    "mxint8": (MXINT8, (1, 32), "e8m0"),
    "int8-channel": (INT8, (1, 0), "f32"),
    "int4": (INT4, (1, 128), "bf16"),
    "nvfp4": (E2M1, (1, 16), "e4m3+f32"),
}


def spread(tiles: np.ndarray, tile: tuple[int, int], shape: tuple[int, int]) -> np.ndarray:
    """What each tile has, for each element."""
    rows, cols = (extent or size for extent, size in zip(tile, shape, strict=True))
    return tiles.repeat(rows, 0).repeat(cols, 1)[: shape[0], : shape[1]]


def tile_amax(x: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    rows, cols = (extent or size for extent, size in zip(tile, x.shape, strict=True))
    row_starts, col_starts = range(0, x.shape[0], rows), range(0, x.shape[1], cols)
    size = np.abs(x)
    return np.array(
        [[size[r : r + rows, c : c + cols].max() for c in col_starts] for r in row_starts]
    )


def nearest_bf16(values: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, ties to even."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((raw + 0x7FFF + (raw >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bf16: np.ndarray) -> np.ndarray:
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def transcribed(x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.float32 | None]:
    """(codes, scales as stored, tensor scale) of finite, normal float32 values."""
    element, tile, scale = PRESETS[name]
    amax = tile_amax(x, tile)
    f32 = np.float32
    if scale == "e8m0":
        # The least exponent with amax <= max * 2**exponent, by comparing mantissas.
        mantissa, exponent = np.frexp(amax.astype(np.float64))
        top_mantissa, top_exponent = np.frexp(element.max)
        exponent = exponent - top_exponent + (mantissa > top_mantissa)
        u = x * spread(2.0**-exponent, tile, x.shape)
        return element.encode(u), (exponent + 127).astype(np.uint8), None
    if scale == "bf16":
        scales = nearest_bf16(amax / f32(element.max))
        u = x * spread(f32(1) / widened(scales), tile, x.shape)
        return element.encode(u), scales, None
    if scale == "f32":
        scales = amax / f32(element.max)
        u = x * spread(f32(1) / scales, tile, x.shape)
        return element.encode(u), scales if tile != (0, 0) else scales.reshape(()), None
    tensor_scale = np.abs(x).max() / f32(448 * 6)
    scales = np.maximum(E4M3.encode(amax / f32(6) / tensor_scale), 1)  # never a scale of zero
    both = E4M3.values[scales].astype(f32) * tensor_scale
    u = x * spread(f32(1) / both, tile, x.shape)
    return element.encode(u), scales, tensor_scale


def bits(array: np.ndarray) -> np.ndarray:
    return array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.dtype.itemsize])


def normal_values(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Tiles of very different sizes, every value a normal float32."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape) * 2.0 ** rng.integers(-20, 20, (shape[0], 1))
    x[np.abs(x) < 2.0**-60] = 1.0
    return x.astype(np.float32)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("shape", [(1, 1), (130, 300), (7, 64)])
def test_preset_is_its_definition(name, shape):
    x = normal_values(shape, 11)
    codes, scales, tensor_scale = transcribed(x, name)
    q = ov.quantize(x, ov.preset(name).replace(packed=False))
    np.testing.assert_array_equal(bits(q.codes), codes)
    np.testing.assert_array_equal(bits(q.scales), bits(scales))
    assert q.scales.shape == scales.shape
    assert q.tensor_scale == tensor_scale


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("of_max", [1.0, 0.7, 1 / 3, 1.9])
def test_exact_values_and_ties(name, of_max):
    """Every value of the format and every midpoint, times a scale, and the float32 on either side:
    what tells one order of operations from another."""
    element, (_, cols), _ = PRESETS[name]
    middle = (element.values[1:] + element.values[:-1]) / 2
    landmarks = (np.concatenate([element.values, middle]) * of_max).astype(np.float32)
    amax = landmarks.max()
    around = [landmarks, np.nextafter(landmarks, np.float32(0)), np.nextafter(landmarks, amax)]
    grid = np.concatenate([*around, *[-side for side in around]])
    cols = cols or grid.size
    grid.resize(-(-grid.size // (cols - 1)), cols - 1)
    x = np.hstack([np.full((len(grid), 1), amax), grid])
    codes, scales, _ = transcribed(x, name)
    q = ov.quantize(x, ov.preset(name).replace(packed=False))
    np.testing.assert_array_equal(bits(q.codes), codes)
    np.testing.assert_array_equal(bits(q.scales), bits(scales))


@pytest.mark.parametrize("name", PRESETS)
def test_dequantize_is_scale_times_value(name):
    element, tile, _ = PRESETS[name]
    x = normal_values((130, 300), 12)
    codes, scales, tensor_scale = transcribed(x, name)
    if tensor_scale is not None:
        scales = E4M3.values[scales] * float(tensor_scale)
    elif scales.dtype == np.uint16:
        scales = widened(scales)
    elif scales.dtype == np.uint8:
        scales = 2.0 ** (scales.astype(float) - 127)
    scale = spread(np.atleast_2d(scales.astype(np.float64)), tile, x.shape)
    if isinstance(element, Integer):
        value = element.decode(codes)
    else:
        value = element.values[codes & (element.sign - 1)]
        value = np.where(codes & element.sign, -value, value)
    # Products of at most 24 + 4 + 8 bits are exact in float64, so this rounds once.
    expected = (scale * value).astype(np.float32)
    np.testing.assert_array_equal(ov.dequantize(ov.quantize(x, name)), expected)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_values_are_those_of_float32_rounded_again(name, dtype, ml_dtypes):
    rng = np.random.default_rng(14)
    # Subnormal numbers of float16, all of its range, and beyond it, where it has Inf.
    x = rng.normal(size=(9, 160)) * np.exp2(rng.uniform(-30, 20, (9, 160)))
    q = ov.quantize(x.astype(np.float32), name)
    with np.errstate(over="ignore"):
        expected = ov.dequantize(q).astype(dtype)
    assert dtype != "float16" or np.isinf(expected).any()
    np.testing.assert_array_equal(bits(ov.dequantize(q, dtype)), bits(expected))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types_give_the_codes_of_their_values(name, dtype, ml_dtypes):
    x = np.random.default_rng(13).normal(size=(9, 160)).astype(dtype)
    wide = x.astype(np.float32)
    one, same = ov.quantize(wide.astype(x.dtype), name), ov.quantize(wide, name)
    np.testing.assert_array_equal(bits(one.codes), bits(same.codes))
    np.testing.assert_array_equal(bits(one.scales), bits(same.scales))
    assert one.dtype == x.dtype and same.dtype == np.float32


def test_all_presets_are_here():
    assert {name.partition(":")[0] for name in PRESETS} == set(ov.preset_names())
