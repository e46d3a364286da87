"""What is timed on an x86 CPU, and what is asked of each."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    kind: str  # cast, quantize, product, attention, decode
    name: str
    unit: str  # Gel/s or GFLOP/s
    work: float  # 10^9 elements or operations of one call
    rival: str  # whose speed is asked for; "" where there is none
    at_least: float  # times the rival's speed
    on_one_core: float | None = None  # a rate that is asked for as well
    details: tuple = ()  # what sides.py needs to know


CAST_ELEMENTS, QUICK_CAST_ELEMENTS = 1 << 24, 1 << 16
QUANTIZE_SHAPE, QUICK_QUANTIZE_SHAPE = (4096, 4096), (64, 512)
# M, N, K.
SHAPES = [(n, n, n) for n in (1024, 2048, 4096)] + [(1, 4096, 4096), (16, 4096, 4096)]
# Weights that no last-level cache holds: codes of four bits take 256 MiB.
SHAPES += [(1, 32768, 16384)]
QUICK_SHAPES = [(64, 64, 64), (1, 128, 128)]
# Tokens and head size; heads so that one call takes about as long for all.
ATTENTION = [(s, d) for s in (512, 2048, 8192) for d in (64, 128)]
QUICK_ATTENTION = [(64, 64)]
HEADS = {512: 16, 2048: 4, 8192: 1}
# One query row for each of 32 heads on 8 of keys and values, by keys: an FP8 cache beside one in
# bfloat16. More is asked of several cores, which share what memory gives.
DECODE_KEYS, QUICK_DECODE_KEYS = (4096, 32768), (128,)
DECODE_HEADS, DECODE_KV_HEADS, DECODE_SIZE = 32, 8, 128
DECODE_AT_LEAST = {"one": 1.3, "several": 1.5}

# Direction, values, format, rival, times its speed, Gel/s on one core.
CASTS = [
    ("encode", "float32", "e4m3fn", "torch", 2.0, None),
    ("encode", "bfloat16", "e4m3fn", "torch", 2.0, None),
    ("decode", "float32", "e4m3fn", "torch", 10.0, None),
    ("decode", "bfloat16", "e4m3fn", "torch", 10.0, None),
    ("encode", "float32", "e5m2", "torch", 1.3, None),
    ("decode", "bfloat16", "e5m2", "torch", 3.0, None),
    ("encode", "float32", "e2m1fn", "ml_dtypes", 10.0, None),
    ("decode", "float32", "e2m1fn", "ml_dtypes", 10.0, None),
    ("encode", "float32", "e2m3fn", "ml_dtypes", 10.0, None),
    ("decode", "float32", "e2m3fn", "ml_dtypes", 10.0, None),
    ("encode", "float32", "e3m2fn", "ml_dtypes", 10.0, None),
    ("decode", "float32", "e3m2fn", "ml_dtypes", 10.0, None),
]
# Gel/s on one core: 5 GB of bf16 a second for eight bits, 4 for four.
PRESETS = {"mxfp8": 2.5, "fp8-channel": 2.5, "mxfp4": 2.0, "nvfp4": 2.0}
# Name, left and right operand: a dtype of values, a preset, or int8 with a scale per row.
PRODUCTS = [
    ("f32", "float32", "float32", "torch f32", 0.95),
    ("bf16", "bfloat16", "bfloat16", "torch bf16", 1.2),
    ("e4m3 per tensor", "fp8", "fp8", "torch bf16", 1.0),
    ("e4m3 per row", "fp8-channel", "fp8-channel", "torch bf16", 1.0),
    ("e4m3 1x128 x 128x128", "fp8-1x128", "fp8-block", "torch bf16", 1.0),
    ("mxfp8", "mxfp8", "mxfp8", "torch bf16", 1.0),
    ("mxfp4", "mxfp4", "mxfp4", "torch bf16", 1.0),
    ("nvfp4", "nvfp4", "nvfp4", "torch bf16", 1.0),
    ("int8 per row", "int8", "int8", "torch bf16", 1.5),
]
# Few rows: how many times the rival's speed is asked there instead.
FEW_ROWS = 16
PACKED_ROWS = 1024
ASKED_OF_FEW = {"mxfp4": 2.5, "nvfp4": 2.5} | {
    name: 1.7 for name, a, *_ in PRODUCTS if a.startswith(("fp8", "mxfp8"))
}
PRODUCT_RIVALS = ("torch f32", "torch bf16", "torch int8", "numkong e4m3", "numkong bf16")
# Rung, inputs, rival.
RUNGS = [
    ("f32", "float32", "torch f32", 1.0),
    ("bf16", "bfloat16", "torch bf16", 1.0),
    ("strict", "fp8-channel", "torch f32", 1.5),
    ("fast", "fp8-channel", "torch bf16", 1.0),
]
# Both sides held to an older instruction set: what torch's three libraries obey.
FORCED = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
}


def when_forced(case: Case) -> Case:
    """What is asked there: torch's casts, and 0.85 of its float32 products of any format. bf16 has
    no instructions of its own."""
    asked = {"cast": (case.rival, 1.0), "product": ("torch f32", 0.85)}
    if case.name == "strict":
        asked["attention"] = ("torch f32", 0.85)
    rival, ratio = asked.get(case.kind, (case.rival, 0.0))
    return dataclasses.replace(case, rival=rival, at_least=ratio, on_one_core=None)


def casts(quick: bool) -> list[Case]:
    work = (QUICK_CAST_ELEMENTS if quick else CAST_ELEMENTS) / 1e9
    made = []
    for way, values, name, rival, ratio, rate in CASTS:
        ends = (values, name) if way == "encode" else (name, values)
        text = f"{ends[0]} -> {ends[1]}"
        made.append(Case("cast", text, "Gel/s", work, rival, ratio, rate, (way, values, name)))
    return made


def quantizers(quick: bool) -> list[Case]:
    rows, cols = QUICK_QUANTIZE_SHAPE if quick else QUANTIZE_SHAPE
    return [
        Case("quantize", f"bfloat16 -> {preset}", "Gel/s", rows * cols / 1e9, "", 0.0,
             rate, (preset,))
        for preset, rate in PRESETS.items()
    ]  # fmt: skip


def products(shape: tuple[int, int, int]) -> list[Case]:
    """With weights as they are, and packed beforehand where that is meant to pay."""
    work = 2e-9 * shape[0] * shape[1] * shape[2]
    few = shape[0] <= FEW_ROWS
    made = []
    for name, a, b, rival, ratio in PRODUCTS:
        asked = ASKED_OF_FEW.get(name, ratio) if few else ratio
        case = Case("product", name, "GFLOP/s", work, rival, asked, None, (a, b, False))
        made.append(case)
        if name != "f32" and shape[0] <= PACKED_ROWS:
            packed = dataclasses.replace(case, name=f"{name}, packed", details=(a, b, True))
            made.append(packed)
    return made


def attention(tokens: int, size: int) -> list[Case]:
    work = 4e-9 * HEADS.get(tokens, 2) * tokens * tokens * size
    return [
        Case("attention", rung, "GFLOP/s", work, rival, ratio, None, (inputs,))
        for rung, inputs, rival, ratio in RUNGS
    ]


def decode(keys: int, threads: int) -> Case:
    work = 4e-9 * DECODE_HEADS * keys * DECODE_SIZE
    asked = DECODE_AT_LEAST["one" if threads == 1 else "several"]
    return Case("decode", "FP8 keys and values", "GFLOP/s", work, "octavo bf16", asked)
