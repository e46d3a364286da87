"""Decode attention on an H200, beside torch's and the copy rate."""

from __future__ import annotations

from .results import Result, section, table, times

NAMES = {
    "e4m3, a scale per tensor": "e4m3 per tensor",
    "e4m3, a scale per token": "per token",
    "e4m3, a scale per token, pages of 16": "pages of 16",
    "e4m3, a scale per token, pages of 64": "pages of 64",
    "e4m3, a scale per token, pages of 256": "pages of 256",
    "bf16": "bf16",
    "torch, bf16": "torch bf16",
}
LONG = 1 << 29  # bytes of codes


def decode(result: Result) -> str:
    data = result.data
    shapes: dict = {}
    for row in data["results"]:
        shapes.setdefault(tuple(row["shape"]), {})[row["name"]] = row

    def rate(found: dict, name: str) -> str:
        row = found.get(name)
        return "" if row is None else f"{row['tb_per_s']:.2f}, {times(row['of_copy'])}"

    def us(found: dict, name: str) -> str:
        row = found.get(name)
        return "" if row is None else f"{row['us']:.1f}"

    def label(shape: tuple) -> str:
        batches, heads, kv_heads, queries, keys, size = shape
        return f"{batches} x {heads} on {kv_heads} heads, {queries} of {keys}, {size}"

    def is_long(found: dict) -> bool:
        return found["e4m3, a scale per tensor"]["bytes"] >= LONG

    head = ["batches x heads, queries of keys, head size", *NAMES.values()]
    return section(
        "### Decode attention",
        f"In TB/s of K, V and their scales, each byte once, and beside a copy's bytes read and "
        f"written, {data['copy_tb_per_s']:.2f} TB/s in the same run. torch {data['torch']} is "
        "`scaled_dot_product_attention` in bfloat16; pages are of 16, 64 or 256 tokens, scattered, "
        "heads side by side.",
        table(
            head,
            [
                [label(shape), *(rate(found, name) for name in NAMES)]
                for shape, found in shapes.items()
                if is_long(found)
            ],
        ),
        "Short ones, in us:",
        table(
            head,
            [
                [label(shape), *(us(found, name) for name in NAMES)]
                for shape, found in shapes.items()
                if not is_long(found)
            ],
        ),
        result.measured("bench/cuda/attention_decode_bench.py"),
    )
