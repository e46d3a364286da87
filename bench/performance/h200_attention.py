"""Attention on an H200."""

from __future__ import annotations

from .results import Result, section, table, times


def forward(result: Result) -> str:
    rows = [row for row in result.data["results"] if "tflops" in row and "graph" not in row["what"]]
    shapes = dict.fromkeys(row["shape"] for row in rows)
    found = {(row["shape"], row["what"]): row for row in rows}

    def ours(shape: str, what: str) -> str:
        row = found[shape, what]
        return f"{row['tflops']:.0f} ({row['kernel_tflops']:.0f}), {row['rel_l2']:.1e}"

    def torch(shape: str, what: str) -> str:
        return f"{found[shape, what]['tflops']:.0f}"

    means = [row["mean"] for row in result.data["results"] if "v_is_one" in row]
    keys = [row["v_is_one"] for row in result.data["results"] if "v_is_one" in row]
    off = max(abs(mean - 1) for mean in means)
    one = f"within {off:.0e} of 1" if off > 0 else "1"
    return section(
        "### Forward attention",
        "TFLOP/s of whole calls and, in brackets, of the kernel alone; then the error: relative, "
        "L2, against float64 attention of the same operands. Batches x heads x tokens x head size; "
        "a causal mask halves the operations. Calls prepare V and compute rows in doubt again; "
        "`strict` and `fast` read e4m3 codes with a scale a head, `bf16` values. Beside them "
        f"torch {result.data['torch']} in bfloat16, same run. Where V is 1 the mean of the output "
        f"is {one} on every rung, for {min(keys)} to {max(keys)} keys.",
        table(
            ["shape", "`fast`", "`strict`", "`bf16`", "cuDNN", "flash"],
            [
                [
                    shape.replace("x", " x "),
                    *(ours(shape, what) for what in ("fast", "strict", "bf16")),
                    *(torch(shape, what) for what in ("torch, cuDNN bf16", "torch, flash bf16")),
                ]
                for shape in shapes
                if (shape, "fast") in found
            ],
        ),
        result.measured("bench/cuda/attention_bench.py"),
    )


def gradients(result: Result) -> str:
    data = result.data
    found: dict = {}
    for row in data["results"]:
        found.setdefault(row["shape"], {})[row["what"]] = row

    def cell(row: dict | None, beside: dict) -> str:
        if row is None:
            return ""
        return f"{row['tflops']:.0f}, {times(beside['ms'] / row['ms'])}"

    rows = [
        [
            shape.replace("x", " x "),
            f"{found[shape]['octavo']['tflops']:.0f}",
            *(cell(by.get(name), by["octavo"]) for name in ("torch, cuDNN", "torch, flash")),
            f"{max(by['octavo']['rel_l2']):.1e}",
            f"{max(by['torch, cuDNN']['rel_l2']):.1e}",
            f"{by['octavo, dropout']['tflops']:.0f}" if "octavo, dropout" in by else "",
        ]
        for shape, by in found.items()
    ]
    return section(
        "### Gradients of attention",
        "TFLOP/s of whole calls in bfloat16, batches x heads x tokens x head size, output and "
        "log-sum-exp given, beside the two of torch "
        f"{data['torch']} in the same run and how many times octavo's speed they have. A causal "
        "mask halves the operations. Errors: relative, L2, the largest of dQ, dK and dV against "
        "float64. octavo's bits are the same in every call.",
        table(
            ["shape", "octavo", "cuDNN", "flash", "error", "cuDNN's error", "octavo, dropout"], rows
        ),
        result.measured("bench/cuda/attention_backward_bench.py"),
    )
