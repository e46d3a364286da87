"""docs/numerics/peer-arith.md in numpy, written apart from the libraries and from octavo.

Each takes x [rows, cols] in float32 or bfloat16 and gives scales (float32, or bytes), the tensor's
scale or None, and codes."""

import numpy as np

from quantize_peers.log2 import rounded_log2
from quantize_peers.numbers import (
    BF16,
    BF16_MAX,
    EMAX,
    FLT_MAX,
    FORMATS,
    F,
    clamp,
    decode_e4m3,
    encode,
    from_bits,
    spread,
    tile_amax,
    widen,
)


def torchao_mx(x, name, rule):
    _, mantissa, largest = FORMATS[name]
    x = widen(x)
    amax = tile_amax(x, (1, 32))
    if rule == "rceil":
        scaled = amax / F(largest)
        exponent = np.ceil(rounded_log2(scaled))
        byte = (np.clip(exponent, -127, 127) + 127).astype(np.int64)
        multiplier = np.exp2(127.0 - byte).astype(F)
        multiplier = np.where(byte == 0, F(1), multiplier)
        u = clamp(x * spread(multiplier, x.shape, (1, 32)), -largest, largest)
    else:
        bits = amax.view(np.uint32).astype(np.int64)
        if rule == "even":
            bits = (bits + (1 << (22 - mantissa))) & 0xFF800000
        exponent = (bits >> 23) - 127
        if rule == "ceil":
            exponent += (bits & 0x7FFFFF) > 0
        byte = np.clip(exponent - EMAX[name], -127, 128) + 127
        divisor = np.maximum(from_bits(byte << 23), F(2.0**-126))
        u = x / spread(divisor, x.shape, (1, 32))
    return byte.astype(np.uint8), None, encode(u, name, 0)


def torchao_float8(x, name, tile, rule, arith):
    largest = FORMATS[name][2]
    amax = tile_amax(x, tile)
    if arith == "inference":
        scale = amax / F(largest)
        if x.dtype == BF16:
            scale = scale.astype(BF16).astype(F)
        u = widen(x) / spread(scale, x.shape, tile)
        u = clamp(u, -largest, largest)
    else:
        inv_scale = (largest / np.maximum(amax.astype(np.float64), 1e-12)).astype(F)
        if rule == "rceil":
            inv_scale = np.exp2(np.floor(rounded_log2(inv_scale)).astype(np.float64)).astype(F)
        u = widen(x) * spread(inv_scale, x.shape, tile)
        u = clamp(u, -largest, largest)
        scale = F(1) / inv_scale
    return scale, None, encode(u, name, 0x7F)


def torchao_nvfp4(x, two_level):
    x = widen(x)
    block = tile_amax(x, (1, 16)) / F(6)
    whole = None
    if two_level:
        whole = tile_amax(x, (0, 0))[0, 0] / F(2688)
        block = block / whole
    byte = encode(clamp(block, 2.0**-6, 448), "e4m3fn", 0x7F)
    inv_scale = (F(1) if whole is None else F(1) / whole) / decode_e4m3(byte)
    u = clamp(x * spread(inv_scale, x.shape, (1, 16)), -6, 6)
    return byte, whole, encode(u, "e2m1fn", 0)


def gfloat_mx(x, name):
    x = widen(x).astype(np.float64)
    amax = tile_amax(x, (1, 32)).astype(np.float64)
    exponent = np.where(amax == 0, -127, np.frexp(amax)[1] - 1 - EMAX[name])
    exponent = np.clip(exponent, -127, 127)
    u = x / spread(2.0**exponent, x.shape, (1, 32))
    return (exponent + 127).astype(np.uint8), None, encode(u, name, 0)


def modelopt_fp8(x, tile, path):
    amax = tile_amax(x, tile)
    if path == "export":
        amax = np.where(amax == 0, F(448), np.maximum(amax, F(2.0**-126)))
    scale = amax / F(448)
    if path == "qtensor" and x.dtype == BF16:
        scale = scale.astype(BF16).astype(F)
    u = widen(x) / spread(scale, x.shape, tile)
    if x.dtype == BF16 and (path == "qtensor" or tile == (0, 0)):
        u = u.astype(BF16)
    return scale, None, encode(u, "e4m3fn", 0x7F)


def modelopt_mxfp8(x):
    x = widen(x)
    scaled = tile_amax(x, (1, 32)) / F(448)
    exponent = np.clip(np.ceil(np.where(scaled > 0, rounded_log2(scaled), F(-127))), -127, 127)
    u = x * spread(np.exp2(-exponent.astype(np.float64)).astype(F), x.shape, (1, 32))
    return (exponent + 127).astype(np.uint8), None, encode(clamp(u, -448, 448), "e4m3fn", 0x7F)


def modelopt_mxfp4(x):
    low = x.dtype == BF16
    x = widen(x)
    scaled = tile_amax(x, (1, 32)) / F(6)
    exponent = np.ceil(np.maximum(rounded_log2(scaled), F(-127)))
    u = x / spread(np.exp2(exponent.astype(np.float64)).astype(F), x.shape, (1, 32))
    assert not low or np.array_equal(u, u.astype(BF16).astype(F))
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5])
    code = np.sum(np.abs(u)[..., None] > middles, axis=-1) + 8 * (u <= 0)
    return (exponent + 127).astype(np.uint8), None, code.astype(np.uint8)


def modelopt_nvfp4(x):
    x = widen(x)
    whole = tile_amax(x, (0, 0))[0, 0] / F(2688)
    block = tile_amax(x, (1, 16)) / (F(6) * whole)
    block = clamp(np.where(block == 0, F(1), block), 2.0**-9, 448)
    byte = encode(block, "e4m3fn", 0x7F)
    u = x / spread(decode_e4m3(byte) * whole, x.shape, (1, 16))
    code = encode(u, "e2m1fn", 7)
    code = np.where((u == 0) & np.signbit(u), 0, code).astype(np.uint8)
    return byte, whole, code


def te_inv_scale(amax, largest, power_of_two, for_inf):
    """Transformer Engine's `scale`; amax has no NaN."""
    quotient = F(largest) / amax
    inv_scale = np.where(np.isinf(quotient), for_inf, quotient)
    if power_of_two:
        inv_scale = from_bits(inv_scale.view(np.uint32) & np.uint32(0xFF800000))
    return np.where((amax == 0) | np.isinf(amax), F(1), inv_scale)


def te_float8(x, name, tile, rule):
    for_inf = BF16_MAX if tile != (0, 0) and x.dtype == BF16 else FLT_MAX
    amax = tile_amax(x, tile, drop_nan=True)
    inv_scale = te_inv_scale(amax, FORMATS[name][2], rule == "rceil", for_inf)
    u = widen(x) * spread(inv_scale, x.shape, tile)
    return F(1) / inv_scale, None, encode(u, name, 0x7F)


def te_mxfp8(x, name):
    v = tile_amax(x, (1, 32), drop_nan=True) * (F(1) / F(FORMATS[name][2]))
    bits = v.view(np.uint32).astype(np.int64)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 254) & ~((exponent == 0) & (mantissa <= 0x400000))
    byte = np.where(np.isinf(v), 254, exponent + up)
    multiplier = np.where(byte == 254, F(2.0**-127), from_bits((254 - byte) << 23))
    u = widen(x) * spread(multiplier, x.shape, (1, 32))
    return byte.astype(np.uint8), None, encode(u, name, 0x7F)


def te_nvfp4(x):
    amax = tile_amax(x, (0, 0), drop_nan=True)[0, 0]
    inv_scale = np.minimum(F(2688) / amax, FLT_MAX)
    if amax == 0 or inv_scale == 0:
        inv_scale = F(1)
    whole = F(1) / inv_scale
    block = tile_amax(x, (1, 16), drop_nan=True) * (inv_scale * (F(1) / F(6)))
    byte = encode(np.minimum(block, FLT_MAX), "e4m3fn", 0x7F)
    multiplier = np.minimum(F(1) / (decode_e4m3(byte) * whole), FLT_MAX)
    u = widen(x) * spread(multiplier, x.shape, (1, 16))
    return byte, whole, encode(u, "e2m1fn", 7)


def te_delayed(history, inv_scale, amax, margin, algo, largest):
    """One update by the fused kernel: what history and `scale` become."""
    history = np.array(history, F)
    history[0] = amax
    chosen = F(0)
    if history[0] != 0:  # true of NaN
        rolled = np.roll(history, -1)
        chosen = np.fmax.reduce(rolled, initial=F(0))
        history = rolled.copy()
        history[0] = 0
    if algo == "most_recent":
        chosen = F(amax)
    if np.isfinite(chosen) and chosen > 0:
        inv_scale = F(largest * 2.0**-margin) / chosen
    if np.isinf(inv_scale):
        inv_scale = FLT_MAX
    return history, F(inv_scale)
