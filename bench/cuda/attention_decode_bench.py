"""Decode attention on a GPU: octavo's FP8 and bf16 KV caches, contiguous and in pages, beside
torch's attention and the copy rate of the same run.

    attention_decode_bench.py KERNEL_CALLS [--json FILE] [--repeats N]

KERNEL_CALLS is the shared library built from bench/cuda/attention_decode_kernel_calls.cc. Times
are medians of runs of a captured graph by CUDA events, all cases in turn; K and V are larger than
the L2. A rate counts every byte of K and V, and their scales, once. Errors are against float64
attention of the same codes, for one head, as a part of the largest |V|.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys

import torch
import torch.nn.functional as functional

E4M3 = torch.float8_e4m3fn
# Batches, heads, KV heads, queries, keys, head size.
SHAPES = [
    (32, 32, 8, 1, 16384, 128),
    (32, 64, 8, 1, 16384, 128),
    (8, 32, 32, 1, 16384, 128),
    (32, 32, 8, 2, 16384, 128),
    (1, 32, 8, 1, 524288, 128),
    (64, 32, 8, 1, 16384, 64),
    (16, 32, 8, 1, 16384, 256),
    (1, 32, 8, 1, 8192, 128),
    (64, 32, 8, 1, 512, 128),
]
PAGES = (16, 64, 256)


class BenchOperand(ctypes.Structure):
    _fields_ = [
        ("elements", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("batch", "head", "row")],
        ("scales", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("scale_batch", "scale_head", "scale_row")],
    ]


class BenchDecode(ctypes.Structure):
    _fields_ = [
        *[(name, BenchOperand) for name in ("q", "k", "v")],
        ("out", ctypes.c_void_p),
        *[
            (name, ctypes.c_int64)
            for name in ("batches", "heads", "kv_heads", "queries", "keys", "size")
        ],
        ("table", ctypes.c_void_p),
        *[(name, ctypes.c_int64) for name in ("table_pitch", "page_rows", "page_count")],
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_int64),
        ("stream", ctypes.c_void_p),
    ]


class Operand:
    """[batch or page, head, row, size] in any order of memory: bf16, or e4m3 with scales."""

    def __init__(self, elements: torch.Tensor, scales: torch.Tensor | None = None):
        self.elements, self.scales = elements, scales

    def numbers(self, batch: int, head: int) -> torch.Tensor:
        numbers = self.elements[batch, head].double()
        return numbers if self.scales is None else numbers * self.scales[batch, head].double()

    def nbytes(self) -> int:
        scales = 0 if self.scales is None else self.scales.numel() * 4
        return self.elements.numel() * self.elements.element_size() + scales

    def struct(self) -> BenchOperand:
        size = self.elements.element_size()
        pitches = [stride * size for stride in self.elements.stride()[:3]]
        if self.scales is None:
            return BenchOperand(self.elements.data_ptr(), *pitches, None, 0, 0, 0)
        of_scales = [
            0 if count == 1 else stride * 4
            for count, stride in zip(self.scales.shape, self.scales.stride(), strict=True)
        ]
        return BenchOperand(
            self.elements.data_ptr(), *pitches, self.scales.data_ptr(), *of_scales[:3]
        )


def quantized(values: torch.Tensor, dims: tuple[int, ...]) -> Operand:
    amax = values.abs().amax(dim=dims, keepdim=True).float().clamp(min=1e-12)
    codes = torch.empty(values.shape, dtype=E4M3, device=values.device)
    scales = amax / 448.0
    for batch in range(values.shape[0]):  # a batch at a time: float32 of all would be large
        scale = scales[batch] if scales.shape[0] > 1 else scales[0]
        codes[batch] = (values[batch].float() / scale).to(E4M3)
    return Operand(codes, scales)


def in_pages(of: Operand, rows: int, place: torch.Tensor) -> Operand:
    """The same tokens at these places of a pool: codes in pages [row, head, size], as vLLM keeps
    them, scales in pages [head, row]."""

    def moved(x: torch.Tensor, heads_first: bool) -> torch.Tensor:
        batches, heads, keys, size = x.shape
        pages = x.reshape(batches, heads, keys // rows, rows, size)
        pages = pages.permute(0, 2, 1, 3, 4) if heads_first else pages.permute(0, 2, 3, 1, 4)
        pool = torch.empty((place.numel(), *pages.shape[2:]), dtype=x.dtype, device=x.device)
        as_bytes = torch.uint8 if x.element_size() == 1 else x.dtype
        pool.view(as_bytes)[place.flatten()] = pages.reshape(pool.shape).view(as_bytes)
        return pool if heads_first else pool.permute(0, 2, 1, 3)

    scales = of.scales
    if scales is not None and scales.numel() > 1:
        scales = moved(scales, True)
    return Operand(moved(of.elements, False), scales)


class Call:
    def __init__(self, library, q, k, v, keys, workspace, table=None):
        self.library, self.k, self.v, self.table = library, k, v, table
        self.q, self.out = Operand(q), torch.full_like(q, float("nan"))
        batches, heads, queries, size = q.shape
        pages = (table.data_ptr(), table.stride(0)) if table is not None else (None, 0)
        self.struct = BenchDecode(
            self.q.struct(), k.struct(), v.struct(), self.out.data_ptr(), batches, heads,
            k.elements.shape[1], queries, keys, size, *pages, k.elements.shape[2],
            k.elements.shape[0], workspace.data_ptr(), workspace.numel(), 0,
        )  # fmt: skip

    def nbytes(self) -> int:
        return self.k.nbytes() + self.v.nbytes()

    def __call__(self):
        self.struct.stream = torch.cuda.current_stream().cuda_stream
        if problem := self.library.octavo_bench_decode(ctypes.byref(self.struct)):
            raise RuntimeError(problem.decode())


def graph_of(run) -> torch.cuda.CUDAGraph:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def medians(graphs: dict[str, torch.cuda.CUDAGraph], repeats: int) -> dict[str, float]:
    """Microseconds."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(repeats + 2):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 2:
                times[name].append(start.elapsed_time(end) * 1e3)
    return {name: statistics.median(all_of) for name, all_of in times.items()}


def error_of(out, q, k: Operand, v: Operand, group: int) -> float:
    """Of the last batch's last head."""
    keys, values = k.numbers(-1, -1), v.numbers(-1, -1)
    rows = q[-1, -1].double()
    queries, count = rows.shape[0], keys.shape[0]
    scores = rows @ keys.T / q.shape[-1] ** 0.5
    seen = torch.arange(count, device=q.device) <= (
        torch.arange(queries, device=q.device)[:, None] + count - queries
    )
    exact = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ values
    return float((out[-1, -1].double() - exact).abs().max() / values.abs().max())


def measure(library, shape, workspace, repeats: int, copy_rate: float) -> list[dict]:
    batches, heads, kv_heads, queries, keys, size = shape
    generator = torch.Generator(device="cuda").manual_seed(1)

    def drawn(count: int, rows: int) -> torch.Tensor:
        return torch.randn(
            (batches, count, rows, size), device="cuda", dtype=torch.bfloat16, generator=generator
        )

    q, k, v = drawn(heads, queries), drawn(kv_heads, keys), drawn(kv_heads, keys)
    formats = {
        "bf16": (Operand(k), Operand(v)),
        "e4m3, a scale per tensor": (quantized(k, (0, 1, 2, 3)), quantized(v, (0, 1, 2, 3))),
        "e4m3, a scale per token": (quantized(k, (3,)), quantized(v, (3,))),
    }
    calls = {name: Call(library, q, *kv, keys, workspace) for name, kv in formats.items()}
    token = formats["e4m3, a scale per token"]
    for rows in PAGES if batches > 8 and keys % max(PAGES) == 0 and size == 128 else ():
        places = torch.randperm(batches * keys // rows, device="cuda", generator=generator)
        table = places.reshape(batches, -1).to(torch.int32)
        pools = [in_pages(of, rows, places) for of in token]
        calls[f"e4m3, a scale per token, pages of {rows}"] = Call(
            library, q, *pools, keys, workspace, table
        )
    graphs = {name: graph_of(call) for name, call in calls.items()}
    if queries == 1:
        graphs["torch, bf16"] = graph_of(
            lambda: functional.scaled_dot_product_attention(q, k, v, enable_gqa=heads != kv_heads)
        )
    taken = medians(graphs, repeats)
    results = []
    for name, us in taken.items():
        nbytes = calls[name].nbytes() if name in calls else calls["bf16"].nbytes()
        base = name.split(", pages")[0]
        error = (
            error_of(calls[name].out, q, *formats[base], heads // kv_heads)
            if name in calls
            else None
        )
        rate = nbytes / us / 1e6
        results.append(
            {
                "shape": shape, "name": name, "us": us, "bytes": nbytes, "tb_per_s": rate,
                "of_copy": rate / copy_rate, "error": error,
                "of_bf16": taken["bf16"] / us,
            }
        )  # fmt: skip
        shown = "" if error is None else f" error {error:.1e}"
        print(
            f"{shape!s:34} {name:38} {us:9.1f} us {rate:5.2f} TB/s "
            f"{rate / copy_rate:5.2f} of copy, {taken['bf16'] / us:5.2f} x bf16{shown}",
            flush=True,
        )
    return results


def copy_rate(repeats: int) -> float:
    """TB/s of a copy in device memory, read and written."""
    source = torch.randn((1 << 28,), device="cuda")
    target = torch.empty_like(source)

    class Copy:
        def replay(self) -> None:
            target.copy_(source)

    us = medians({"copy": Copy()}, repeats)["copy"]
    return 2 * source.numel() * source.element_size() / us / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel_calls")
    parser.add_argument("--json")
    parser.add_argument("--repeats", type=int, default=21)
    asked = parser.parse_args()
    library = ctypes.CDLL(asked.kernel_calls)
    library.octavo_bench_decode.restype = ctypes.c_char_p
    workspace = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    rate = copy_rate(asked.repeats)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copy {rate:.2f} TB/s")
    results = []
    for shape in SHAPES:
        results += measure(library, shape, workspace, asked.repeats, rate)
        torch.cuda.empty_cache()
    if asked.json:
        about = {
            "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "copy_tb_per_s": rate, "results": results,
        }  # fmt: skip
        with open(asked.json, "w") as file:
            json.dump(about, file, indent=1)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
