"""Attention forward on a Hopper GPU: octavo's rungs beside torch's, on the same inputs.

    attention_bench.py KERNEL_CALLS [--json FILE] [--only TEXT] [--repeats N]

KERNEL_CALLS is the shared library built from bench/cuda/attention_kernel_calls.cc. Of octavo two
times: of whole calls, which prepare V (and scales of keys) for the kernel, by CUDA events, the L2
flushed in between, medians, interleaved with torch; and of the forward kernel alone, from the
profiler. Short sequences are timed in a replayed graph. Errors are against float64 attention of
the operands as they were quantized, on some rows; "V = 1" is the mean of the output, where it
should be 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

E4M3 = torch.float8_e4m3fn
# Batches, heads, tokens, head size, causal: those of the research that the bars come from.
SHAPES = [
    (4, 32, 2048, 128, False),
    (2, 32, 4096, 128, False),
    (1, 32, 8192, 128, False),
    (1, 32, 16384, 128, False),
    (1, 32, 8192, 128, True),
    (1, 32, 16384, 128, True),
    (1, 32, 8192, 64, False),
    (1, 16, 8192, 256, False),
]
SHORT = (16, 16, 512, 64, False)


class BenchOperand(ctypes.Structure):
    _fields_ = [
        ("elements", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("tile_rows", ctypes.c_int64),
        ("tile_cols", ctypes.c_int64),
    ]


class BenchAttention(ctypes.Structure):
    _fields_ = (
        [(name, BenchOperand) for name in ("q", "k", "v")]
        + [("out", ctypes.c_void_p), ("log_sum_exp", ctypes.c_void_p)]
        + [
            (name, ctypes.c_int64)
            for name in (
                "batches",
                "heads",
                "kv_heads",
                "queries",
                "keys",
                "size",
                "causal",
                "p",
            )  # fmt: skip
        ]
        + [
            ("workspace", ctypes.c_void_p),
            ("workspace_bytes", ctypes.c_int64),
            ("stream", ctypes.c_void_p),
        ]
    )


class Operand:
    """bf16 values, or e4m3 codes with scales over `dims` of [batch, head, token, channel]."""

    def __init__(self, values: torch.Tensor, dims: tuple[int, ...] | None, tile=(0, 0)):
        self.tile, self.scales = tile, None
        if dims is None:
            self.elements = values.contiguous()
            return
        amax = values.float().abs().amax(dim=dims, keepdim=True).clamp(min=1e-12)
        self.scales = (amax / 448.0).contiguous()
        self.elements = (values.float() / self.scales).to(E4M3).contiguous()

    def numbers(self, batch: int, head: int) -> torch.Tensor:
        numbers = self.elements[batch, head].double()
        return numbers if self.scales is None else numbers * self.scales[batch, head].double()

    def struct(self) -> BenchOperand:
        scales = None if self.scales is None else self.scales.data_ptr()
        return BenchOperand(self.elements.data_ptr(), scales, *self.tile)


# How Q, K and V are quantized, and the form of P.
HEAD, TOKEN, CHANNEL = ((2, 3), (0, 0)), ((3,), (1, 0)), ((2,), (0, 1))
RUNGS = {
    "fast": ((TOKEN, HEAD, CHANNEL), 2),
    "fast, a scale per key": ((TOKEN, TOKEN, CHANNEL), 2),
    "strict": ((TOKEN, HEAD, CHANNEL), 1),
    "strict, a scale per key": ((TOKEN, TOKEN, CHANNEL), 1),
    "bf16": (((None,), (None,), (None,)), 0),
}


class Call:
    def __init__(self, library, rung: str, q, k, v, causal: bool, workspace: torch.Tensor):
        how, p = RUNGS[rung]
        self.library, self.workspace = library, workspace
        self.operands = [Operand(x, *kind) for x, kind in zip((q, k, v), how, strict=True)]
        self.out = torch.full_like(q, math.nan)
        self.lse = torch.full(q.shape[:3], math.nan, device=q.device)
        self.causal = causal
        batches, heads, queries, size = q.shape
        self.struct = BenchAttention(
            *(x.struct() for x in self.operands), self.out.data_ptr(), self.lse.data_ptr(),
            batches, heads, k.shape[1], queries, k.shape[2], size, int(causal), p,
            workspace.data_ptr(), workspace.numel(), 0,
        )  # fmt: skip

    def __call__(self):
        self.struct.stream = torch.cuda.current_stream().cuda_stream
        if problem := self.library.octavo_bench_attention(ctypes.byref(self.struct)):
            raise RuntimeError(problem.decode())

    def error(self) -> tuple[float, float]:
        """Relative L2 error, and the share of elements outside 5e-3 + 5e-3 |exact|."""
        q, k, v = (x.numbers(0, 0) for x in self.operands)
        rows = torch.arange(0, q.shape[0], max(1, q.shape[0] // 64), device=q.device)
        scores = q[rows] @ k.t() / math.sqrt(q.shape[1])
        if self.causal:
            hidden = torch.arange(k.shape[0], device=q.device)[None] > rows[:, None]
            scores = scores.masked_fill(hidden, -math.inf)
        exact = torch.softmax(scores, dim=1) @ v
        off = (self.out[0, 0][rows].double() - exact).abs()
        outside = (off > 5e-3 + 5e-3 * exact.abs()).double().mean()
        return float(off.norm() / exact.norm()), float(outside)


def torch_call(backend: SDPBackend, q, k, v, causal: bool):
    def call():
        with sdpa_kernel([backend]):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


def warm_up(calls: dict, seconds: float = 0.08) -> None:
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        for call in calls.values():
            call()
        torch.cuda.synchronize()


def times(calls: dict, repeats: int, flush: torch.Tensor) -> dict:
    """Median milliseconds of calls that take turns."""
    warm_up(calls)
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


def kernel_time(call, repeats: int) -> float:
    """Median milliseconds of the forward kernel alone."""
    from torch.profiler import ProfilerActivity, profile

    warm_up({"": call}, 0.03)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(repeats):
            call()
        torch.cuda.synchronize()
    spans = [
        event.time_range.end - event.time_range.start
        for event in seen.events()
        if "attention_forward_kernel" in event.name
    ]
    return statistics.median(spans) / 1000 if spans else math.nan


def graph_time(call, repeats: int = 20, replays: int = 10) -> float:
    """Milliseconds of a call among many in a replayed graph."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    for _ in range(3):
        graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats / replays


def inputs(shape) -> list[torch.Tensor]:
    batches, heads, tokens, size, _ = shape
    return [
        torch.randn(batches, heads, tokens, size, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    ]


def label(shape) -> str:
    batches, heads, tokens, size, causal = shape
    return f"{batches}x{heads}x{tokens}x{size}" + (" causal" if causal else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel_calls")
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=31)
    args = parser.parse_args()
    library = ctypes.CDLL(args.kernel_calls)
    library.octavo_bench_attention.restype = ctypes.c_char_p
    library.octavo_bench_attention.argtypes = [ctypes.c_void_p]
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    workspace = torch.empty(512 << 20, dtype=torch.int8, device="cuda")
    torch.manual_seed(1)
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    results, good = [], True
    print(f"{facts['device']}, torch {facts['torch']}, cuDNN {torch.backends.cudnn.version()}")
    print(
        f"{'shape':<24}{'what':<26}{'ms':>9}{'TFLOPS':>8}{'kernel':>8}{'rel L2':>9}{'outside':>9}"
    )

    def tell(shape, what: str, ms: float, kernel: float, error=(math.nan, math.nan)) -> None:
        batches, heads, tokens, size, causal = shape
        flop = 4 * batches * heads * tokens * tokens * size / (2 if causal else 1)
        row = {"shape": label(shape), "what": what, "ms": ms, "tflops": flop / ms * 1e-9}
        row |= {"kernel_tflops": flop / kernel * 1e-9, "rel_l2": error[0], "outside": error[1]}
        results.append(row)
        print(
            f"{label(shape):<24}{what:<26}{ms:>9.4f}{row['tflops']:>8.1f}"
            f"{row['kernel_tflops']:>8.1f}{error[0]:>9.1e}{error[1]:>9.1e}"
        )
        if args.json:
            with open(args.json, "w") as file:
                json.dump(facts | {"repeats": args.repeats, "results": results}, file, indent=1)

    for shape in SHAPES:
        if args.only not in label(shape):
            continue
        q, k, v = inputs(shape)
        calls = {name: Call(library, name, q, k, v, shape[4], workspace) for name in RUNGS}
        timed = dict(calls)
        for name, backend in (
            ("torch, cuDNN bf16", SDPBackend.CUDNN_ATTENTION),
            ("torch, flash bf16", SDPBackend.FLASH_ATTENTION),
        ):
            timed[name] = torch_call(backend, q, k, v, shape[4])
            try:
                timed[name]()
            except RuntimeError as problem:
                print(f"{label(shape)}: {name} refuses: {str(problem).splitlines()[0][:100]}")
                del timed[name]
        for name, ms in times(timed, args.repeats, flush).items():
            if name not in calls:
                tell(shape, name, ms, ms)
                continue
            error = calls[name].error()
            good &= error[0] < (4e-2 if name.startswith("fast") else 5e-3)
            tell(shape, name, ms, kernel_time(calls[name], min(args.repeats, 15)), error)
        del calls, timed
    if args.only in label(SHORT):
        q, k, v = inputs(SHORT)
        timed = {
            "fast": Call(library, "fast", q, k, v, False, workspace),
            "bf16": Call(library, "bf16", q, k, v, False, workspace),
            "torch, cuDNN bf16": torch_call(SDPBackend.CUDNN_ATTENTION, q, k, v, False),
        }
        for name, call in timed.items():
            ms = graph_time(call)
            kernel = kernel_time(call, 15) if name in RUNGS else ms
            tell(SHORT, f"{name}, in a graph", ms, kernel)
            heads = SHORT[0] * SHORT[1]
            print(f"  {ms * 1e3 / heads:.3f} us a head, kernel {kernel * 1e3 / heads:.3f}")
    for tokens in (512, 2048, 8192, 16384):
        q, k, v = inputs((1, 8, tokens, 128, False))
        v.fill_(1.0)
        means = []
        for name in RUNGS:
            call = Call(library, name, q, k, v, False, workspace)
            call()
            means.append(f"{name} {float(call.out.float().mean()):.6f}")
            results.append(
                {"v_is_one": tokens, "what": name, "mean": float(call.out.float().mean())}
            )
        print(f"V = 1, {tokens} keys: " + ", ".join(means))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(facts | {"repeats": args.repeats, "results": results}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
