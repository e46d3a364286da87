"""Rate of recomputed rows of `strict`, and of elements outside of its tolerance all the same. See
README.md in this folder.

Kernels that accumulate scores in f16 check an error bound of each row after it is computed
(attention_error_bound.h). They do not report the rows that they recompute, but results show them: a
recomputed row has the bits that it has in a head whose norms are too large for f16 accumulation,
and one query that is long enough makes a head such a one.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

import octavo as ov

F16 = "cpu/neon_fp16"  # whose scores are summed in f16
RTOL = ATOL = 5e-3

# Tokens, head size, and whether there is a causal mask.
NORMAL = [(512, 64, False), (512, 128, False), (2048, 128, False)]
NORMAL += [(512, 64, True), (512, 128, True)]
NORMAL_HEADS = 64
# Keys that carry all the weight of a row, and the magnitudes of their scores or partial sums.
KEYS = (2, 4, 8, 16, 64)
SIZES = np.arange(0.25, 12.01, 0.25)
SIZE, ROWS, HEADS = 128, 32, 256
PAIRS = 1 << 16  # rows of two keys


def coded(*values: np.ndarray) -> list[ov.QuantizedTensor]:
    return [ov.quantize(x.astype(np.float32), "fp8-channel") for x in values]


def strict(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """Outputs, and beside them log-sum-exps: where a row sees one key, its output says nothing."""
    how = {"precision": "strict", "causal": causal, "out": "float32", "return_lse": True}
    out, lse = ov.attention(*coded(q, k, v), **how)
    return np.concatenate([out, lse[..., None]], axis=-1)


def done_again(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """Which rows were recomputed, [batch, heads, tokens]."""
    rows = q.shape[-2]
    longer = np.concatenate([q, np.full_like(q[..., :1, :], 1e3)], axis=-2)
    found, finer = strict(q, k, v, causal), strict(longer, k, v, causal)[..., :rows, :]
    return (found == finer).all(-1)


def outside(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Which elements are, against exact attention of the same codes."""
    inputs = coded(q, k, v)
    found = ov.attention(*inputs, precision="strict", out="float32")
    exact = ov.attention(*(ov.dequantize(x, "float64") for x in inputs), precision="exact")
    return np.abs(found - exact) > ATOL + RTOL * np.abs(exact)


def normal_rows() -> list[dict]:
    random = np.random.default_rng(1)
    rows = []
    for tokens, size, causal in NORMAL:
        shape = (1, NORMAL_HEADS, tokens, size)
        again = done_again(*(random.standard_normal(shape) for _ in range(3)), causal)
        rows.append(
            {
                "tokens": tokens,
                "size": size,
                "causal": causal,
                "rows": again.size,
                "done_again": int(again.sum()),
            }
        )
    return rows


def one_product(random: np.random.Generator, keys: int, size: float) -> tuple[np.ndarray, ...]:
    """One product has all of a score and comes first in its run: all sums that follow are rounded
    at the size of the score."""
    q, k = 0.1 * random.standard_normal((2, HEADS, 1, max(ROWS, keys), SIZE))
    q[..., 0], k[..., 0] = 1.0, size * np.sqrt(SIZE)
    return q[:, :, :ROWS], k[:, :, :keys], random.standard_normal((HEADS, 1, keys, SIZE))


def either_sign(random: np.random.Generator, keys: int, size: float) -> tuple[np.ndarray, ...]:
    """Two products of a run that cancel: sums between them are much larger than the score."""
    q, k, v = one_product(random, keys, size)
    q[..., 24], k[..., 24] = 1.0, -size * np.sqrt(SIZE)
    return q, k, v


def hard_rows() -> list[dict]:
    """The size with the largest fraction of elements outside, for each number of keys."""
    random = np.random.default_rng(2)
    rows = []
    for make in (one_product, either_sign):
        for keys in KEYS:
            found = []
            for size in SIZES:
                inputs = make(random, keys, float(size))
                found.append((float(outside(*inputs).mean()), float(size), done_again(*inputs)))
            share, size, again = max(found, key=lambda one: one[0])
            rows.append(
                {
                    "family": make.__name__,
                    "keys": keys,
                    "elements": HEADS * ROWS * SIZE,
                    "outside": share,
                    "size": size,
                    "done_again": float(again.mean()),
                }
            )
    return rows


def pairs_of_keys() -> dict:
    """Rows with weight on two keys, normally distributed."""
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((1, PAIRS, n, 64)) for n in (1, 2, 2))
    missed = outside(q, k, v)
    return {"elements": missed.size, "outside": int(missed.sum())}


PARTS = {"normal": normal_rows, "hard": hard_rows, "pairs": pairs_of_keys}


def on_backend(name: str, part: str) -> object:
    """In a process of its own: a backend is chosen when octavo is loaded."""
    command = [sys.executable, "-m", "bench.attention.rates", "--part", part]
    environment = {**os.environ, "OCTAVO_BACKEND": name}
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part]()))
        return 0
    if not any(backend.name == F16 and backend.usable for backend in ov.backends()):
        sys.exit(f"rates: needs a CPU that can run {F16}")
    results = {
        "question": "attention rates",
        "machine": ov.doctor(),
        "backend": F16,
        "normal": on_backend(F16, "normal"),
        "hard": on_backend(F16, "hard"),
        "pairs": {name: on_backend(name, "pairs") for name in (F16, "reference")},
    }
    print("rows done again, of normal inputs")
    for row in results["normal"]:
        mask = "causal" if row["causal"] else "no mask"
        print(
            f"  {row['tokens']} tokens of {row['size']}, {mask}: {row['done_again']} of "
            f"{row['rows']}, {row['done_again'] / NORMAL_HEADS:.2f} a head"
        )
    print("elements outside, in a million, at the size that has the most of them")
    for row in results["hard"]:
        again = f"{row['done_again']:.0%} of rows are done again"
        where = f" at a size of {row['size']:g}, where {again}" if row["outside"] else ""
        print(f"  {row['family']}, {row['keys']} keys: {1e6 * row['outside']:.0f}{where}")
    print("elements outside in rows with two keys")
    for name, row in results["pairs"].items():
        print(f"  {name}: {row['outside']} of {row['elements']}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
