"""Gradients of attention on a Hopper GPU: octavo's beside torch's cuDNN and flash, same inputs.

    attention_backward_bench.py KERNEL_CALLS [--json FILE] [--only TEXT] [--repeats N]

KERNEL_CALLS is the shared library octavo_attention_kernel_calls. Whole calls are timed by CUDA
events, medians, in turns with torch's: octavo's with the passes over rows before and after the
kernel, torch's with what autograd calls. 10 operations for each query, key and channel, half of
them with a causal mask. Errors are relative, L2, of the last head against float64.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import sys

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# Batches, heads, tokens, head size, causal.
SHAPES = [
    (batches, 16, tokens, size, causal)
    for size in (128, 64)
    for batches, tokens in ((4, 4096), (1, 16384))
    for causal in (False, True)
]
POINTERS = ("q", "k", "v", "d_out", "out", "log_sum_exp", "d_q", "d_k", "d_v")
NUMBERS = ("batches", "heads", "kv_heads", "queries", "keys", "size", "causal", "general")


class BenchAttentionBackward(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in POINTERS]
        + [(name, ctypes.c_int64) for name in NUMBERS]
        + [("dropout", ctypes.c_double)]
        + [("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_int64)]
        + [("stream", ctypes.c_void_p)]
    )


class Call:
    def __init__(self, library, given, causal, workspace, general=False, dropout=0.0):
        self.library, self.given = library, given
        q, k = given[0], given[1]
        self.into = [torch.full_like(x, math.nan) for x in given[:3]]
        batches, heads, queries, size = q.shape
        self.struct = BenchAttentionBackward(
            *(x.data_ptr() for x in (*given, *self.into)),
            batches, heads, k.shape[1], queries, k.shape[2], size, int(causal), int(general),
            dropout, workspace.data_ptr(), workspace.numel(), 0,
        )  # fmt: skip

    def __call__(self):
        self.struct.stream = torch.cuda.current_stream().cuda_stream
        if problem := self.library.octavo_bench_attention_backward(ctypes.byref(self.struct)):
            raise RuntimeError(problem.decode())
        return self.into


def torch_call(backend, q, k, v, d_out, causal):
    with sdpa_kernel(backend):
        made = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return lambda: torch.autograd.grad(made, (q, k, v), d_out, retain_graph=True)


def exact(q, k, v, d_out, causal):
    q, k, v, d_out = (x[-1, -1].double() for x in (q, k, v, d_out))
    scale = 1 / math.sqrt(q.shape[1])
    scores = q @ k.T * scale
    if causal:
        scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    p = scores.softmax(1)
    d_v = p.T @ d_out
    d_p = d_out @ v.T
    d_s = p * (d_p - (p * d_p).sum(1, keepdim=True)) * scale
    return d_s @ k, d_s.T @ q, d_v


def times(calls: dict, repeats: int) -> dict:
    """Median milliseconds of calls that take turns."""
    for call in calls.values():
        for _ in range(3):
            call()
    pairs = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            pairs[name].append((begin, end))
    torch.cuda.synchronize()
    return {n: statistics.median(b.elapsed_time(e) for b, e in ps) for n, ps in pairs.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel_calls")
    parser.add_argument("--json")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    library = ctypes.CDLL(args.kernel_calls)
    library.octavo_bench_attention_backward.restype = ctypes.c_char_p
    library.octavo_bench_attention_backward.argtypes = [ctypes.c_void_p]
    workspace = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    torch.manual_seed(1)
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    facts["cudnn"] = torch.backends.cudnn.version()
    results, good = [], True
    print(f"{facts['device']}, torch {facts['torch']}, cuDNN {facts['cudnn']}")
    print(f"{'shape':<24}{'what':<22}{'ms':>9}{'TFLOPS':>8}{'of cuDNN':>9}  errors of dQ, dK, dV")
    for shape in SHAPES:
        batches, heads, tokens, size, causal = shape
        name = f"{batches}x{heads}x{tokens}x{size}" + (" causal" if causal else "")
        if args.only not in name:
            continue
        q, k, v = (
            torch.randn(
                batches, heads, tokens, size, device="cuda", dtype=torch.bfloat16
            ).requires_grad_()
            for _ in range(3)
        )
        d_out = torch.randn_like(q)
        with torch.no_grad():
            out, lse = torch.ops.aten._scaled_dot_product_flash_attention(
                q, k, v, 0.0, causal, return_debug_mask=False
            )[:2]
        given = [q.detach(), k.detach(), v.detach(), d_out, out.contiguous(), lse.contiguous()]
        calls = {"octavo": Call(library, given, causal, workspace)}
        if size == 128 and tokens == 4096:
            calls["octavo, dropout"] = Call(library, given, causal, workspace, dropout=0.1)
        for title, backend in (
            ("torch, cuDNN", SDPBackend.CUDNN_ATTENTION),
            ("torch, flash", SDPBackend.FLASH_ATTENTION),
        ):
            calls[title] = torch_call(backend, q, k, v, d_out, causal)
        wanted = exact(*given[:4], causal)
        flop = 10 * batches * heads * tokens * tokens * size / (2 if causal else 1)
        timed = times(calls, args.repeats)
        for title, ms in timed.items():
            errors = []
            if "dropout" not in title:
                errors = [
                    float((x[-1, -1].double() - y).norm() / y.norm())
                    for x, y in zip(calls[title](), wanted, strict=True)
                ]
            good &= not errors or max(errors) < 8e-3
            row = {"shape": name, "what": title, "ms": ms, "tflops": flop / ms * 1e-9}
            row |= {"of_cudnn": timed["torch, cuDNN"] / ms, "rel_l2": errors}
            results.append(row)
            print(
                f"{name:<24}{title:<22}{ms:>9.3f}{row['tflops']:>8.0f}{row['of_cudnn']:>9.3f}  "
                + " ".join(f"{x:.1e}" for x in errors),
                flush=True,
            )
        first = [x.clone() for x in calls["octavo"]()]
        for _ in range(3):
            same = all(map(torch.equal, calls["octavo"](), first))
            good &= same
            if not same:
                print(f"{name}: other bits in another call")
        if args.json:
            with open(args.json, "w") as file:
                json.dump(facts | {"repeats": args.repeats, "results": results}, file, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
