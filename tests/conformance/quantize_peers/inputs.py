"""Inputs of the peers: one tile per row."""

import numpy as np

from quantize_peers.numbers import (
    BF16,
    BF16_MAX,
    FLT_MAX,
    FORMATS,
    F,
    from_bits,
    magnitudes,
    step,
    widen,
)


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
