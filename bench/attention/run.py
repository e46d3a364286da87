"""Speed of low-precision attention. See README.md in this folder."""

from __future__ import annotations

import sys

from bench.common.workers import run_question

_shape: list[int] = []


def print_decode(row: dict) -> None:
    rates = ", ".join(f"{name} {rate / 1e6:.2f}" for name, rate in row["tokens_per_second"].items())
    verdict = "" if row.get("holds", True) else " MISSED"
    auto = "" if row.get("auto_holds", True) else " MISSED"
    print(
        f"one query, {row['decode']} keys, {row['heads']} heads on {row['kv_heads']} of "
        f"{row['size']}, "
        f"million keys a second: {rates}; fp8 {row['ratio']:.2f} x bf16, "
        f">= {row['at_least']:g}{verdict}; auto takes {row['auto_takes']:.2f} x as long, "
        f"<= {row['auto_at_most']:g}{auto}",
        flush=True,
    )


def print_row(row: dict) -> None:
    if "peaks" in row:
        peaks = ", ".join(f"{name} {rate:.1f}" for name, rate in row["peaks"].items())
        print(
            f"peak of a core, GFLOP/s: {peaks or 'unknown, bench_probe is not built'}", flush=True
        )
        return
    if "decode" in row:
        print_decode(row)
        return
    if "gradients" in row:
        times = ", ".join(f"{name} {1e3 * s:.1f}" for name, s in row["seconds"].items())
        print(
            f"gradients, {row['gradients']} tokens of {row['size']}, {row['heads']} heads, ms: "
            f"{times}; {row['ratio']:.2f} x torch f32",
            flush=True,
        )
        return
    shape = [row["tokens"], row["size"]]
    if shape != _shape:
        _shape[:] = shape
        beside = ", ".join(f"{name} {rate:.2f}" for name, rate in row["rivals"].items())
        print(f"{shape[0]} tokens of {shape[1]}, {row['heads']} heads, GFLOP/s: {beside}")
    ratios = "  ".join(f"{ratio:6.2f} x {rival}" for rival, ratio in row["ratios"].items())
    share = f"{row['of_peak']:5.2f} of {row['peak']}" if row["peak"] else ""
    verdict = ""
    if "holds" in row:
        asked = ", ".join(f">= {least:g} x {rival}" for rival, least in row["at_least"].items())
        verdict = f"{asked} {'' if row['holds'] else 'MISSED'}"
    print(
        f"  {row['case']:<10}{row['gflops']:8.2f} {row['us_per_head']:12.1f} us a head  "
        f"{ratios:<42}  {share:<18} {verdict}".rstrip(),
        flush=True,
    )


if __name__ == "__main__":
    packages = ("octavo", "torch", "numpy")
    sys.exit(run_question("attention", __doc__, packages, print_row, has_quick=True))
