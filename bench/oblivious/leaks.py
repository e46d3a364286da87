"""What do the default modes tell by their time? The same calls on other numbers, with and without
`oblivious`; see README.md beside this file.

python -m bench.oblivious.leaks [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import octavo as ov
from bench.common.interleave import in_turns

SIDE, QUICK_SIDE = 512, 96
TOKENS, QUICK_TOKENS, SIZE = 512, 64, 64
TURNS, QUICK_TURNS = 21, 2
# Of a time in turns with others on a machine that does nothing else: what is below tells nothing.
NOISE = 0.03

Call = Callable[[], object]


def drawn(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kinds(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same array, with other numbers."""
    rows = x.reshape(-1, x.shape[-1])
    spoilt, zeros, wide = rows.copy(), rows.copy(), rows.copy()
    spoilt[::4, 0] = np.nan
    zeros[: len(rows) // 2] = 0
    wide[::2] *= np.float32(2.0**40)
    named = {"normal": rows, "NaN rows": spoilt, "zero rows": zeros, "wide range": wide}
    return {name: value.reshape(x.shape) for name, value in named.items()}


def timed(name: str, calls: dict[str, Call], turns: int) -> dict[str, Any]:
    """Milliseconds by kind of input, in turns, and the kind furthest from normal numbers."""
    seconds = in_turns(calls, turns, time.process_time)
    normal = seconds["normal"]
    worst = max(seconds, key=lambda kind: abs(seconds[kind] / normal - 1))
    row = {
        "case": name,
        "ms": {kind: 1e3 * value for kind, value in seconds.items()},
        "worst": worst,
        "ratio": seconds[worst] / normal,
    }
    told = "tells" if abs(row["ratio"] - 1) > NOISE else "same"
    times = ", ".join(f"{kind} {ms:.3f}" for kind, ms in row["ms"].items())
    print(f"{name:<44}{row['ratio']:6.2f} x for {worst:<12}{told:<6} ms: {times}", flush=True)
    return row


def products(side: int, turns: int) -> list[dict[str, Any]]:
    found = []
    for preset in (None, "fp8-channel", "mxfp8", "mxfp4", "nvfp4", "int8-channel"):
        weights = drawn(side, side, seed=2)
        b = weights if preset is None else ov.quantize(weights, preset)
        for rows in (1, 16, side):
            inputs = kinds(drawn(rows, side, seed=1))
            if rows == 1:
                inputs.pop("wide range")
            sides = {
                kind: a if preset is None else ov.quantize(a, preset) for kind, a in inputs.items()
            }
            for mode in (False, True):
                calls = {
                    kind: lambda a=a, b=b, mode=mode: ov.gemm(a, b, oblivious=mode, threads=1)
                    for kind, a in sides.items()
                }
                name = f"gemm {preset or 'float32'}, {rows} rows{', oblivious' * mode}"
                found.append(timed(name, calls, turns))
    return found


def attentions(tokens: int, turns: int) -> list[dict[str, Any]]:
    found = []
    q, k, v = (drawn(1, 1, tokens, SIZE, seed=seed) for seed in (1, 2, 3))
    # One key that all queries like: a running maximum that is found at once.
    peaked = k.copy()
    peaked[0, 0, 0] = 30 * q[0, 0].mean(0)
    keys = kinds(k) | {"one large key": peaked}
    for precision in ("f32", "bf16", "strict", "fast", "auto"):
        for mode in (False, True):
            if mode and precision == "auto":
                continue
            calls = {
                kind: lambda k=k, precision=precision, mode=mode: ov.attention(
                    q, k, v, precision=precision, oblivious=mode, threads=1
                )
                for kind, k in keys.items()
            }
            found.append(timed(f"attention {precision}{', oblivious' * mode}", calls, turns))
    return found


def others(side: int, turns: int) -> list[dict[str, Any]]:
    """Calls that are oblivious by default, and one that is not."""
    inputs = kinds(drawn(side, side, seed=1))
    norm = np.ones(side, np.float32)
    cases: dict[str, Callable[[np.ndarray], object]] = {
        "encode to e4m3fn": lambda x: ov.encode(x, "e4m3fn", threads=1),
        "encode_scaled, factor 0.3": lambda x: ov.encode_scaled(x, "e4m3fn", 0.3, threads=1),
        "quantize mxfp8": lambda x: ov.quantize(x, "mxfp8", threads=1),
        "quantize mxfp4, policy mse": lambda x: ov.quantize(
            x, ov.Scaling("e2m1fn", (1, 32), scale="e8m0", policy="mse"), threads=1
        ),
        "RMSNorm": lambda x: ov.rms_norm(x, norm, threads=1),
    }
    return [
        timed(name, {kind: lambda x=x, call=call: call(x) for kind, x in inputs.items()}, turns)
        for name, call in cases.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    args = parser.parse_args()
    turns = QUICK_TURNS if args.quick else TURNS
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    side, tokens = (QUICK_SIDE, QUICK_TOKENS) if args.quick else (SIDE, TOKENS)
    rows = [*products(side, turns), *attentions(tokens, turns), *others(side, turns)]
    if args.json:
        results = {
            "question": "leaks",
            "machine": ov.doctor(),
            "versions": {"numpy": np.__version__, "python": platform.python_version()},
            "quick": args.quick,
            "rows": rows,
        }
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
