"""Products on an H200: FP8 and MX, weights of few bits, groups, a training step of one layer."""

from __future__ import annotations

from .results import Result, section, table, times

KINDS = {
    "tensor": "per tensor",
    "row": "per row",
    "1x128 by 128x128": "1x128 by 128x128",
    "1x128 by 1x128": "1x128 by 1x128",
    "mxfp8": "mxfp8",
}


def shape_of(row: dict) -> tuple[int, int, int]:
    return row["m"], row["n"], row["k"]


def by_shape(data: dict, kind: str) -> dict:
    found: dict = {}
    for row in data["results"]:
        found.setdefault(shape_of(row), {})[row[kind]] = row
    return found


def products(result: Result) -> str:
    data = result.data
    shapes = by_shape(data, "scales")
    rows = [
        [
            " x ".join(map(str, shape)),
            *(f"{found[kind]['tflops']:.0f}, {times(found[kind]['ratio'])}" for kind in KINDS),
        ]
        for shape, found in shapes.items()
    ]
    small = [
        [
            " x ".join(map(str, shape)),
            *(f"{found[kind]['us']['octavo']:.1f}" for kind in KINDS),
            f"{found['tensor']['us']['reading B']:.1f}",
        ]
        for shape, found in shapes.items()
        if "reading B" in found["tensor"]["us"]
    ]
    return section(
        "### FP8 and MX GEMM",
        f"bfloat16 results, in TFLOP/s and beside torch {data['torch']} in the same run: "
        "`torch._scaled_mm`, and for mxfp8 activations dequantized and multiplied in bfloat16, "
        "where octavo aligns exponents in the call. Both promote sums every 128 products. "
        "octavo's figures are of its own kernels (`hopper_fp8`, the bits of any CPU), also where "
        "`native` would leave a product to cuBLASLt.",
        table(["M x N x K", *KINDS.values()], rows),
        "Small M, in us of the kernels alone with L2 cold, and a kernel that only reads B:",
        table(["M x N x K", *KINDS.values(), "reading B"], small),
        result.measured("bench/cuda/gemm_bench.py"),
    )


def weights(result: Result) -> str:
    data = result.data
    shapes = by_shape(data, "weights")
    kinds = list(dict.fromkeys(row["weights"] for row in data["results"]))
    rows = [
        [
            " x ".join(map(str, shape)),
            *(f"{found[k]['us']['octavo']:.1f}, {times(found[k]['ratio'])}" for k in kinds),
        ]
        for shape, found in shapes.items()
    ]
    return section(
        "### bfloat16 activations by quantized weights",
        "us of the kernels alone, L2 cold, conversions of weights inside a call counted, and "
        f"beside the bfloat16 product of torch {data['torch']} in the same run. FP4 weights are "
        "decoded on their way to the tensor cores; FP8 weights for up to 32 rows, and above that "
        "in a pass of their own in every call.",
        table(["M x N x K", *kinds], rows),
        result.measured("bench/cuda/weights_bench.py"),
    )


def groups(result: Result) -> str:
    data = result.data
    found: dict = {}
    for row in data["results"]:
        found.setdefault((row["groups"], row["n"], row["k"]), {})[row["by"]] = row["tflops"]
    sides = list(dict.fromkeys(row["by"] for row in data["results"]))
    names = {
        "octavo mxfp8, w folded": "octavo mxfp8, W aligned before",
        "octavo mxfp8, as it is": "octavo mxfp8, blocks too far apart to align",
    }
    rows = [
        [name, f"{n} x {k}", *(f"{by[side]:.0f}" for side in sides)]
        for (name, n, k), by in found.items()
    ]
    return section(
        "### Grouped products and batches",
        "TFLOP/s of `gemm_grouped` (rows by the expert they belong to) and of a batch, beside "
        f"the grouped and batched products of torch {data['torch']} in the same run, operands "
        "quantized before.",
        table(["groups", "N x K", *(names.get(side, side) for side in sides)], rows),
        result.measured("bench/cuda/grouped_bench.py"),
    )


def layer(result: Result) -> str:
    data = result.data
    rows = [[name, f"{ms:.2f}", times(data["ratio"][name])] for name, ms in data["ms"].items()]
    return section(
        "### A training step of one layer, NVIDIA H200",
        f"Forward and backward of `octavo.torch.Linear`, {data['rows']} rows, {data['in']} to "
        f"{data['out']} features, quantization included, beside `torch.nn.Linear` in bfloat16 "
        f"(torch {data['torch']}).",
        table(["recipe", "ms", "torch bf16"], rows),
        result.measured("bench/cuda/linear_bench.py"),
    )


def choices(table_of: Result, shapes: Result) -> str:
    found = table_of.data["results"]
    faster = {
        kind: sum(row["us"]["library"] < row["us"]["own"] for row in found if row["kind"] == kind)
        for kind in dict.fromkeys(row["kind"] for row in found)
    }
    count = len(found) // len(faster)
    listed = ", ".join(f"{kind} {n}" for kind, n in faster.items())
    return section(
        "### Which kernel does a product",
        f"cuBLASLt was faster than octavo's kernel in so many of {count} shapes: {listed}. A "
        "plain product with a 16-bit result goes to cuBLASLt where it was faster by more than a "
        "margin (2 %, for FP8 10 %): "
        "[cublaslt_table.h](../octavo/backend/cuda/gemm/cublaslt_table.h).",
        f"{table_of.measured('bench/cuda/cublaslt_table.py')} Tile shapes one by one: "
        f"`bench/cuda/gemm_bench.py --shapes`, kept in {shapes.link}.",
    )
