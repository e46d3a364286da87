"""Grouped GEMM on a Hopper GPU, through octavo's Python API: rows by the experts they belong to,
and batches, beside torch's grouped and batched products of the same run.

    grouped_bench.py [--json FILE] [--only TEXT] [--repeats N]

CUDA events around single calls with the L2 flushed in between, medians, interleaved; batches, which
take microseconds: time of the kernels alone, from the profiler. Operands are quantized before, but
the time of MX operands whose exponents a call aligns includes that. Every result is compared with
the product in float64 of what the operands hold, some rows.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import dataclass

import torch
from gemm_bench import keep, kernel_times, times_interleaved

import octavo as ov

LAYERS = [(4096, 7168), (7168, 2048)]  # N, K: up and down of an expert
# Activations, weights. Exponents of a model's weights are aligned once, or in every call.
KINDS = {
    "fp8 rows": ("fp8-channel", "fp8-channel"),
    "1x128 by 128x128": ("fp8-1x128", "fp8-block"),
    "mxfp8": ("mxfp8", "mxfp8"),
    "mxfp8, w aligned": ("mxfp8", "aligned"),
    "mxfp8, as it is": ("mxfp8", "mxfp8"),  # activations whose blocks alignment would lose
}


@dataclass
class Case:
    name: str
    rows: list[int]  # of each group
    n: int
    k: int
    is_batch: bool = False

    @property
    def flops(self) -> int:
        return 2 * sum(self.rows) * self.n * self.k


def cases() -> list[Case]:
    draw = torch.Generator().manual_seed(3)

    def between(low: int, high: int, count: int) -> list[int]:
        return torch.randint(low, high + 1, (count,), generator=draw).tolist()

    made = []
    for n, k in LAYERS:
        made.append(Case("8 x 4096 rows", [4096] * 8, n, k))
        made.append(Case("32 x 128..512 rows", between(128, 512, 32), n, k))
        made.append(Case("64 x 1..16 rows", between(1, 16, 64), n, k))
    made.append(Case("batch of 16", [1024] * 16, 1024, 1024, is_batch=True))
    return made


def quantized(values: torch.Tensor, name: str):
    if name == "aligned":
        return ov.align_exponents(ov.quantize(values, "mxfp8"), count=False).tensor
    return ov.quantize(values, name)


def far_apart(values: torch.Tensor) -> torch.Tensor:
    """Multiplies every other block of 32 by 2^-28."""
    blocks = values.unflatten(-1, (-1, 2, 32)).clone()
    blocks[..., 1, :] *= 2.0**-28
    return blocks.flatten(-3)


def octavo_call(case: Case, a, b, out: torch.Tensor):
    if case.is_batch:
        return lambda: ov.gemm(a, b, out=out)
    return lambda: ov.gemm_grouped(a, b, case.rows, out=out)


def torch_calls(case: Case, x: torch.Tensor, w: torch.Tensor, a, b) -> dict:
    """The calls that this torch has: bf16, and FP8 with per-row scales."""
    wide = w.transpose(1, 2)
    ends = None
    if not case.is_batch:
        ends = torch.tensor(case.rows, device="cuda").cumsum(0).to(torch.int32)
    calls = {}
    if case.is_batch:
        calls["torch bf16"] = lambda: torch.bmm(x, wide)
    elif hasattr(torch, "_grouped_mm"):
        calls["torch bf16"] = lambda: torch._grouped_mm(x, wide, offs=ends)
    if hasattr(torch, "_scaled_grouped_mm"):
        codes = [q.codes.view(torch.float8_e4m3fn) for q in (a, b)]
        scales = [q.scales.float().squeeze(-1).contiguous() for q in (a, b)]
        calls["torch fp8 rows"] = lambda: torch._scaled_grouped_mm(
            codes[0], codes[1].transpose(1, 2), scales[0], scales[1], offs=ends,
            out_dtype=torch.bfloat16, use_fast_accum=False,
        )  # fmt: skip
    for name in list(calls):
        try:
            calls[name]()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"{name} has no {case.name}: {str(error).splitlines()[0][:150]}")
            del calls[name]
    for name in ("torch bf16", "torch fp8 rows"):
        if name not in calls:
            print(f"{case.name}: without {name}")
    return calls


def relative_error(case: Case, out: torch.Tensor, a, b) -> float:
    """Relative error of the first and the last row of some groups."""
    numbers = ov.dequantize(a, "float32").reshape(-1, case.k)
    weights = ov.dequantize(b, "float32")
    out = out.reshape(-1, case.n)
    first, far, all_of_it = 0, 0.0, 0.0
    for group, count in enumerate(case.rows):
        if group % (len(case.rows) // 4) == 1:
            rows = [first, first + count - 1]
            exact = numbers[rows].double() @ weights[group].double().t()
            far += float((out[rows].double() - exact).square().sum())
            all_of_it += float(exact.square().sum())
        first += count
    return math.sqrt(far / all_of_it)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=31)
    args = parser.parse_args()
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    torch.manual_seed(1)
    results, good = [], True
    ratios: dict[tuple[str, str], list[float]] = {}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'groups':<20}{'N,K':<11}{'by':<26}{'us':>9}"
        f"{'TFLOPS':>8}{'x bf16':>8}{'x fp8':>8}{'error':>9}"
    )
    for case in cases():
        label = f"{case.name} {case.n},{case.k}"
        if args.only not in label:
            continue
        total, groups = sum(case.rows), len(case.rows)
        x = torch.randn(total, case.k, device="cuda").bfloat16()
        w = torch.randn(groups, case.n, case.k, device="cuda", dtype=torch.bfloat16)
        shape = (total, case.n)
        if case.is_batch:
            x = x.view(groups, -1, case.k)
            shape = (groups, case.rows[0], case.n)
        calls, errors = {}, {}
        for kind, names in KINDS.items():
            values = far_apart(x) if "as it is" in kind else x
            a, b = quantized(values, names[0]), quantized(w, names[1])
            out = torch.full(shape, math.nan, dtype=torch.bfloat16, device="cuda")
            call = octavo_call(case, a, b, out)
            call()
            errors[f"octavo {kind}"] = relative_error(case, out, a, b)
            calls[f"octavo {kind}"] = call
            if kind == "fp8 rows":
                theirs = torch_calls(case, x, w, a, b)
                if "torch fp8 rows" in theirs:
                    made = theirs["torch fp8 rows"]()
                    errors["torch fp8 rows"] = relative_error(case, made, a, b)
        calls |= theirs
        timed = (
            kernel_times(calls, args.repeats, flush)
            if case.is_batch
            else times_interleaved(calls, args.repeats, flush)
        )
        for name, ms in timed.items():
            beside = {
                peer: timed[f"torch {peer}"] / ms
                for peer in ("bf16", "fp8 rows")
                if f"torch {peer}" in timed
            }
            for peer, ratio in beside.items():
                ratios.setdefault((name, peer), []).append(ratio)
            error = errors.get(name, math.nan)
            # One rounding to bf16, and what the tensor cores keep of FP8 sums.
            good &= not name.startswith("octavo") or error < 3e-3
            print(
                f"{case.name:<20}{f'{case.n},{case.k}':<11}{name:<26}{ms * 1e3:>9.1f}"
                f"{case.flops / ms * 1e-9:>8.0f}{beside.get('bf16', math.nan):>8.2f}"
                f"{beside.get('fp8 rows', math.nan):>8.2f}{error:>9.1e}",
                flush=True,
            )
            results.append(
                {"groups": case.name, "rows": case.rows, "n": case.n, "k": case.k, "by": name,
                 "us": ms * 1e3, "tflops": case.flops / ms * 1e-9, "ratio": beside,
                 "error": None if math.isnan(error) else error}
            )  # fmt: skip
        del calls, x, w, theirs
    for (name, peer), each in ratios.items():
        if name.startswith("octavo"):
            mean = math.exp(statistics.fmean(math.log(r) for r in each))
            print(f"{name:<26} geometric mean {mean:.2f} x torch {peer}")
    if args.json:
        keep(args.json, args.repeats, results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
