"""Benchmark cases, and the speed they must reach."""

from __future__ import annotations

import dataclasses

# Tokens and head size; heads so that one iteration takes about as long for all.
SHAPES = [*((s, d) for s in (512, 2048, 8192) for d in (64, 128)), (65536, 64)]
QUICK_SHAPES = [(128, 64), (256, 128)]
HEADS = {512: 8, 2048: 2, 8192: 1, 65536: 1}
TURNS = {512: 5, 2048: 3, 8192: 1, 65536: 1}
# torch's bf16 takes minutes for long rows on CPUs without bf16 instructions, and the definition
# (`naive` is nothing else) always.
SLOW_UP_TO = {"torch bf16": 512, "naive": 512}
RIVALS = ("torch f32", "torch bf16")


@dataclasses.dataclass(frozen=True)
class Case:
    rung: str
    inputs: str  # a type of values, or a preset for Q, K and V
    at_least: dict[str, float]  # times a rival's speed
    peaks: tuple[str, ...]  # the instruction sets that may run it, the fastest first


CASES = [
    Case("f32", "float32", {}, ("fmla_f32",)),
    Case("bf16", "bfloat16", {"torch bf16": 1.3}, ("bfmmla", "fmla_f16", "fmla_f32")),
    # On a CPU that multiplies f16 into f32 (FMLAL) it must be 1.3 times torch.
    Case("f16", "float16", {"torch f32": 1.05}, ("fmla_f32",)),
    Case("strict", "fp8-channel", {"torch f32": 2.0}, ("bfmmla", "fmla_f16", "fmla_f32")),
    Case("balanced", "bfloat16", {}, ("bfmmla", "fmla_f16", "fmla_f32")),
    Case("fast", "fp8-channel", {}, ("bfmmla", "fmla_f16", "fmla_f32")),
    Case("auto", "bfloat16", {}, ("bfmmla", "fmla_f16", "fmla_f32")),
    Case("naive", "bfloat16", {}, ("fmla_f32",)),
]

# Gradients beside torch's, tokens and head size; 2 heads, values of float32.
GRADIENT_SHAPES = [(512, 64), (2048, 64), (2048, 128)]
QUICK_GRADIENT_SHAPES = [(128, 64)]
GRADIENT_HEADS = 2

# One query of 8 heads against so many keys of D = 128: what reading K and V costs.
DECODE_KEYS = (2048, 16384, 65536)
QUICK_DECODE_KEYS = (512,)
DECODE_HEADS, DECODE_SIZE = 8, 128
# Heads of keys: one for each query head, and one for four of them, which few models are without.
DECODE_KV_HEADS = (8, 2)
DECODE_AT_LEAST = 1.5
# `auto` against naming the rung that it takes, in time.
DECODE_AUTO_AT_MOST = 3.0
