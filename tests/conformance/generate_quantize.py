#!/usr/bin/env python3
"""Writes quantize_*.tsv: the scales and codes that other libraries give for the same inputs.

Two things stand side by side. A *peer* calls a library's own functions (torchao 0.18.0, gfloat
0.5.2, ModelOpt 0.47.0). A *formula* is docs/numerics/peer-arith.md in numpy, written apart from the
libraries and from octavo. Every row is tried on both, and the count of differences is printed: zero
says that the page is right. Transformer Engine needs a GPU, so its rows come from the formulas
alone; with --te-source the pure PyTorch references in its source are tried too (finite inputs).

A row: name, preset, element format, tile, scale format, rule, input type, rows, cols, input bits,
scale bits, tensor scale bits or "-", codes. Everything is row-major hex; codes are not packed; a
tile side of 0 is the whole side. A scale is what a code is multiplied by. Names that begin with
tiny- and huge- are where peers differ most.

    pip install torch==2.15.0 torchao==0.18.0 gfloat==0.5.2 nvidia-modelopt==0.47.0 \
        ml_dtypes==0.6.0 requests huggingface_hub
    python tests/conformance/generate_quantize.py [--only te,gfloat] [--te-source DIR]
"""

import argparse
import importlib.util
import pathlib
import sys
import types
import unittest.mock
import warnings

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
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


# Formulas. Each takes x [rows, cols] in float32 or bfloat16 and gives scales (float32, or bytes),
# the tensor's scale or None, and codes.


def rounded_log2(v):
    with np.errstate(divide="ignore"):
        return np.log2(v.astype(np.float64)).astype(F)


def clamp(x, low, high):
    return np.minimum(np.maximum(x, F(low)), F(high))  # NaN stays


def ceil_log2_by_bits(v):
    """ceil of log2(v) rounded to float32, for normal v, in integers (see peer-arith.md)."""
    bits = v.view(np.uint32).astype(np.int64)
    k, mantissa = (bits >> 23) - 127, bits & 0x7FFFFF
    slack = {j: s for j, s in enumerate((0, 0, 1, 2, 5, 11, 22))}
    size = np.abs(k)
    j = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), 0)
    j = j - ((k < 0) & (size == 1 << j))
    allowed = np.array([slack.get(i, 0) for i in range(-1, 7)])[j + 1]
    return k + (mantissa > allowed)


def floor_log2_by_bits(v):
    """floor of log2(v) rounded to float32, for normal v, in integers."""
    bits = v.view(np.uint32).astype(np.int64)
    k, below = (bits >> 23) - 126, 0x800000 - (bits & 0x7FFFFF)  # places below 2^k
    size = np.abs(k)
    j = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), 0)
    j = j - ((k > 0) & (size == 1 << j))
    allowed = np.array([0, 0, 1, 2, 5, 11, 22, 44])[j + 1]
    return k - ((below > allowed) | (k == 0))


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
        inverse = (largest / np.maximum(amax.astype(np.float64), 1e-12)).astype(F)
        if rule == "rceil":
            inverse = np.exp2(np.floor(rounded_log2(inverse)).astype(np.float64)).astype(F)
        u = widen(x) * spread(inverse, x.shape, tile)
        u = clamp(u, -largest, largest)
        scale = F(1) / inverse
    return scale, None, encode(u, name, 0x7F)


def torchao_nvfp4(x, two_level):
    x = widen(x)
    block = tile_amax(x, (1, 16)) / F(6)
    whole = None
    if two_level:
        whole = tile_amax(x, (0, 0))[0, 0] / F(2688)
        block = block / whole
    byte = encode(clamp(block, 2.0**-6, 448), "e4m3fn", 0x7F)
    inverse = (F(1) if whole is None else F(1) / whole) / decode_e4m3(byte)
    u = clamp(x * spread(inverse, x.shape, (1, 16)), -6, 6)
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
    if path == "export" or x.dtype == F:
        u = widen(x) / spread(scale, x.shape, tile)
    else:
        scale = scale.astype(BF16).astype(F)
        u = (widen(x) / spread(scale, x.shape, tile)).astype(BF16)
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


def te_inverse(amax, largest, power_of_two, for_inf):
    """Transformer Engine's `scale`; amax has no NaN."""
    quotient = F(largest) / amax
    inverse = np.where(np.isinf(quotient), for_inf, quotient)
    if power_of_two:
        inverse = from_bits(inverse.view(np.uint32) & np.uint32(0xFF800000))
    return np.where((amax == 0) | np.isinf(amax), F(1), inverse)


def te_float8(x, name, tile, rule):
    for_inf = BF16_MAX if tile != (0, 0) and x.dtype == BF16 else FLT_MAX
    amax = tile_amax(x, tile, drop_nan=True)
    inverse = te_inverse(amax, FORMATS[name][2], rule == "rceil", for_inf)
    u = widen(x) * spread(inverse, x.shape, tile)
    return F(1) / inverse, None, encode(u, name, 0x7F)


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
    inverse = np.minimum(F(2688) / amax, FLT_MAX)
    if amax == 0 or inverse == 0:
        inverse = F(1)
    whole = F(1) / inverse
    block = tile_amax(x, (1, 16), drop_nan=True) * (inverse * (F(1) / F(6)))
    byte = encode(np.minimum(block, FLT_MAX), "e4m3fn", 0x7F)
    multiplier = np.minimum(F(1) / (decode_e4m3(byte) * whole), FLT_MAX)
    u = widen(x) * spread(multiplier, x.shape, (1, 16))
    return byte, whole, encode(u, "e2m1fn", 7)


def te_delayed(history, inverse, amax, margin, algo, largest):
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
        inverse = F(largest * 2.0**-margin) / chosen
    if np.isinf(inverse):
        inverse = FLT_MAX
    return history, F(inverse)


# Inputs: one tile to a row.


def cases(name, cols, dtype, seed, scope="all"):
    """[(case name, x)]: the amax of a row is what the case's name says."""
    exponent_bits, mantissa, largest = FORMATS[name]
    rng = np.random.default_rng(seed)
    unit = 16 if dtype == BF16 else 0  # low bits that bfloat16 has not
    out = []

    def near(value, ulps):
        return step(F(value), ulps << unit)

    def with_amax(amax, rows=1):
        body = rng.standard_normal((rows, cols)).astype(F)
        body = body / np.abs(body).max(axis=1, keepdims=True) * F(0.99)
        # Apart from the product: an amax near FLT_MAX must not overflow.
        body = (body.astype(np.float64) * float(amax)).astype(F)
        body[:, rng.integers(cols)] = F(amax) * rng.choice([F(-1), F(1)])
        return body

    def stack(amaxes):
        return np.concatenate([with_amax(amax) for amax in amaxes])

    out.append(("normal", rng.standard_normal((2, cols)).astype(F)))
    binades = np.exp2(rng.uniform(-12, 12, (2, cols)) + np.array([[-30], [20]]))
    out.append(("binades", (binades * rng.choice([-1, 1], (2, cols))).astype(F)))
    outlier = (rng.standard_normal((1, cols)) * 0.01).astype(F)
    outlier[0, 3] = -117.3
    out.append(("outlier", outlier))
    zero = np.zeros((3, cols), F)
    zero[1, ::3] = F(-0.0)
    zero[2, ::2] = rng.standard_normal(cols)[::2].astype(F)
    out.append(("zero", zero))
    for power in (-9, 3):
        at = largest * 2.0**power
        out.append((f"max{power:+d}", stack([near(at, -1), F(at), near(at, 1)])))
    out.append(("power", stack([near(2.0**5, -1), F(2.0**5), near(2.0**5, 1)])))
    half = (2 - 2.0 ** -(mantissa + 1)) * 2.0**-4
    out.append(("half", stack([near(half, -1), F(half), near(half, 1)])))
    # Quotients a few places above a power of two, where a float32 log2 cannot see the difference.
    if dtype == F:
        edge = [
            step(largest * 2.0**20, 3),
            step(largest * 2.0**20, 9),
            step(largest * 2.0**-70, 30),
        ]
        edge += [step(largest * 2.0**-70, 60), step(2.0**40, -2)]
        out.append(("log2", stack(edge)))
    values = np.concatenate([[0], magnitudes(name)]) if exponent_bits else np.arange(128) / 64
    middles = (values[1:] + values[:-1]) / 2
    for power in (0, 6):
        ties = rng.choice(middles, (1, cols)).astype(F)
        ties[0, 1::3] = [step(t, 1 << unit) for t in ties[0, 1::3]]
        ties[0, 2::3] = [step(t, -1 << unit) if t else t for t in ties[0, 2::3]]
        ties *= rng.choice([F(-1), F(1)], (1, cols))
        ties[0, 0] = largest
        out.append((f"ties{power:+d}", ties * F(2.0**power)))
    tiny = [F(2.0**-126), near(2.0**-126 * largest, 1), F(2.0**-120 * 1.3)]
    out.append(("tiny-normal", stack(tiny)))
    out.append(("tiny-small", stack([F(2.0**-100), F(1e-12 * 0.5), F(1e-30)])))
    subnormal = [from_bits(0x7F0000), from_bits(0x400000), from_bits(0x10000)]
    out.append(("tiny-subnormal", stack(subnormal)))
    top = BF16_MAX if dtype == BF16 else FLT_MAX
    out.append(("huge", stack([top, F(2.0**127), F(2.0**127 * 1.75)])))
    # Elements whose quotient is so near a tie that the order of operations decides.
    amaxes = (rng.uniform(1, 2, (5, 1)) * np.exp2(rng.integers(-9, 9, (5, 1)))).astype(dtype)
    amaxes = amaxes.astype(F)
    ties = rng.choice(middles[middles > 0], (5, cols))
    by_scale, by_inverse = amaxes / F(largest), F(largest) / amaxes
    ties = np.where(np.arange(cols) % 2, ties * by_scale, ties / by_inverse)
    ties = ties.astype(dtype).astype(F)
    ties = from_bits(ties.view(np.uint32) + (rng.integers(-1, 2, (5, cols)) << unit))
    ties *= rng.choice([F(-1), F(1)], (5, cols))
    ties[:, :1] = amaxes
    out.append(("close", ties))
    if scope == "few":
        keep = ("close", "normal", "zero", "max", "ties", "tiny-normal", "huge")
        out = [case for case in out if case[0].startswith(keep)]
    return [(case, x.astype(dtype)) for case, x in out]


def non_finite_cases(cols, dtype, seed):
    rng = np.random.default_rng(seed)
    inf, nan = F(np.inf), F(np.nan)
    out = []
    for case, at in (("inf", {1: -inf}), ("nan", {2: nan}), ("inf-nan", {0: inf, 5: nan})):
        x = (rng.standard_normal((1, cols)) * 8).astype(F)
        for column, value in at.items():
            x[0, column] = value
        out.append((case, x))
    out.append(("nan-all", np.full((1, cols), nan)))
    return [(case, x.astype(dtype)) for case, x in out]


def rows_apart(found):
    return [(f"{case}.{i}", x[i : i + 1]) for case, x in found for i in range(len(x))]


def ragged(dtype, seed):
    """Two by three tiles of 128 x 128, and few elements: thin matrices."""
    rng = np.random.default_rng(seed)
    wide = (rng.standard_normal((3, 260)) * np.exp2(rng.uniform(-8, 8, (1, 260)))).astype(dtype)
    tall = (rng.standard_normal((130, 4)) * np.exp2(rng.uniform(-8, 8, (130, 1)))).astype(dtype)
    return [("ragged-wide", wide), ("ragged-tall", tall)]


# Rows and files.


class File:
    def __init__(self, name, comments):
        self.path = HERE / f"{name}.tsv"
        self.lines = [f"# {line}" for line in comments]
        self.lines.append(
            "# name\tpreset\tformat\ttile\tscale format\trule\tinput\trows\tcols\tinput bits"
            "\tscale bits\ttensor scale\tcodes"
        )
        self.rows = self.elements = self.tried = self.different = 0

    def add(self, case, preset, name, tile, scale_format, rule, x, formula, peer=None):
        with np.errstate(all="ignore"):
            want = formula(x)
        got = peer(x) if peer else want
        self.tried += peer is not None
        shown = [self.shown(*each, x) for each in (got, want)]
        if shown[0] != shown[1]:
            self.different += 1
            print("differs:", self.path.name, case, preset, name, rule, x.dtype, tile)
            for a, b in zip(*shown, strict=True):
                if a != b:
                    print("   peer   ", a[:160], "\n   formula", b[:160])
        width = 4 if x.dtype == BF16 else 8
        inputs = "".join(f"{v:0{width}x}" for v in bits_of(x).ravel().tolist())
        kind = "bf16" if x.dtype == BF16 else "f32"
        head = [case, preset, name, f"{tile[0]}x{tile[1]}", scale_format, rule, kind]
        head += [str(x.shape[0]), str(x.shape[1]), inputs]
        self.lines.append("\t".join(head + list(shown[0])))
        self.rows += 1
        self.elements += x.size

    def shown(self, scales, whole, codes, x):
        assert codes.shape == x.shape, (codes.shape, x.shape)
        scales = np.asarray(scales)
        if scales.dtype == F:
            scale = "".join(f"{v:08x}" for v in scales.view(np.uint32).ravel().tolist())
        else:
            scale = scales.astype(np.uint8).tobytes().hex()
        tensor = "-" if whole is None else f"{F(whole).view(np.uint32):08x}"
        return scale, tensor, np.ascontiguousarray(codes, dtype=np.uint8).tobytes().hex()

    def write(self):
        text = "\n".join(self.lines) + "\n"
        self.path.write_text(text, encoding="ascii")
        size = f"{len(text) / 1000:.0f} kB"
        print(
            f"{self.path.name}: {self.rows} rows, {self.elements} elements, {size};",
            f"{self.tried} rows tried on the peer, {self.different} differ",
            flush=True,
        )


# Peers.


def load_torch():
    import torch

    torch.set_num_threads(1)
    return torch


def to_torch(torch, x):
    if x.dtype == BF16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def unpacked(packed):
    packed = packed.numpy()
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def torchao_files():
    torch = load_torch()
    from torchao.float8.config import ScalingGranularity
    from torchao.float8.float8_scaling_utils import hp_tensor_to_float8_dynamic
    from torchao.float8.float8_training_tensor import LinearMMConfig
    from torchao.prototype.blockwise_fp8_training import kernels
    from torchao.prototype.mx_formats import mx_tensor, nvfp4_tensor
    from torchao.quantization import PerRow, PerTensor
    from torchao.quantization.granularity import PerBlock
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

    float8 = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    def bytes_of(t):
        return t.contiguous().view(torch.uint8).numpy()

    say = ["torchao 0.18.0 to_mx, eager; scales are to_mx's own bytes."]
    wide, narrow = File("quantize_torchao_mx", say), File("quantize_torchao_mxfp6", say)
    kinds = float8 | {
        "e2m3fn": mx_tensor.DTYPE_FP6_E2M3,
        "e3m2fn": mx_tensor.DTYPE_FP6_E3M2,
        "e2m1fn": torch.float4_e2m1fn_x2,
    }
    presets = {"e4m3fn": "mxfp8", "e5m2": "mxfp8", "e2m1fn": "mxfp4"}
    for name, kind in kinds.items():
        for rule in ("floor", "rceil", "ceil", "even"):

            def peer(x, name=name, kind=kind, rule=rule):
                mode = mx_tensor.ScaleCalculationMode(rule)
                scale, data = mx_tensor.to_mx(to_torch(torch, x), kind, 32, mode)
                codes = unpacked(data) if name == "e2m1fn" else bytes_of(data)
                return bytes_of(scale), None, codes

            def formula(x, name=name, rule=rule):
                return torchao_mx(x, name, rule)

            found = cases(name, 32, F, 1)
            found += [(c, x) for c, x in cases(name, 32, BF16, 2, "few")]
            for case, x in found:
                preset = presets.get(name, "mxfp6")
                out = narrow if preset == "mxfp6" else wide
                out.add(case, preset, name, (1, 32), "e8m0", rule, x, formula, peer)
    wide.write()
    narrow.write()

    training = File(
        "quantize_torchao_training",
        [
            "torchao 0.18.0 float8 training, hp_tensor_to_float8_dynamic: per tensor, per row.",
            "Scales are reciprocals: torchao keeps max / amax, RN(1 / kept) is written.",
        ],
    )
    inference = File(
        "quantize_torchao_inference",
        [
            "torchao 0.18.0 Float8Tensor.from_hp, torch path: per tensor, per row, blocks.",
            "Zero tiles have scale 0 and NaN codes.",
        ],
    )
    for name, kind in float8.items():
        for tile, dtype in (((0, 0), F), ((0, 0), BF16), ((1, 0), F), ((1, 0), BF16)):
            found = cases(name, 24, dtype, 3)
            found = rows_apart(found) if tile == (0, 0) else found
            preset = "fp8" if tile == (0, 0) else "fp8-channel"
            for rule in ("f32", "rceil"):

                def peer(x, kind=kind, tile=tile, rule=rule):
                    per_row = tile == (1, 0)
                    how = ScalingGranularity.AXISWISE if per_row else ScalingGranularity.TENSORWISE
                    got = hp_tensor_to_float8_dynamic(
                        to_torch(torch, x),
                        kind,
                        LinearMMConfig(),
                        scaling_granularity=how,
                        axiswise_dim=-1 if per_row else None,
                        round_scales_to_power_of_2=rule == "rceil",
                    )
                    scale = F(1) / got._scale.numpy().reshape(-1, 1)
                    return scale, None, bytes_of(got._data)

                def formula(x, name=name, tile=tile, rule=rule):
                    return torchao_float8(x, name, tile, rule, "training")

                for case, x in found:
                    training.add(case, preset, name, tile, "f32", rule, x, formula, peer)

            def peer(x, kind=kind, tile=tile):
                how = PerRow() if tile == (1, 0) else PerTensor()
                got = Float8Tensor.from_hp(to_torch(torch, x), float8_dtype=kind, granularity=how)
                return got.scale.numpy().reshape(-1, 1), None, bytes_of(got.qdata)

            def formula(x, name=name, tile=tile):
                return torchao_float8(x, name, tile, "f32", "inference")

            for case, x in found:
                inference.add(case, preset, name, tile, "f32", "f32", x, formula, peer)
    for tile in ((1, 128), (16, 16)):
        for dtype in (F, BF16):
            found = cases("e4m3fn", tile[1], dtype, 4, "few")
            if tile[0] == 1 and dtype == F:
                found = [case for case in found if case[0] in ("normal", "max+3", "huge")]
            if tile[0] > 1:
                joined = np.concatenate([x for _, x in found])
                joined = np.tile(joined, (2, 2))[: 2 * tile[0], : 2 * tile[1]]
                found = [("mixed", np.ascontiguousarray(joined))]
                square = cases("e4m3fn", 16, dtype, 5)[0][1]
                found += [("normal", np.ascontiguousarray(np.tile(square, (8, 1))))]

            def peer(x, tile=tile):
                quantize = kernels.torch_blockwise_scale_weight_quant
                if tile[0] == 1:
                    quantize = kernels.torch_blockwise_scale_act_quant_lhs
                codes, scale = quantize(to_torch(torch, x), tile[1])
                return np.ascontiguousarray(scale.numpy()), None, bytes_of(codes)

            def formula(x, tile=tile):
                return torchao_float8(x, "e4m3fn", tile, "f32", "training")

            def peer_inference(x, tile=tile):
                got = Float8Tensor.from_hp(to_torch(torch, x), granularity=PerBlock(list(tile)))
                return got.scale.numpy(), None, bytes_of(got.qdata)

            def formula_inference(x, tile=tile):
                return torchao_float8(x, "e4m3fn", tile, "f32", "inference")

            preset = "fp8-1x128" if tile[0] == 1 else "fp8-block"
            head = (preset, "e4m3fn", tile, "f32", "f32")
            for case, x in found:
                training.add(case, *head, x, formula, peer)
                inference.add(case, *head, x, formula_inference, peer_inference)
    training.lines.insert(
        2,
        "# 1x128 and square blocks (here 16x16) are the torch functions of"
        " prototype/blockwise_fp8_training.",
    )
    training.write()
    inference.write()

    out = File(
        "quantize_torchao_nvfp4",
        [
            "torchao 0.18.0 nvfp4_quantize: one level (tensor scale -) and two.",
            "The tensor scale is per_tensor_amax_to_scale of the tensor's amax. Left out: tensors",
            "for which the two-level path gives NaN (1 / tensor scale is Inf, as for all zero).",
        ],
    )
    for two_level in (False, True):

        def peer(x, two_level=two_level):
            data = to_torch(torch, x)
            whole = None
            if two_level:
                whole = nvfp4_tensor.per_tensor_amax_to_scale(data.abs().max())
            scale, codes = nvfp4_tensor.nvfp4_quantize(data, 16, whole)
            scale = bytes_of(scale).reshape(x.shape[0], -1)
            return scale, None if whole is None else F(whole.item()), unpacked(codes)

        def formula(x, two_level=two_level):
            return torchao_nvfp4(x, two_level)

        for case, x in nvfp4_cases():
            if two_level and not np.isfinite(F(1) / (widen(np.abs(x)).max() / F(2688))):
                continue
            out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, formula, peer)
    out.write()


def nvfp4_cases():
    found = []
    for dtype in (F, BF16):
        each = cases("e2m1fn", 16, dtype, 6)
        # Whole cases as tensors, then some with blocks of very unlike size in one tensor.
        found += [(case, x) for case, x in each]
        joined = np.concatenate([x for case, x in each if not case.startswith(("tiny", "huge"))])
        found.append(("mixed", joined))
        pick = np.concatenate([x for case, x in each if case in ("normal", "outlier", "zero")])
        found.append(("mixed-small", np.concatenate([pick, (widen(pick) * F(1e-4)).astype(dtype)])))
        found.append(("wide", cases("e2m1fn", 80, dtype, 7)[0][1]))
        found += [(f"close-{i}", nvfp4_close(dtype, 20 + i)) for i in range(4)]
        found += [
            (f"{case}.{i}", x[i : i + 1])
            for case, x in each
            for i in range(len(x))
            if case.startswith(("max", "ties", "zero"))
        ]
    return found


def nvfp4_close(dtype, seed):
    """Block scales and elements so near a tie that the order of operations decides."""
    rng = np.random.default_rng(seed)
    unit = 16 if dtype == BF16 else 0

    def about(values):
        values = values.astype(dtype).astype(F)
        return from_bits(values.view(np.uint32) + (rng.integers(-2, 3, values.shape) << unit))

    whole = float(rng.uniform(1, 2) * np.exp2(rng.integers(-9, 9))) / 2688
    picked = rng.integers(16, 126, (8, 1))
    scales, above = magnitudes("e4m3fn")[picked], magnitudes("e4m3fn")[picked + 1]
    blocks = about((scales + above) / 2 * 6 * whole)
    values = magnitudes("e2m1fn")
    middles = (values[1:] + values[:-1]) / 2
    x = about(rng.choice(middles, (8, 16)) * scales * whole)
    x = np.minimum(x, blocks) * rng.choice([F(-1), F(1)], (8, 16))
    x[:, :1] = blocks
    x[0, 0] = F(dtype(whole * 2688))
    return x.astype(dtype)


def gfloat_file():
    from gfloat import block, formats

    infos = {
        "e4m3fn": formats.format_info_mxfp8_e4m3,
        "e5m2": formats.format_info_mxfp8_e5m2,
        "e2m3fn": formats.format_info_mxfp6_e2m3,
        "e3m2fn": formats.format_info_mxfp6_e3m2,
        "e2m1fn": formats.format_info_mxfp4_e2m1,
        "mxint8": formats.format_info_mxint8,
    }
    presets = {"e4m3fn": "mxfp8", "e5m2": "mxfp8", "e2m1fn": "mxfp4", "mxint8": "mxint8"}
    out = File(
        "quantize_gfloat",
        [
            "gfloat 0.5.2 compute_scale_amax and encode_block (OCP MX 6.3), in float64.",
        ],
    )
    for name, info in infos.items():

        def peer(x, info=info):
            scales, codes = [], []
            for part in widen(x).astype(np.float64).reshape(-1, 32):
                scale = block.compute_scale_amax(info.etype.emax, part)
                first, *rest = block.encode_block(info, scale, part / scale)
                scales.append(first)
                codes.append(rest)
            shape = x.shape[0], -1
            return np.array(scales, np.uint8).reshape(shape), None, np.reshape(codes, x.shape)

        def formula(x, name=name):
            return gfloat_mx(x, name)

        for dtype, scope in ((F, "all"), (BF16, "few")):
            for case, x in cases(name, 32, dtype, 8, scope):
                preset = presets.get(name, "mxfp6")
                out.add(case, preset, name, (1, 32), "e8m0", "floor", x, formula, peer)
    out.write()


def modelopt_files():
    torch = load_torch()
    from modelopt.torch.export import quant_utils
    from modelopt.torch.quantization.config import QuantizerAttributeConfig
    from modelopt.torch.quantization.nn import TensorQuantizer
    from modelopt.torch.quantization.qtensor import FP8QTensor, MXFP8QTensor, NVFP4QTensor
    from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor

    def bytes_of(t):
        return t.contiguous().view(torch.uint8).numpy()

    tiles = {(0, 0): "fp8", (1, 0): "fp8-channel", (128, 128): "fp8-block"}
    for path, say in (
        (
            "qtensor",
            [
                "ModelOpt 0.47.0 FP8QTensor.quantize, MXFP8QTensor, MXFP4QTensor, NVFP4QTensor;",
                "FP8 scales of bf16 inputs are bf16 there, shown widened to f32. Zero tiles: NaN.",
            ],
        ),
        (
            "export",
            [
                "ModelOpt 0.47.0 export of FP8 weights: get_scaling_factor of a calibrated",
                "quantizer, then to_quantized_weight.",
            ],
        ),
    ):
        out = File(f"quantize_modelopt_{path}", say)
        for tile, preset in tiles.items():

            def peer(x, tile=tile, path=path):
                data = to_torch(torch, x)
                grid = tile_amax(x, tile).shape
                if path == "qtensor":
                    how = {"block_sizes": {-1: 128, -2: 128}} if tile[0] == 128 else {}
                    if tile == (1, 0):
                        how = {"axis": 0}
                    got, scale = FP8QTensor.quantize(data, **how)
                    codes = got._quantized_data
                else:
                    amax = torch.from_numpy(tile_amax(x, tile)).to(data.dtype)
                    quantizer = TensorQuantizer(QuantizerAttributeConfig(num_bits=(4, 3)))
                    quantizer.amax = amax.reshape(()) if tile == (0, 0) else amax.reshape(-1)
                    scale = quant_utils.get_scaling_factor(quantizer)
                    kind = {
                        "fp8": quant_utils.QUANTIZATION_FP8,
                        "fp8-channel": quant_utils.QUANTIZATION_FP8_PC_PT,
                        "fp8-block": quant_utils.QUANTIZATION_FP8_PB_WO,
                    }[tiles[tile]]
                    if tile != (0, 0):
                        scale = scale.reshape(grid if tile[0] == 128 else -1)
                    codes = quant_utils.to_quantized_weight(data, scale, kind, block_size=128)
                return scale.float().numpy().reshape(grid), None, bytes_of(codes)

            def formula(x, tile=tile, path=path):
                return modelopt_fp8(x, tile, path)

            for dtype in (F, BF16):
                found = cases("e4m3fn", 24, dtype, 9)
                if tile == (0, 0):
                    found = rows_apart(found)
                elif tile[0] == 128:
                    found = [
                        case
                        for case in rows_apart(found)
                        if case[0][:4] in ("norm", "tiny", "huge", "max+", "ties", "zero")
                    ]
                    found += ragged(dtype, 10)
                for case, x in found:
                    out.add(case, preset, "e4m3fn", tile, "f32", "f32", x, formula, peer)
        if path == "export":
            out.write()
            continue

        def peer_mxfp8(x):
            got, scale = MXFP8QTensor.quantize(to_torch(torch, x))
            return scale.numpy(), None, bytes_of(got._quantized_data)

        def peer_mxfp4(x):
            got, scale = MXFP4QTensor.quantize(to_torch(torch, x), 32)
            codes = unpacked(got._quantized_data)
            return scale.numpy().reshape(x.shape[0], -1), None, codes

        def peer_nvfp4(x):
            got, scale, whole = NVFP4QTensor.quantize(to_torch(torch, x), 16)
            codes = unpacked(got._quantized_data)
            return bytes_of(scale), F(whole.item()), codes

        for dtype in (F, BF16):
            for case, x in cases("e4m3fn", 32, dtype, 11):
                out.add(
                    case, "mxfp8", "e4m3fn", (1, 32), "e8m0", "rceil", x, modelopt_mxfp8, peer_mxfp8
                )
            for case, x in cases("e2m1fn", 32, dtype, 12):
                out.add(
                    case, "mxfp4", "e2m1fn", (1, 32), "e8m0", "rceil", x, modelopt_mxfp4, peer_mxfp4
                )
        for case, x in nvfp4_cases():
            out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, modelopt_nvfp4, peer_nvfp4)
        out.write()


def te_files(references):
    peers = te_reference_peers(references) if references else {}
    out = File(
        "quantize_te",
        [
            "Transformer Engine's formulas (2.x, August 2026), from its source; no epsilon.",
            "Scales are its scale_inv: current scaling, 1x128 and 128x128 blocks.",
        ],
    )
    for name in ("e4m3fn", "e5m2"):
        for dtype in (F, BF16):
            for rule in ("f32", "rceil"):
                for tile, preset in (
                    ((0, 0), "fp8"),
                    ((1, 128), "fp8-1x128"),
                    ((128, 128), "fp8-block"),
                ):

                    def formula(x, name=name, tile=tile, rule=rule):
                        return te_float8(x, name, tile, rule)

                    found = cases(name, 24, dtype, 13) + non_finite_cases(24, dtype, 14)
                    if tile != (1, 128):
                        found = rows_apart(found)
                    if tile[0] == 128:
                        found = [
                            case
                            for case in found
                            if case[0].startswith(("tiny", "huge", "inf", "nan", "max+3", "zero"))
                        ]
                    if tile[1] == 128 and name == "e4m3fn" and dtype == BF16:
                        found += ragged(dtype, 15)
                    peer = peers.get("current" if tile == (0, 0) else "block")
                    for case, x in found:
                        asked = None
                        if peer and np.isfinite(widen(x)).all():

                            def asked(x, peer=peer, name=name, tile=tile, rule=rule):
                                return peer(x, name, tile, rule)

                        out.add(case, preset, name, tile, "f32", rule, x, formula, asked)
    out.write()
    out = File(
        "quantize_te_mx",
        [
            "Transformer Engine's formulas (2.x, August 2026), from its source: MXFP8 and NVFP4.",
            "NVFP4: the tensor scale is S_dec = RN(1 / S_enc); Transformer Engine keeps the amax.",
        ],
    )
    for name in ("e4m3fn", "e5m2"):
        for dtype in (F, BF16):
            for case, x in cases(name, 32, dtype, 16) + non_finite_cases(32, dtype, 17):

                def formula(x, name=name):
                    return te_mxfp8(x, name)

                out.add(case, "mxfp8", name, (1, 32), "e8m0", "rceil", x, formula)
    found = nvfp4_cases() + non_finite_cases(32, F, 18) + non_finite_cases(32, BF16, 19)
    for case, x in found:
        plain = np.isfinite(widen(x)).all() and not (np.signbit(widen(x)) & (widen(x) == 0)).any()
        peer = peers.get("nvfp4") if plain else None
        out.add(case, "nvfp4", "e2m1fn", (1, 16), "e4m3", "f32", x, te_nvfp4, peer)
    out.write()
    te_delayed_file()


def te_delayed_file():
    lines = [
        "# Transformer Engine's delayed scaling, fused update, from its source. `inv_scale` is its",
        "# `scale`: what x is multiplied by. The amax is put into history[0] before the update; an",
        "# amax of 0 is a tensor that was not seen. Rows of one sequence follow each other.",
        "# sequence\tformat\talgo\tmargin\thistory before\tinv_scale before\tamax"
        "\thistory after\tinv_scale after\tscale after",
    ]
    inf, nan = F(np.inf), F(np.nan)
    sequences = {
        "plain": [3.0, 1.5, 7.25, 0.1, 448.0, 2.0, 2.0, 2.0],
        "zero": [0.0, 2.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5],
        "inf": [2.0, inf, 1.0, 1.0, 1.0, 1.0],
        "nan": [2.0, nan, 1.0, 0.25, 0.25, 0.25, nan, nan],
        "tiny": [1e-40, 2.0**-126, 2.0**-120, 1e-30, 1e-45],
        "huge": [FLT_MAX, 1e38, 3e38, 1.0],
    }
    count = 0
    for name in ("e4m3fn", "e5m2"):
        for algo in ("max", "most_recent"):
            for margin in (0, 1, 3, -2):
                for length in (1, 4):
                    for sequence, amaxes in sequences.items():
                        history, inverse = np.zeros(length, F), F(1)
                        for amax in np.array(amaxes, F):
                            with np.errstate(all="ignore"):
                                after, new = te_delayed(
                                    history, inverse, amax, margin, algo, FORMATS[name][2]
                                )
                                scale = F(1) / new
                            cells = [
                                f"{sequence}-{length}",
                                name,
                                algo,
                                str(margin),
                                hexes(history),
                                hexes(inverse),
                                hexes(amax),
                                hexes(after),
                                hexes(new),
                                hexes(scale),
                            ]
                            lines.append("\t".join(cells))
                            history, inverse = after, new
                            count += 1
    path = HERE / "delayed_scaling_te.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(path.name, count, "rows")


def hexes(values):
    return ",".join(f"{v:08x}" for v in np.atleast_1d(values).astype(F).view(np.uint32).tolist())


def te_reference_peers(root):
    """Transformer Engine's own pure PyTorch references, for finite inputs without -0."""
    torch = load_torch()
    root = pathlib.Path(root)
    sys.path.insert(0, str(root / "tests" / "pytorch"))
    from references.blockwise_quantizer_reference import BlockwiseQuantizerReference
    from references.quantize_scale_calc import scale_from_amax_tensor

    # The NVFP4 one stands in the package, which needs a GPU: its neighbours are left empty.
    package = "transformer_engine.pytorch"
    recipes = f"{package}.custom_recipes"
    for name in ("transformer_engine", package, recipes, f"{package}.quantized_tensor"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("QuantizedTensorStorage", "Quantizer"):
        setattr(sys.modules[f"{package}.quantized_tensor"], name, type(name, (), {}))
    sys.modules[recipes].gemm = unittest.mock.MagicMock()
    folder = root / "transformer_engine" / "pytorch" / "custom_recipes"
    for name in ("reference_utils", "reference_nvfp4"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        setattr(sys.modules[recipes], name, sys.modules[name])
    quantizer = sys.modules["reference_nvfp4"].NVFP4QuantizerRef

    kinds = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}

    def bytes_of(t):
        return t.contiguous().view(torch.uint8).numpy()

    def current(x, name, tile, rule):
        data = to_torch(torch, x).float()
        scale, scale_inv, _ = scale_from_amax_tensor(
            torch.float32,
            data.abs().max().view(1),
            kinds[name],
            eps=0.0,
            pow_2_scales=rule == "rceil",
        )
        largest = FORMATS[name][2]
        codes = (data * scale).clamp(-largest, largest).to(kinds[name])
        return scale_inv.numpy().reshape(1, 1), None, bytes_of(codes)

    def block(x, name, tile, rule):
        ask = BlockwiseQuantizerReference._quantize_vector_tiling
        if tile[0] == 128:
            ask = BlockwiseQuantizerReference._quantize_square_block_tiling
        got = ask(
            to_torch(torch, x),
            kinds[name],
            128,
            return_transpose=False,
            pow_2_scales=rule == "rceil",
            eps=0.0,
        )
        return got.scale.numpy(), None, bytes_of(got.data)

    def nvfp4(x):
        data = to_torch(torch, x)
        amax = data.float().abs().max()
        got, scale = quantizer._quantize_blockwise_reference(
            data, amax, 16, 1, pow_2_scales=False, eps=0.0
        )
        # The reference does not give the tensor's scale back.
        return bytes_of(scale), te_nvfp4(x)[1], unpacked(got)

    return {"current": current, "block": block, "nvfp4": nvfp4}


def check_log2():
    """The integer forms against a float32 log2, about every power of two."""
    bits = np.array([((k + 127) << 23) + d for k in range(-126, 128) for d in range(-60, 61)])
    bits = bits[bits >= 1 << 23]
    v = from_bits(bits)
    wrong = np.count_nonzero(ceil_log2_by_bits(v) != np.ceil(rounded_log2(v)))
    wrong += np.count_nonzero(floor_log2_by_bits(v) != np.floor(rounded_log2(v)))
    print("ceil(log2) and floor(log2) in integers:", wrong, "of", 2 * v.size, "differ")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="torchao,gfloat,modelopt,te")
    parser.add_argument("--te-source", help="a checkout of Transformer Engine")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    warnings.simplefilter("ignore")
    check_log2()
    if "te" in wanted:
        te_files(arguments.te_source)
    if "gfloat" in wanted:
        gfloat_file()
    if "torchao" in wanted:
        torchao_files()
    if "modelopt" in wanted:
        modelopt_files()


if __name__ == "__main__":
    main()
