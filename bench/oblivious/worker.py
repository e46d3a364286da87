"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json

import numpy as np

import octavo as ov
from bench.common.interleave import in_turns
from bench.common.workers import worker_arguments

PRESETS = ("float32", "fp8", "fp8-channel", "mxfp8", "mxfp4", "nvfp4")
ROWS, SIDE, QUICK_SIDE = (1, 16, 512), 1024, 128
PRECISIONS = ("f32", "bf16", "strict", "fast")
TOKENS, QUICK_TOKENS, SIZE, HEADS = (512, 2048), (128,), 64, 2
TURNS, SECONDS = 9, 10.0


def timed(name: str, call: object, turns: int) -> None:
    seconds = in_turns(
        {"plain": lambda: call(False), "oblivious": lambda: call(True)},  # type: ignore[operator]
        turns,
        seconds=SECONDS,
    )
    row = {
        "case": name,
        "ms": 1e3 * seconds["plain"],
        "oblivious_ms": 1e3 * seconds["oblivious"],
        "ratio": seconds["oblivious"] / seconds["plain"],
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    arguments = worker_arguments()
    threads, turns = arguments.threads, 2 if arguments.quick else TURNS
    side = QUICK_SIDE if arguments.quick else SIDE
    draw = np.random.default_rng(1).standard_normal
    for preset in PRESETS:
        for rows in ROWS:
            a, b = (draw(shape).astype(np.float32) for shape in ((rows, side), (side, side)))
            sides = (a, b) if preset == "float32" else [ov.quantize(x, preset) for x in (a, b)]
            timed(
                f"gemm {preset}, {rows} x {side} x {side}",
                lambda mode, sides=sides: ov.gemm(*sides, oblivious=mode, threads=threads),
                turns,
            )
    for tokens in QUICK_TOKENS if arguments.quick else TOKENS:
        qkv = [draw((1, HEADS, tokens, SIZE)).astype(np.float32) for _ in range(3)]
        for precision in PRECISIONS:
            timed(
                f"attention {precision}, {tokens} tokens of {SIZE}",
                lambda mode, precision=precision, qkv=qkv: ov.attention(
                    *qkv, precision=precision, oblivious=mode, threads=threads
                ),
                turns,
            )


if __name__ == "__main__":
    main()
