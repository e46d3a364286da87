"""How fast is GEMM in FP8, MX and FP4? See README.md beside this file."""

from __future__ import annotations

import sys

from bench.common.workers import run_question

_shape: list[int] = []


def print_row(row: dict) -> None:
    if "peaks" in row:
        peaks = ", ".join(f"{name} {rate:.1f}" for name, rate in row["peaks"].items())
        print(
            f"peak of a core, GFLOP/s: {peaks or 'unknown, bench_probe is not built'}", flush=True
        )
        return
    if row["shape"] != _shape:
        _shape[:] = row["shape"]
        beside = ", ".join(f"{name} {rate:.2f}" for name, rate in row["rivals"].items())
        print(f"{' x '.join(map(str, _shape))} (M x N x K), GFLOP/s: {beside}", flush=True)
    ratios = "  ".join(f"{ratio:6.2f} x {rival}" for rival, ratio in row["ratios"].items())
    share = f"{row['of_peak']:5.2f} of {row['peak']}" if row["peak"] else ""
    verdict = ""
    if "holds" in row:
        asked = ", ".join(f">= {least:g} x {rival}" for rival, least in row["at_least"].items())
        verdict = f"{asked} {'' if row['holds'] else 'MISSED'}"
    print(
        f"  {row['case'] + ' -> ' + row['out']:<34}{row['gflops']:8.2f}  {ratios}  {share:<18} "
        f"{verdict}".rstrip(),
        flush=True,
    )


if __name__ == "__main__":
    packages = ("octavo", "torch", "numpy")
    sys.exit(run_question("gemm", __doc__, packages, print_row, has_quick=True))
