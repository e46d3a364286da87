"""FP8 GEMM on a Hopper GPU: octavo's kernels beside torch's, interleaved, on the same operands.

    gemm_bench.py KERNEL_CALLS [--json FILE] [--only TEXT] [--repeats N] [--shapes]

KERNEL_CALLS is the shared library built from bench/cuda/gemm_kernel_calls.cc. Large shapes: CUDA
events around single calls with the L2 flushed in between, medians; torch and octavo are
interleaved. Small M: time of the kernels alone, from the profiler, beside that of a kernel that
only reads B, which is the floor. Every result is compared with the product in float64 of some rows.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import math
import statistics
import sys
import time

import torch

LARGE = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 7168, 2048),
    (4096, 2112, 7168),
    (4096, 24576, 1536),
    (4096, 4096, 7168),
]
SMALL = [(64, 7168, 2048), (64, 24576, 1536), (128, 7168, 16384)]
E4M3 = torch.float8_e4m3fn


class BenchOperand(ctypes.Structure):
    _fields_ = [("codes", ctypes.c_void_p), ("scales", ctypes.c_void_p)] + [
        (name, ctypes.c_int64)
        for name in (
            "rows",
            "tile_rows",
            "tile_cols",
            "scale_row_pitch",
            "scale_col_pitch",
            "is_mx",
        )  # fmt: skip
    ]


class Quantized:
    """Codes and scales of one operand, [rows, K], made by torch; scales as [row tiles, K tiles]."""

    def __init__(self, values: torch.Tensor, tile_rows: int, tile_cols: int):
        rows, k = values.shape
        tr, tc = tile_rows or rows, tile_cols or k
        pad = torch.nn.functional.pad(values.float(), (0, -k % tc, 0, -rows % tr))
        tiles = pad.view(pad.shape[0] // tr, tr, pad.shape[1] // tc, tc)
        scales = tiles.abs().amax(dim=(1, 3)).clamp(min=1e-12) / 448.0
        scaled = (tiles / scales[:, None, :, None]).view(pad.shape)[:rows, :k]
        self.codes = scaled.clamp(-448, 448).to(E4M3).contiguous()
        self.tile_rows, self.tile_cols = tile_rows, tile_cols
        # 1x128: consecutive rows together, as torch wants them and octavo's quantizer writes them.
        self.scales = scales.t().contiguous().t() if tile_rows == 1 and tile_cols else scales
        self.scales = self.scales.contiguous() if tile_rows != 1 or not tile_cols else self.scales

    def numbers(self, rows: slice) -> torch.Tensor:
        tr = self.tile_rows or self.codes.shape[0]
        tc = self.tile_cols or self.codes.shape[1]
        full = self.scales.repeat_interleave(tr, 0)[: self.codes.shape[0]][rows]
        full = full.repeat_interleave(tc, 1)[:, : self.codes.shape[1]]
        return self.codes[rows].double() * full.double()

    def operand(self) -> BenchOperand:
        return BenchOperand(
            self.codes.data_ptr(), self.scales.data_ptr(), self.codes.shape[0], self.tile_rows,
            self.tile_cols, self.scales.stride(0) * 4, self.scales.stride(1) * 4, 0,
        )  # fmt: skip


class Mx(Quantized):
    """1 x 32 blocks with power-of-two scales, or the same values with exponents aligned by row."""

    def __init__(self, values: torch.Tensor, aligned: bool):
        rows, k = values.shape
        blocks = values.float().view(rows, k // 32, 32)
        exponents = torch.ceil(torch.log2(blocks.abs().amax(dim=2) / 448.0))
        self.codes = (blocks / torch.exp2(exponents)[:, :, None]).view(rows, k).to(E4M3)
        self.tile_rows, self.tile_cols, self.aligned = 1, 32, aligned
        self.exponents = exponents
        if aligned:
            top = exponents.amax(dim=1, keepdim=True)
            factors = torch.exp2(exponents - top)[:, :, None]
            lowered = self.codes.float().view(rows, k // 32, 32) * factors
            self.codes = lowered.view(rows, k).to(E4M3)
            self.tile_cols = 0
            self.scales = torch.exp2(top)
        else:
            self.scales = torch.exp2(exponents)
        self.bytes = (exponents + 127).to(torch.uint8).contiguous()

    def operand(self) -> BenchOperand:
        made = super().operand()
        if not self.aligned:
            made.scales, made.is_mx = self.bytes.data_ptr(), 1
            made.scale_row_pitch, made.scale_col_pitch = self.bytes.shape[1], 1
        return made


@torch.compile
def dequantized(codes: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    rows, k = codes.shape
    scales = torch.exp2(exponents.float() - 127)[:, :, None]
    return (codes.view(rows, k // 32, 32).float() * scales).to(torch.bfloat16).view(rows, k)


KINDS = {
    "tensor": ((0, 0), (0, 0)),
    "row": ((1, 0), (1, 0)),
    "1x128 by 128x128": ((1, 128), (128, 128)),
    "1x128 by 1x128": ((1, 128), (1, 128)),
    "mxfp8": (None, None),  # activations are aligned in the call, weights were before
}


def torch_call(kind: str, a: Quantized, b: Quantized):
    """torch's product of the same operands, or why there is none."""
    if kind == "mxfp8":  # the same with bf16: activations dequantized in the call, weights before
        wide = b.numbers(slice(None)).to(torch.bfloat16).t()
        return lambda: torch.mm(dequantized(a.codes, a.bytes), wide)
    bt = b.codes.t()
    out = dict(out_dtype=torch.bfloat16)
    if kind == "tensor":
        sa, sb = a.scales.reshape(()), b.scales.reshape(())
        return lambda: torch._scaled_mm(a.codes, bt, sa, sb, use_fast_accum=False, **out)
    if kind == "row":
        sa, sb = a.scales.view(-1, 1), b.scales.view(1, -1)
        return lambda: torch._scaled_mm(a.codes, bt, sa, sb, use_fast_accum=False, **out)
    sb = b.scales
    if kind == "1x128 by 128x128":  # rows of scales begin at multiples of four
        wide = torch.zeros(sb.shape[0], (sb.shape[1] + 3) // 4 * 4, device=sb.device)
        wide[:, : sb.shape[1]] = sb
        sb = wide[:, : sb.shape[1]]
    call = lambda: torch._scaled_mm(a.codes, bt, a.scales, sb.t(), **out)  # noqa: E731
    return call


def octavo_call(kernel_calls, a, b, out: torch.Tensor, workspace: torch.Tensor, shape: int = -1):
    x, y = a.operand(), b.operand()
    k = a.codes.shape[1]
    is_f32 = int(out.dtype == torch.float32)
    stream = torch.cuda.current_stream().cuda_stream

    def call():
        problem = kernel_calls.octavo_bench_gemm(
            ctypes.byref(x), ctypes.byref(y), k, out.data_ptr(), is_f32, workspace.data_ptr(),
            workspace.numel(), stream, shape,
        )  # fmt: skip
        if problem:
            raise RuntimeError(problem.decode())
        return out

    return call


def shape_calls(kernel_calls, a, b, out: torch.Tensor, workspace: torch.Tensor):
    """The same product with every tile shape that has a kernel for it."""
    for shape in itertools.count():
        call = octavo_call(kernel_calls, a, b, out.fill_(math.nan), workspace, shape)
        try:
            call()
        except RuntimeError as error:
            if "no such shape" in str(error):
                return
            continue
        yield shape, call


def reading_call(kernel_calls, of: Quantized, never: torch.Tensor):
    """Reads every code of an operand once (the floor)."""
    stream = torch.cuda.current_stream().cuda_stream
    start, count = of.codes.data_ptr(), of.codes.numel()

    def call():
        if problem := kernel_calls.octavo_bench_read(start, count, never.data_ptr(), stream):
            raise RuntimeError(f"reading: CUDA error {problem}")

    return call


def times_interleaved(calls: dict, repeats: int, flush: torch.Tensor, warm: float = 0.08) -> dict:
    """Median milliseconds. The card runs at its power limit, so it is warmed up first."""
    start = time.monotonic()
    while time.monotonic() - start < warm:
        for call in calls.values():
            call()
        torch.cuda.synchronize()
    pairs = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            pairs[name].append((begin, end))
    torch.cuda.synchronize()
    return {n: statistics.median(b.elapsed_time(e) for b, e in ps) for n, ps in pairs.items()}


def kernel_times(calls: dict, repeats: int, flush: torch.Tensor) -> dict:
    """Median milliseconds in which kernels of a call ran, L2 cold."""
    from torch.profiler import ProfilerActivity, profile

    result = {}
    for name, call in calls.items():
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(repeats):
                flush.fill_(
                    1
                )  # a kernel, which no call has; zero_() would be a memset, as some have
                call()
            torch.cuda.synchronize()
        each, mine, over = [], 0.0, 0.0
        for event in sorted(seen.events(), key=lambda e: e.time_range.start):
            if event.device_type != torch.autograd.DeviceType.CUDA:
                continue
            if "FillFunctor" in event.name:
                if mine:
                    each.append(mine)
                mine = 0.0
            else:
                # PDL: a kernel may start, and wait, while the one before it ends.
                span = event.time_range
                mine += max(0.0, span.end - max(span.start, over))
                over = max(over, span.end)
        each.append(mine)
        if len(each) != repeats:
            raise RuntimeError(f"{name}: {repeats} calls were made, {len(each)} were told apart")
        result[name] = statistics.median(each) / 1000
    return result


def relative_error(out: torch.Tensor, a: Quantized, b: Quantized) -> float:
    rows = slice(0, min(8, a.codes.shape[0]))
    exact = torch.cat(
        [
            a.numbers(rows) @ b.numbers(slice(n, n + 4096)).t()
            for n in range(0, b.codes.shape[0], 4096)
        ],
        dim=1,
    )
    return float((out[rows].double() - exact).norm() / exact.norm())


def keep(path: str, repeats: int, results: list) -> None:
    """Writes results in the format of bench/results."""
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    with open(path, "w") as file:
        json.dump(facts | {"repeats": repeats, "results": results}, file, indent=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel_calls")
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=101)
    parser.add_argument("--shapes", action="store_true", help="every compiled shape by itself")
    args = parser.parse_args()
    kernel_calls = ctypes.CDLL(args.kernel_calls)
    kernel_calls.octavo_bench_gemm.restype = ctypes.c_char_p
    kernel_calls.octavo_bench_gemm.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int,
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int,
    ]  # fmt: skip
    kernel_calls.octavo_bench_read.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    workspace = torch.empty(64 << 20, dtype=torch.int8, device="cuda")
    torch.manual_seed(1)
    rows, good = [], True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'scales':<18}{'M,N,K':<20}{'torch':>9}{'octavo':>9}{'TFLOPS':>8}{'ratio':>7}{'error':>9}"
    )
    for large in (True, False):
        for kind, (ta, tb) in KINDS.items():
            ratios = []
            for m, n, k in LARGE if large else SMALL:
                label = f"{kind} {m},{n},{k}"
                if args.only not in label:
                    continue
                x, w = (torch.randn(rows, k, device="cuda") for rows in (m, n))
                a = Quantized(x, *ta) if ta else Mx(x, False)
                b = Quantized(w, *tb) if tb else Mx(w, True)
                out = torch.full((m, n), math.nan, dtype=torch.bfloat16, device="cuda")
                calls = {"octavo": octavo_call(kernel_calls, a, b, out, workspace)}
                if args.shapes and ta:
                    bits = calls["octavo"]().view(torch.int16).clone()
                    for shape, call in shape_calls(kernel_calls, a, b, out, workspace):
                        if not torch.equal(call().view(torch.int16), bits):
                            print(f"octavo {label}: shape {shape} has other bits")
                            good = False
                        calls[f"shape {shape}"] = call
                try:
                    theirs = torch_call(kind, a, b)
                    theirs()
                    calls["torch"] = theirs
                except RuntimeError as error:
                    print(f"torch has no {label}: {str(error).splitlines()[0][:150]}")
                try:
                    calls["octavo"]()
                    torch.cuda.synchronize()
                except RuntimeError as error:
                    print(f"octavo {label}: {error}")
                    good = False
                    continue
                if not large:
                    calls["reading B"] = reading_call(kernel_calls, b, workspace)
                error = relative_error(out, a, b)
                repeats = min(args.repeats, int(60 / (4e-12 * m * n * k)) + 15)
                timed = (times_interleaved if large else kernel_times)(calls, repeats, flush)
                ratio = timed["torch"] / timed["octavo"] if "torch" in timed else math.nan
                ratios.append(ratio)
                tflops = 2e-9 * m * n * k / timed["octavo"]
                good &= error < 3e-3
                print(
                    f"{kind:<18}{f'{m},{n},{k}':<20}{timed.get('torch', math.nan) * 1e3:>9.1f}"
                    f"{timed['octavo'] * 1e3:>9.1f}{tflops:>8.0f}{ratio:>7.3f}{error:>9.1e}",
                    flush=True,
                )
                if not large:
                    print(f"    reading B alone: {timed['reading B'] * 1e3:.1f}")
                if args.shapes:
                    print(
                        "   ", {n[6:]: round(t * 1e3, 1) for n, t in timed.items() if "shape" in n}
                    )
                rows.append(
                    {"scales": kind, "m": m, "n": n, "k": k, "tflops": tflops, "error": error,
                     "us": {name: t * 1e3 for name, t in timed.items()}, "ratio": ratio}
                )  # fmt: skip
            if ratios:
                mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
                print(f"{kind:<18}geometric mean{mean:>39.3f}")
    if args.json:
        keep(args.json, args.repeats, rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
