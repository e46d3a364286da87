"""Formats, bits, codes and tiles in numpy, for formulas and peers alike. No code of octavo's."""

import ml_dtypes
import numpy as np

F = np.float32
FLT_MAX = np.finfo(F).max
BF16_MAX = F(float.fromhex("0x1.fep127"))
BF16 = ml_dtypes.bfloat16

# name: exponent bits, mantissa bits, largest value
FORMATS = {
    "e4m3fn": (4, 3, 448.0),
    "e5m2": (5, 2, 57344.0),
    "e3m2fn": (3, 2, 28.0),
    "e2m3fn": (2, 3, 7.5),
    "e2m1fn": (2, 1, 6.0),
    "mxint8": (0, 6, 127 / 64),
}
EMAX = {"e4m3fn": 8, "e5m2": 15, "e3m2fn": 4, "e2m3fn": 2, "e2m1fn": 2, "mxint8": 0}


def bits_of(values):
    values = np.ascontiguousarray(values)
    return values.view(np.uint16 if values.dtype == BF16 else np.uint32)


def from_bits(bits):
    return np.asarray(bits, dtype=np.uint32).view(F)


def step(value, ulps):
    """The float32 that many places away from a positive one."""
    return from_bits(np.array(F(value)).view(np.uint32) + np.int64(ulps))


def widen(x):
    return np.asarray(x).astype(F)


def clamp(x, low, high):
    return np.minimum(np.maximum(x, F(low)), F(high))  # NaN stays


# Codes: nearest even, saturating, over the table of the format's values.


def magnitudes(name):
    exponent, mantissa, largest = FORMATS[name]
    bias = 2 ** (exponent - 1) - 1
    codes = np.arange(1 << (exponent + mantissa))
    field, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    normal = (1 + fraction / 2.0**mantissa) * 2.0 ** (field - bias)
    values = np.where(field == 0, fraction * 2.0 ** (1 - bias - mantissa), normal)
    return values[values <= largest]


def encode(u, name, nan):
    """What the table says; NaN becomes `nan`."""
    u = np.asarray(u, dtype=np.float64)
    if name == "mxint8":
        return np.clip(np.rint(u * 64), -128, 127).astype(np.int8).view(np.uint8)
    values = magnitudes(name)
    middles = (values[1:] + values[:-1]) / 2
    size = np.abs(np.where(np.isnan(u), 0, u))
    code = np.searchsorted(middles, size)
    tie = (code < middles.size) & (size == middles[np.minimum(code, middles.size - 1)])
    code = code + (tie & (code % 2 == 1))
    sign = np.signbit(u).astype(np.int64) << (FORMATS[name][0] + FORMATS[name][1])
    return np.where(np.isnan(u), nan, code | sign).astype(np.uint8)


def decode_e4m3(codes):
    return np.asarray(codes, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(F)


# Tiles.


def tile_sides(shape, tile):
    return tuple(side or whole for side, whole in zip(tile, shape, strict=True))


def tile_amax(x, tile, drop_nan=False):
    """The largest magnitude of each tile, in the type of x."""
    sides = tile_sides(x.shape, tile)
    grid = tuple(-(-whole // side) for side, whole in zip(sides, x.shape, strict=True))
    padded = np.zeros((grid[0] * sides[0], grid[1] * sides[1]), F)
    padded[: x.shape[0], : x.shape[1]] = np.abs(widen(x))
    blocks = padded.reshape(grid[0], sides[0], grid[1], sides[1])
    largest = (np.fmax if drop_nan else np.maximum).reduce(blocks, axis=(1, 3))
    return np.where(np.isnan(largest), 0, largest) if drop_nan else largest


def spread(grid, shape, tile):
    """The grid, one entry for each element."""
    sides = tile_sides(shape, tile)
    out = np.repeat(np.repeat(grid, sides[0], axis=0), sides[1], axis=1)
    return out[: shape[0], : shape[1]]
