"""How much of the answer does FP8 attention lose where V has a mean?

Q and K are normal, V is uniform in [0, 1), all e4m3 with one scale a tensor. What is printed is the
mean of result / exact - 1 over some rows; exact is float64 attention of the same codes. Beside
octavo's rungs stand sums of P V as Hopper's FP8 tensor cores make them (`hopper_fp8`, on any CPU):
left in their accumulator to the end, and promoted to float32 every 128 keys.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

import numpy as np

import octavo as ov

KEYS = (512, 2048, 8192, 16384)
HEADS, SIZE, ROWS = 2, 128, 32  # rows of each head that are compared
P_UNIT = 256.0  # P is at most 1, and e4m3 has 448


def inputs(keys: int) -> list[ov.QuantizedTensor]:
    made = np.random.default_rng(keys)
    q = made.standard_normal((HEADS, ROWS, SIZE), np.float32)
    k = made.standard_normal((HEADS, keys, SIZE), np.float32)
    v = made.random((HEADS, keys, SIZE), np.float32)
    return [ov.quantize(x, "fp8") for x in (q, k, v)]


def weights(q: ov.QuantizedTensor, k: ov.QuantizedTensor) -> np.ndarray:
    """P before it is divided by its sum: at most 1."""
    scores = ov.dequantize(q, "float64") @ ov.dequantize(k, "float64").transpose(0, 2, 1)
    scores /= np.sqrt(SIZE)
    return np.exp(scores - scores.max(-1, keepdims=True))


def on_tensor_cores(p: np.ndarray, v: ov.QuantizedTensor, promote_every: int) -> np.ndarray:
    """P V with P in e4m3, summed as one chain of wgmma instructions sums it."""
    codes = ov.encode((P_UNIT * p).astype(np.float32), "e4m3fn")
    rounded = ov.decode(codes, "float64", format="e4m3fn")
    one = np.ones(1, np.float32)
    values = ov.dequantize(v, "float32").transpose(0, 2, 1)
    made = []
    for head in range(HEADS):
        product = ov.gemm(
            ov.quantized(codes[head], one, "fp8"),
            ov.quantize(np.ascontiguousarray(values[head]), "fp8"),
            out="float32",
            accumulator="hopper_fp8",
            promote_every=promote_every,
        )
        made.append(product / rounded[head].sum(-1, keepdims=True))
    return np.stack(made)


def losses(keys: int) -> dict[str, float]:
    q, k, v = inputs(keys)
    p = weights(q, k)
    exact = p / p.sum(-1, keepdims=True) @ ov.dequantize(v, "float64")
    sides = {
        f"octavo {rung}": ov.attention(q, k, v, precision=rung, out="float32")
        for rung in ("strict", "fast")
    }
    sides["tensor cores, promoted every 128"] = on_tensor_cores(p, v, 128)
    sides["tensor cores, never promoted"] = on_tensor_cores(p, v, 0)
    return {name: float((out / exact - 1).mean()) for name, out in sides.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    data = {"question": "attention mean", "machine": ov.doctor(), "size": SIZE, "results": []}
    for keys in KEYS:
        found = losses(keys)
        data["results"].append({"keys": keys, "mean_error": found})
        print(f"{keys:6} keys  " + ", ".join(f"{n} {100 * e:+.3f} %" for n, e in found.items()))
    if args.json:
        args.json.write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
