#!/usr/bin/env python3
"""Writes scale_search.tsv: scales and codes of the policies that look at more than the amax.

docs/numerics/scales.md in numpy, operation by operation, written apart from octavo; modelopt_sweep
is the last table of docs/numerics/peer-arith.md.

A row: name, preset, policy, rule, input type, rows, cols, input bits, scale bits, tensor scale bits
or "-", codes, weights of columns as f32 bits or "-". Everything is row-major hex; codes are not
packed.

    pip install numpy
    python tests/conformance/generate_scale_search.py
"""

import math
import pathlib
from fractions import Fraction

import numpy as np

F = np.float32
LARGEST = F(np.finfo(np.float32).max)
SMALLEST = F(2.0**-126)
NAN = {"e2m1": 0, "e4m3": 0x7F}


def grid(exponent_bits, mantissa_bits, bias, count):
    values = []
    for code in range(count):
        exponent, mantissa = code >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        step = 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
        values.append((mantissa + (exponent > 0) * (1 << mantissa_bits)) * step)
    return np.array(values)


GRIDS = {"e2m1": grid(2, 1, 1, 8), "e4m3": grid(4, 3, 7, 127)}
TRYING = ("mse", "wmse", "4over6")
# Element format, tile, scale format.
PRESETS = {
    "nvfp4": ("e2m1", 16, "e4m3"),
    "mxfp4": ("e2m1", 32, "e8m0"),
    "mxfp8": ("e4m3", 32, "e8m0"),
    "fp8-1x128": ("e4m3", 128, "f32"),
}


def nearest_even(element, u):
    """Codes of magnitudes: the nearest value, of two the one with the even code, saturated."""
    values = GRIDS[element]
    below = np.clip(np.searchsorted(values, u, side="right") - 1, 0, len(values) - 2)
    up = u.astype(np.float64) - values[below], values[below + 1] - u.astype(np.float64)
    take_upper = (up[0] > up[1]) | ((up[0] == up[1]) & (below % 2 == 1))
    return np.where(u >= values[-1], len(values) - 1, below + take_upper)


class Scale:
    """A stored scale and what values are multiplied by."""

    def __init__(self, bits, scale, factor):
        self.bits, self.scale, self.factor = bits, scale, factor


def of_code(code, tensor):
    scale = F(GRIDS["e4m3"][code]) * tensor
    return Scale(code, scale, min(F(1) / scale, LARGEST))


def of_power(exponent):
    exponent = min(max(exponent, -127), 127)
    return Scale(exponent + 127, F(2.0**exponent), F(2.0**-exponent))


def of_quotient(amax, largest):
    scale = min(max(F(amax / F(largest)), SMALLEST), LARGEST)
    return Scale(int(scale.view(np.uint32)), scale, F(1) / scale)


def floor_log2(x):
    return math.frexp(float(x))[1] - 1


def by_rule(rule, amax, largest):
    """The exponent that a rule asks for, of exact numbers."""
    floor = floor_log2(amax) - floor_log2(largest)
    fraction = float(amax) / 2.0 ** floor_log2(amax)
    bump = {
        "rceil": fraction > largest / 2.0 ** floor_log2(largest),
        "floor": False,
        "ceil": fraction > 1,
        "even": fraction + (0.25 if largest == 6 else 0.0625) >= 2,
    }[rule]
    return floor + bump


def scale_of(kind, rule, largest, amax, tensor):
    if kind == "e4m3":
        wanted = F(F(amax / F(largest)) / tensor)
        return of_code(max(1, int(nearest_even("e4m3", np.array([wanted]))[0])), tensor)
    if kind == "e8m0":
        return of_power(by_rule(rule, amax, largest))
    return of_quotient(amax, largest)


def candidates(kind, rule, largest, amax, tensor):
    own = scale_of(kind, rule, largest, amax, tensor)
    if kind == "e4m3":
        steps = [0, -2, -1, 1, 2, 3, 4, 5, 6]
        return [of_code(min(max(own.bits + step, 1), 126), tensor) for step in steps]
    if kind == "e8m0":
        floor = by_rule("floor", amax, largest)
        return [of_power(floor), of_power(floor + 1)]
    with np.errstate(over="ignore"):
        parts = [F(amax * F(k / 16)) for k in [16, *range(6, 16), *range(17, 28)]]
    parts = [min(part, LARGEST) if part > 0 else amax for part in parts]
    return [of_quotient(part, largest) for part in parts]


def sum_of_squares(error, weights):
    """Sixteen sums in float32, the upper half added to the lower, then neighbours."""
    lanes = np.zeros(16, np.float32)
    for i, (e, weight) in enumerate(zip(error, weights, strict=True)):
        lanes[i % 16] += (e * e) * weight
    eight = lanes[:8] + lanes[8:]
    four = eight[:4] + eight[4:]
    return (four[0] + four[1]) + (four[2] + four[3])


def squares(element, x, factor, weights):
    with np.errstate(over="ignore", under="ignore"):
        u = np.abs(x) * factor
        error = u - GRIDS[element][nearest_even(element, u)].astype(np.float32)
        return sum_of_squares(error, weights)


def two_for_four_over_six(amax, tensor):
    with np.errstate(over="ignore"):
        larger = min(amax * F(1.5), LARGEST)
    return [scale_of("e4m3", None, 6.0, each, tensor) for each in (amax, larger)]


def searched(element, kind, rule, policy, x, amax, tensor, weights):
    largest = GRIDS[element][-1]
    best, least = scale_of(kind, rule, largest, amax, tensor), math.inf
    tried = (
        two_for_four_over_six(amax, tensor)
        if policy == "4over6"
        else candidates(kind, rule, largest, amax, tensor)
    )
    for scale in tried:
        wide = float(scale.scale)
        error = float(squares(element, x, scale.factor, weights)) * (wide * wide)
        if error < least:
            best, least = scale, error
    return best


def tile_scale(element, kind, rule, policy, x, tensor, weights):
    amax = np.abs(x).max()
    largest = GRIDS[element][-1]
    if not np.isfinite(amax):
        return Scale({"e4m3": 0x7F, "e8m0": 255, "f32": 0x7FC00000}[kind], F(np.nan), None)
    if amax == 0:
        return Scale({"e4m3": 0x38, "e8m0": 0, "f32": 0x3F800000}[kind], F(1), F(1))
    if policy in TRYING:
        return searched(element, kind, rule, policy, x, amax, tensor, weights)
    percent = Fraction(policy.split(":")[1])  # the decimal
    ranked = np.sort(np.abs(x))[max(1, math.ceil(percent * len(x) / 100)) - 1]
    return scale_of(kind, rule, largest, ranked if ranked > 0 else amax, tensor)


def modelopt_code(x, tensor_amax):
    """The code of e4m3 by ModelOpt's sweep: all of them, in its float32 arithmetic."""
    best, least = 1, math.inf
    for code in range(1, 127):
        scale = F(F(F(GRIDS["e4m3"][code]) / F(448)) * tensor_amax) / F(6)
        scale = F(1) if scale == 0 else scale
        with np.errstate(over="ignore", under="ignore"):
            index = nearest_even("e2m1", np.abs(x) / scale)
            error = np.abs(x) - GRIDS["e2m1"][index].astype(np.float32) * scale
            loss = sum_of_squares(error, np.ones(len(x), np.float32))
        if loss < least:
            best, least = code, loss
    return best


def modelopt_row(name, source, x):
    amax = np.abs(x).max()
    tensor = F(amax / F(2688))
    scales, codes = [], []
    for row in x:
        for start in range(0, len(row), 16):
            part = row[start : start + 16]
            scales.append(modelopt_code(part, amax))
            u = part / (F(GRIDS["e4m3"][scales[-1]]) * tensor)
            codes += list(nearest_even("e2m1", np.abs(u)) | (u < 0).astype(int) << 3)
    return line_of(name, "nvfp4", "modelopt_sweep", "f32", source, x, scales, tensor, codes, None)


def row_of(name, preset, policy, rule, source, x):
    element, width, kind = PRESETS[preset]
    finite = np.abs(x[np.isfinite(x)])
    top = F(6 * 256) if policy in TRYING else F(6 * 448)
    tensor = max(F(finite.max() / top), SMALLEST) if finite.any() else F(1)
    # Weights of many sizes, some of them zero.
    column = np.arange(x.shape[1])
    weighted = policy == "wmse"
    weights = (column * 37 % 11 * 2.0 ** (column % 5) if weighted else 0 * column + 1).astype(F)
    scales, codes = [], []
    for row in x:
        for start in range(0, len(row), width):
            part = row[start : start + width]
            of_part = weights[start : start + width]
            scale = tile_scale(element, kind, rule, policy, part, tensor, of_part)
            scales.append(scale.bits)
            if scale.factor is None:
                codes += [NAN[element]] * len(part)
                continue
            with np.errstate(over="ignore", under="ignore"):
                found = nearest_even(element, np.abs(part) * scale.factor)
            sign = np.signbit(part).astype(int) << (3 if element == "e2m1" else 7)
            codes += list(found | sign)
    by = weights if weighted else None
    return line_of(name, preset, policy, rule, source, x, scales, tensor, codes, by)


def line_of(name, preset, policy, rule, source, x, scales, tensor, codes, weights):
    kind = PRESETS[preset][2]
    bits = x.astype(np.float32).view(np.uint32).reshape(-1)
    values = "".join(f"{b >> 16:04x}" if source == "bf16" else f"{b:08x}" for b in bits)
    digits = 8 if kind == "f32" else 2
    return "\t".join(
        [name, preset, policy, rule, source, str(x.shape[0]), str(x.shape[1]), values]
        + ["".join(f"{s:0{digits}x}" for s in scales)]
        + [f"{tensor.view(np.uint32):08x}" if kind == "e4m3" else "-"]
        + ["".join(f"{c:02x}" for c in codes)]
        + ["-" if weights is None else "".join(f"{w:08x}" for w in weights.view(np.uint32))]
    )


def inputs():
    rng = np.random.default_rng(11)
    normal = rng.standard_normal((2, 128))
    yield "normal", "f32", normal
    yield "heavy", "f32", rng.standard_t(3, (2, 128))
    yield "ragged", "f32", rng.standard_normal((3, 41))
    yield "bf16", "bf16", rng.laplace(size=(2, 64))
    yield "grid", "f32", GRIDS["e2m1"][rng.integers(0, 8, (2, 64))] * rng.choice([-1, 1], (2, 64))
    yield "ties", "f32", rng.integers(-33, 34, (2, 64)) / 8.0
    yield "zeros", "f32", np.zeros((1, 48))
    yield "mostly zeros", "f32", np.where(np.arange(128) % 40 == 0, normal, -0.0)
    yield "subnormal", "f32", rng.integers(-(1 << 23), 1 << 23, (1, 64)) * 2.0**-149
    yield "tiny", "f32", rng.standard_normal((1, 64)) * 2.0**-124
    yield "huge", "f32", rng.uniform(-1, 1, (1, 64)) * float(LARGEST)
    yield "largest", "f32", np.full((1, 32), float(LARGEST))
    yield "binades", "f32", rng.standard_normal((1, 128)) * 2.0 ** rng.integers(-20, 21, (1, 128))
    yield "tiles apart", "f32", normal * 2.0 ** (np.arange(128) // 16 * 4.0 - 14)
    yield "not finite", "f32", np.where(np.arange(128) == 70, np.inf, normal)
    yield "nan", "bf16", np.where(np.arange(128) == 3, np.nan, normal)


def main():
    out = pathlib.Path(__file__).with_name("scale_search.tsv")
    lines = [
        "# Scale policies as docs/numerics/scales.md has them, from numpy",
        "# (generate_scale_search.py).",
        "# name\tpreset\tpolicy\trule\tinput\trows\tcols\tinput bits\tscale bits\ttensor scale"
        "\tcodes\tweights",
    ]
    rules = {"e4m3": ["f32"], "f32": ["f32"], "e8m0": ["rceil", "floor", "even"]}
    for name, source, raw in inputs():
        x = raw.astype(np.float32)
        if source == "bf16":
            x = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
        for preset, (_, _, kind) in PRESETS.items():
            for policy in ("mse", "wmse", "4over6", "percentile:90", "percentile:50"):
                if policy == "4over6" and kind != "e4m3":
                    continue
                for rule in rules[kind] if policy == "mse" else rules[kind][:1]:
                    lines.append(row_of(name, preset, policy, rule, source, x))
        if np.isfinite(x).all() and x.any():
            lines.append(modelopt_row(name, source, x))
    # Percentiles that are a whole number of values, where doubles are a little above that:
    # 55 / 100 * 100 is 55.00000000000001.
    x = np.random.default_rng(12).standard_normal((2, 100)).astype(np.float32)
    for policy in ("percentile:55", "percentile:7", "percentile:99"):
        lines.append(row_of("whole ranks", "fp8-1x128", policy, "f32", "f32", x))
    out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 3} rows")


if __name__ == "__main__":
    main()
