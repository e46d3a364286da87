"""Which is faster for a plain GEMM on this GPU, octavo's kernels or cuBLASLt: prints the rows of
octavo/backend/cuda/gemm/cublaslt_table.h.

    cublaslt_table.py KERNEL_CALLS [--json FILE] [--kinds NAME,...] [--repeats N] [--seconds S]

KERNEL_CALLS is the shared library built from bench/cuda/gemm_kernel_calls.cc. A grid of shapes;
each stands for all shapes that are nearer to it than to its neighbours, by factors. Both are
interleaved, L2 is flushed before each call, times are medians between CUDA events. octavo's kernels
are chosen where they are not slower by more than a MARGIN: their sums have one order whatever the
shape. Some elements of every result are compared with the product in float64.
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

KINDS = ("bf16", "f16", "fp8_tensor", "fp8_row")  # in the order of GemmKind
ROWS = (16, 64, 128, 256, 512, 1024, 4096, 8192)
COLS = (1024, 4096, 8192, 16384)
DEPTHS = (1024, 4096, 8192)
# FP8 by octavo also has the bits of the CPU's `hopper_fp8`, for any number of rows: worth a tenth.
MARGIN = {"bf16": 1.02, "f16": 1.02, "fp8_tensor": 1.10, "fp8_row": 1.10}
# One rounding to bf16 is off by 2^-9 of a number at most, by 0.6 of that in the mean of squares.
MOST_ERROR = 3e-3
Cell = tuple[int, int, int]


class BenchProduct(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("a", "b", "a_scales", "b_scales", "out")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k")),
    ]


def ranges(sizes: tuple[int, ...]) -> list[tuple[int, int | None]]:
    """Half-open ranges [from, below), split at the geometric mean of neighbours."""
    edges = [round(math.sqrt(a * b)) for a, b in itertools.pairwise(sizes)]
    return list(zip([sizes[0], *edges], [*edges, None], strict=True))


def runs(flags: list) -> list[tuple[int, int, object]]:
    """Neighbours with the same content: the first, the last, the content."""
    found = []
    for i, flag in enumerate(flags):
        if found and found[-1][2] == flag:
            found[-1] = (found[-1][0], i, flag)
        else:
            found.append((i, i, flag))
    return found


def boxes(faster: dict[Cell, bool], shape: Cell) -> list[tuple[Cell, Cell]]:
    """Disjoint boxes of cells where cuBLASLt is faster: the first and the last cell of each."""
    made = []
    planes = []
    for i in range(shape[0]):
        lines = []
        for j in range(shape[1]):
            cells = runs([faster[i, j, k] for k in range(shape[2])])
            lines.append(tuple((a, b) for a, b, is_faster in cells if is_faster))
        planes.append(tuple((a, b, line) for a, b, line in runs(lines) if line))
    for first, last, plane in runs(planes):
        for above, below, line in plane:
            for left, right in line:
                made.append(((first, above, left), (last, below, right)))
    return made


def as_cpp(kind: str, box: tuple[Cell, Cell], axes: tuple) -> str:
    """A row of the table."""
    parts = [f".kind = GemmKind::{kind}"]
    for name, axis, first, last in zip("mnk", axes, box[0], box[1], strict=True):
        start, stop = axis[first][0], axis[last][1]
        if name != "m" and first == 0:
            start = 0  # shapes shorter than all that was measured go with the shortest
        bounds = [f".from = {start}"] if start else []
        bounds += [f".below = {stop}"] if stop is not None else []
        if bounds:
            parts.append(f".{name} = {{{', '.join(bounds)}}}")
    return f"    {{{', '.join(parts)}, .library = true}},"


def table(results: list[dict], kinds: list[str]) -> list[str]:
    axes = tuple(ranges(sizes) for sizes in (ROWS, COLS, DEPTHS))
    lines = []
    for kind in kinds:
        faster = {cell: False for cell in itertools.product(*(range(len(axis)) for axis in axes))}
        for r in results:
            if r["kind"] == kind and "library" in r["us"]:
                cell = (ROWS.index(r["m"]), COLS.index(r["n"]), DEPTHS.index(r["k"]))
                faster[cell] = r["us"]["own"] > MARGIN[kind] * r["us"]["library"]
        lines += [as_cpp(kind, box, axes) for box in boxes(faster, tuple(map(len, axes)))]
    return lines


class Operands:
    """Random elements, enough for the largest shape; smaller ones are made of the first of them."""

    def __init__(self, torch, kind: str):
        self.torch, self.kind = torch, kind
        most = max(max(ROWS), max(COLS))
        dtype = torch.float16 if kind == "f16" else torch.bfloat16
        self.out_dtype = dtype
        self.elements, self.scales = [], []
        for rows in (max(ROWS), max(COLS)):
            values = torch.randn(rows * max(DEPTHS), device="cuda", dtype=dtype)
            is_fp8 = kind.startswith("fp8")
            self.elements.append(values.to(torch.float8_e4m3fn) if is_fp8 else values)
            self.scales.append(torch.rand(most, device="cuda") + 0.5)
        self.out = torch.empty(max(ROWS) * max(COLS), device="cuda", dtype=dtype)

    def product(self, m: int, n: int, k: int) -> BenchProduct:
        a, b = (x.data_ptr() for x in self.elements)
        sa, sb = (x.data_ptr() for x in self.scales)
        return BenchProduct(KINDS.index(self.kind), a, b, sa, sb, self.out.data_ptr(), m, n, k)

    def error(self, m: int, n: int, k: int) -> float:
        """Relative error of the corners of the result, all elements together."""
        rows = [*range(min(4, m)), m - 1]
        cols = [*range(min(64, n)), n - 1]
        numbers = []
        for elements, scales, chosen in zip(self.elements, self.scales, (rows, cols), strict=True):
            of = self.torch.stack([elements[i * k : (i + 1) * k] for i in chosen]).double()
            if self.kind == "fp8_row":
                of *= scales[chosen].double()[:, None]
            elif self.kind == "fp8_tensor":
                of *= scales[0].double()
            numbers.append(of)
        exact = numbers[0] @ numbers[1].t()
        got = self.out[: m * n].view(m, n)[rows][:, cols].double()
        return float((got - exact).norm() / exact.norm())


def host_time(torch, call) -> float:
    """Host microseconds to queue a call."""
    each = []
    for _ in range(200):
        begin = time.perf_counter()
        call()
        each.append(time.perf_counter() - begin)
        torch.cuda.synchronize()
    return 1e6 * statistics.median(each)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel_calls")
    parser.add_argument("--json")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=85, help="begin no shape after so many")
    args = parser.parse_args()
    kinds = args.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"got kinds {', '.join(sorted(unknown))}; expected some of {', '.join(KINDS)}")
    import torch
    from gemm_bench import times_interleaved  # beside this file

    start = time.monotonic()
    kernel_calls = ctypes.CDLL(args.kernel_calls)
    kernel_calls.octavo_bench_gemm_by.restype = ctypes.c_char_p
    kernel_calls.octavo_bench_gemm_by.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int,
    ]  # fmt: skip
    flush = torch.empty(128 << 20, dtype=torch.int8, device="cuda")  # L2 has 50 MiB
    workspace = torch.empty(64 << 20, dtype=torch.int8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    torch.manual_seed(1)
    results, hosts, good, whole = [], {}, True, True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'kind':<12}{'M,N,K':<18}{'own us':>9}{'library':>9}{'own/lib':>9}{'errors':>18}")
    for kind in kinds:
        operands = Operands(torch, kind)
        for m, n, k in itertools.product(ROWS, COLS, DEPTHS):
            if time.monotonic() - start > args.seconds:
                whole = False
                break
            product = operands.product(m, n, k)

            def call_of(by_library: int, product=product):
                def multiply():
                    problem = kernel_calls.octavo_bench_gemm_by(
                        ctypes.byref(product), workspace.data_ptr(), workspace.numel(), stream,
                        by_library,
                    )  # fmt: skip
                    if problem:
                        raise RuntimeError(problem.decode())

                return multiply

            calls, errors = {}, {}
            for name, by_library in (("own", 0), ("library", 1)):
                call = call_of(by_library)
                operands.out.fill_(math.nan)
                try:
                    call()
                except RuntimeError as problem:
                    print(f"{name} does not do {kind} {m},{n},{k}: {problem}")
                    good &= name == "library"
                    continue
                errors[name] = operands.error(m, n, k)
                good &= errors[name] < MOST_ERROR  # NaN is not
                calls[name] = call
            timed = times_interleaved(calls, args.repeats, flush, warm=0.01)
            us = {name: 1e3 * ms for name, ms in timed.items()}
            if "own" not in us:
                continue
            ratio = us["own"] / us.get("library", math.nan)
            print(
                f"{kind:<12}{f'{m},{n},{k}':<18}{us['own']:>9.1f}"
                f"{us.get('library', math.nan):>9.1f}{ratio:>9.3f}  "
                + ", ".join(f"{e:.1e}" for e in errors.values()),
                flush=True,
            )
            results.append({"kind": kind, "m": m, "n": n, "k": k, "us": us, "errors": errors})
            if (m, n, k) == (ROWS[1], COLS[0], DEPTHS[0]):
                hosts[kind] = {name: host_time(torch, call) for name, call in calls.items()}
        del operands
    print("\nhost time per call through the kernel table, us:")
    for kind, of in hosts.items():
        print(f"  {kind:<12}" + ", ".join(f"{name} {us:.1f}" for name, us in of.items()))
    rows = table(results, kinds)
    print(
        f"\nrows of octavo/backend/cuda/gemm/cublaslt_table.h ({time.monotonic() - start:.0f} s):"
    )
    print("\n".join(rows) or "    none: octavo's kernels everywhere")
    if not whole:
        print("out of time: shapes that were not timed are left to octavo's kernels")
        good = False
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "repeats": args.repeats, "margin": MARGIN, "host_us": hosts, "rows": rows,
                       "results": results}, file, indent=1)  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
