"""Bounds of attention beside its error, and what they cost. See README.md in this folder.

For each rung, number of tokens and head size: the medians over rows of certified bound / error and
of probabilistic bound / error, rows above either, and the time of the rung with a bound over that
without, both in one process, one after the other (medians of CPU time).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time

import numpy as np

import octavo as ov

SHAPES = [(s, d) for d in (64, 128) for s in (512, 1024, 2048, 4096)]
QUICK_SHAPES = [(256, 64)]
# The rung, and the type of its inputs; a preset: codes, made beforehand.
CASES = [
    ("f32", "float32"),
    ("bf16", "float32"),
    ("bf16", "bfloat16"),
    ("strict", "float32"),
    ("strict", "fp8-channel"),
    ("balanced", "float32"),
    ("fast", "float32"),
    ("fast", "fp8-channel"),
]
ROWS = 512  # that are compared
ROUNDS = 7


def inputs(tokens: int, size: int, kind: str) -> list:
    random = np.random.default_rng(tokens + size)
    values = [random.standard_normal((1, 1, tokens, size), np.float32) for _ in range(3)]
    if kind == "float32":
        return values
    if kind == "bfloat16":
        import ml_dtypes

        return [x.astype(ml_dtypes.bfloat16) for x in values]
    return [ov.quantize(x, kind) for x in values]


def given(x: object) -> np.ndarray:
    """The numbers that exact attention takes."""
    if isinstance(x, ov.QuantizedTensor):
        return ov.dequantize(x, "float64")
    return np.asarray(x, np.float64)


def cpu_time(call) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(rung: str, kind: str, tokens: int, size: int, exact: np.ndarray, rows: int) -> dict:
    operands = inputs(tokens, size, kind)
    out, bound, likely = ov.attention(
        *operands,
        precision=rung,
        out="float32",
        return_bound=True,
        return_probabilistic_bound=True,
    )
    error = np.abs(out[..., :rows, :].astype(np.float64) - exact).max(-1)
    bound, likely = bound[..., :rows], likely[..., :rows]

    target = np.empty(out.shape, np.float32)
    how = {"precision": rung, "out": target, "threads": 1}
    plain, certified, both = [], [], []
    for _ in range(ROUNDS):
        plain.append(cpu_time(lambda: ov.attention(*operands, **how)))
        certified.append(cpu_time(lambda: ov.attention(*operands, **how, return_bound=True)))
        both.append(
            cpu_time(lambda: ov.attention(*operands, **how, return_probabilistic_bound=True))
        )
    base = float(np.median(plain))
    return {
        "rung": rung,
        "inputs": kind,
        "tokens": tokens,
        "size": size,
        "rows": int(error.size),
        "median_error": float(np.median(error)),
        "bound_over_error": float(np.median(bound / error)),
        "probabilistic_over_error": float(np.median(likely / error)),
        "above": int((error > bound).sum()),
        "above_probabilistic": int((error > likely).sum()),
        "ms": 1e3 * base,
        "cost": float(np.median(certified)) / base - 1.0,
        "cost_probabilistic": float(np.median(both)) / base - 1.0,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--quick", action="store_true", help="one small shape")
    args = parser.parse_args()
    found = []
    print("rung      inputs       S     D   bound/error  probabilistic  cost   of the other  above")
    for tokens, size in QUICK_SHAPES if args.quick else SHAPES:
        rows = min(ROWS, tokens)
        exact = {}
        for rung, kind in CASES:
            if kind not in exact:
                q, k, v = (given(x) for x in inputs(tokens, size, kind))
                exact[kind] = ov.attention(q[..., :rows, :], k, v, precision="exact")
            row = measure(rung, kind, tokens, size, exact[kind], rows)
            found.append(row)
            print(
                f"{rung:9} {kind:12} {tokens:5} {size:4} {row['bound_over_error']:11.3g} "
                f"{row['probabilistic_over_error']:13.3g} {row['cost']:7.1%} "
                f"{row['cost_probabilistic']:9.1%} {row['above']:9} {row['above_probabilistic']}",
                flush=True,
            )
    results = {"question": "attention bounds", "machine": ov.doctor(), "rows": found}
    if args.json:
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    return 1 if any(row["above"] for row in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
