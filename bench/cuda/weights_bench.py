"""GEMM of bf16 activations by quantized weights on a Hopper GPU (small M to large M), through
octavo's Python API, beside torch.mm in bf16: weights in bf16, FP4 with block scales, MXFP8, e4m3
with 128 x 128 or per-row scales.

    weights_bench.py [--json FILE] [--only TEXT] [--repeats N]

Time of the kernels alone, from the profiler, L2 cold; conversions of weights inside a call are
counted. Every result is compared with the product in float64 of the dequantized weights, some rows.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from gemm_bench import keep, kernel_times

import octavo as ov

SHAPES = [
    (1, 4096, 4096),
    (8, 14336, 4096),
    (16, 4096, 14336),
    (16, 8192, 8192),
    (32, 8192, 8192),
    (56, 8192, 8192),
    (64, 8192, 8192),
    (128, 8192, 8192),
    (256, 8192, 8192),
    (512, 8192, 8192),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
]
WEIGHTS = ("bfloat16", "nvfp4", "mxfp4", "mxfp8", "fp8-block", "fp8-channel")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=31)
    args = parser.parse_args()
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    torch.manual_seed(1)
    results, good = [], True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'weights':<12}{'M,N,K':<20}{'torch':>9}{'octavo':>9}{'TFLOPS':>8}{'GB/s':>7}{'ratio':>7}{'error':>9}"
    )
    for kind in WEIGHTS:
        for m, n, k in SHAPES:
            if args.only not in f"{kind} {m},{n},{k}":
                continue
            x, wide = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
            w = wide if kind == "bfloat16" else ov.quantize(wide, kind)
            numbers = wide if kind == "bfloat16" else ov.dequantize(w, "bfloat16")
            out = torch.full((m, n), math.nan, dtype=torch.bfloat16, device="cuda")
            calls = {
                "octavo": lambda x=x, w=w, out=out: ov.gemm(x, w, out=out),
                "torch": lambda x=x, numbers=numbers: torch.mm(x, numbers.t()),
            }
            calls["octavo"]()
            rows = slice(0, min(8, m))
            held_in = wide if kind == "bfloat16" else ov.dequantize(w, "float32")
            exact = x[rows].double() @ held_in.double().t()
            error = float((out[rows].double() - exact).norm() / exact.norm())
            good &= error < 3e-3  # one rounding to bf16
            timed = kernel_times(calls, args.repeats, flush)
            tflops = 2e-9 * m * n * k / timed["octavo"]
            held = n * k * 2 if kind == "bfloat16" else w.nbytes
            rate = held / timed["octavo"] * 1e-6
            ratio = timed["torch"] / timed["octavo"]
            print(
                f"{kind:<12}{f'{m},{n},{k}':<20}{timed['torch'] * 1e3:>9.1f}"
                f"{timed['octavo'] * 1e3:>9.1f}{tflops:>8.0f}{rate:>7.0f}"
                f"{ratio:>7.2f}{error:>9.1e}",
                flush=True,
            )
            results.append(
                {"weights": kind, "m": m, "n": n, "k": k, "tflops": tflops, "error": error,
                 "us": {name: t * 1e3 for name, t in timed.items()}, "ratio": ratio}
            )  # fmt: skip
    if args.json:
        keep(args.json, args.repeats, results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
