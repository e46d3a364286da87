"""Kernels on an H200 whose limit is memory: casts, quantizers, norms and activations."""

from __future__ import annotations

from .results import Result, missing, section, table

# Of the other formats and roundings two are shown, and for all of them the slowest and the fastest.
WHOLE = ("cast", "quantize", "dequantize", "requantize", "produce")
SOME = {"format": "bfloat16 -> e4m3fnuz", "rounding": "bfloat16 -> e4m3fn stochastic"}


def row_of(row: dict, copy_rate: float) -> list[str]:
    peers = ", ".join(
        f"{peer['how']} {peer['gbps'] / copy_rate:.2f}" for peer in row.get("peers", [])
    )
    bar = row["bar"]
    return [
        row["group"],
        row["case"].replace(", both", ", rows and columns"),
        f"{row['gbps'] / 1000:.2f}",
        f"{row['of_copy']:.2f}",
        f"{bar:.2f}{' missed' if row['of_copy'] < bar else ''}" if bar > 0 else "",
        peers,
    ]


def span(rows: list[dict], group: str) -> str:
    shares = [row["of_copy"] for row in rows if row["group"] == group]
    return f"{len(shares)} cases, {min(shares):.2f} to {max(shares):.2f} of a copy"


def memory_bound(result: Result) -> str:
    data = result.data
    rows, copy_rate = data["results"], data["copy_gbps"]
    shown = [row for row in rows if row["group"] in WHOLE or SOME.get(row["group"]) == row["case"]]
    barred = [row for row in rows if row["bar"] > 0]
    held = missing(row["of_copy"] >= row["bar"] for row in barred)
    gpu, driver, power = data["gpu"].split(", ")
    cuda = data["cuda"]["runtime"]
    return section(
        "### Casts, quantizers, norms and activations",
        f"{data['rows']} x {data['cols']}, from or to bfloat16 where nothing else is said, L2 "
        "cold: bytes that must be moved, in TB/s, and their share of a copy in the same run, "
        f"{copy_rate / 1000:.2f} TB/s. A share above 1 is of a kernel that reads more than it "
        f"writes, where a copy does both alike. torch {data['torch']} in the same run is a share "
        "of a copy, too.",
        table(
            ["", "what", "TB/s", "of a copy", "bar", "torch"],
            (row_of(row, copy_rate) for row in shown),
        ),
        f"Other formats: {span(rows, 'format')}. Other roundings and overflow modes: "
        f"{span(rows, 'rounding')}. {held} What no fast kernel takes goes through general ones, "
        "about a hundred times slower: [cuda-kernels.md](design/cuda-kernels.md) says what.",
        f"{gpu}, driver {driver}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {power.split('.')[0]} "
        f"W, {result.date}: `tools/gpu_check --only build,bench`, kept in {result.link}.",
    )
