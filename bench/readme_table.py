"""Writes the measured numbers into README.md, from the newest result of each question."""

from __future__ import annotations

import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHOWN = [
    "float32 -> e4m3fn",
    "bfloat16 -> e4m3fn",
    "e4m3fn -> float32",
    "e4m3fn -> bfloat16",
    "float32 -> e5m2",
    "e5m2 -> float32",
    "float32 -> e2m1fn zero",
    "e2m1fn -> float32",
    "float32 -> e8m0fnu",
]

# On a GPU: group and case, and what the README calls it.
SHOWN_ON_DEVICE = {
    ("cast", "float32 -> e4m3fn"): "float32 -> e4m3fn",
    ("cast", "bfloat16 -> e4m3fn"): "bfloat16 -> e4m3fn",
    ("cast", "e4m3fn -> bfloat16"): "e4m3fn -> bfloat16",
    ("format", "bfloat16 -> e4m3fnuz"): "bfloat16 -> e4m3fnuz",
    ("rounding", "bfloat16 -> e4m3fn stochastic"): "bfloat16 -> e4m3fn, stochastic",
    ("quantize", "fp8, current"): "quantize fp8, current scaling",
    ("quantize", "fp8-channel"): "quantize fp8-channel",
    ("quantize", "fp8-1x128"): "quantize fp8-1x128",
    ("quantize", "mxfp8, row"): "quantize mxfp8",
    ("quantize", "mxfp8, both"): "quantize mxfp8, rows and columns",
    ("quantize", "nvfp4, tensor amax given"): "quantize nvfp4, amax given",
    ("produce", "rms_norm + mxfp8"): "rms_norm + quantize mxfp8",
    ("dequantize", "mxfp8"): "dequantize mxfp8",
    ("requantize", "mxfp8 to fp8"): "requantize mxfp8 to fp8",
}


def table(result: pathlib.Path) -> str:
    data = json.loads(result.read_text())
    cores = sorted(data["runs"], key=int)
    rows = {count: {row["case"]: row for row in data["runs"][count]} for count in cores}
    versions = data["versions"]
    lines = [
        "Billions of elements a second, 16 million elements, outputs reused, and how many times the",
        f"rival's speed in the same run (torch {versions['torch']}, ml_dtypes {versions['ml_dtypes']}):",
        "",
        "| conversion | rival |" + "".join(f" {c} core{'s' * (c != '1')} | |" for c in cores),
        "|---|---|" + "---|---|" * len(cores),
    ]
    for name in SHOWN:
        cells = [
            f" {rows[c][name]['gel_per_s']:.2f} | {rows[c][name]['ratio']:.1f} x |" for c in cores
        ]
        lines.append(
            f"| {name.removesuffix(' zero')} | {rows[cores[0]][name]['rival']} |" + "".join(cells)
        )
    features = ", ".join(data["machine"]["cpu"]["features"])
    lines += [
        "",
        f"aarch64 with {features}; `python -m bench.convert.run`, kept in",
        f"[{result.relative_to(ROOT)}]({result.relative_to(ROOT)}), which has the other rounding and",
        "overflow modes too. Stochastic rounding runs at about a quarter of nearest even: its random",
        "bits cost more than the rounding.",
    ]
    return "\n".join(lines)


def quantizers(result: pathlib.Path) -> str:
    data = json.loads(result.read_text())
    cores = sorted(data["runs"], key=int)
    shown = [
        row
        for row in data["runs"][cores[0]]
        if row.get("rival") in ("torchao", "torch", "two passes")
    ]
    rows = {
        count: {(row["case"], row.get("rival")): row for row in data["runs"][count]}
        for count in cores
    }
    versions = data["versions"]
    lines = [
        "Quantizers, 4096 x 4096, in the same units "
        f"(torchao {versions['torchao']}; for one scale a tensor the eager torch expression):",
        "",
        "| quantization | rival |" + "".join(f" {c} core{'s' * (c != '1')} | |" for c in cores),
        "|---|---|" + "---|---|" * len(cores),
    ]
    for first in shown:
        found = [rows[c][first["case"], first["rival"]] for c in cores]
        cells = [f" {row['gel_per_s']:.2f} | {row['ratio']:.1f} x |" for row in found]
        lines.append(f"| {first['case']} | {first['rival']} |" + "".join(cells))
    lines += [
        "",
        f"`python -m bench.quantize.run`, kept in [{result.name}]({result.relative_to(ROOT)}).",
    ]
    return "\n".join(lines)


def products(result: pathlib.Path) -> str:
    data = json.loads(result.read_text())
    first, *others = sorted(data["runs"], key=int)
    rows = {
        count: {(row["case"], *row["shape"]): row for row in found if row.get("out") == "float32"}
        for count, found in data["runs"].items()
    }
    rivals = list(next(iter(rows[first].values()))["rivals"])
    peaks = next(row["peaks"] for row in data["runs"][first] if "peaks" in row)
    lines = [
        "Matrix products [M, K] x [N, K]^T with float32 results, in GFLOP/s; on one core beside",
        f"torch {data['versions']['torch']} in the same run, and as a share of the core's probed peak:",
        "",
        "| operands | M x N x K | 1 core |"
        + "".join(f" {rival} |" for rival in rivals)
        + " of the peak |"
        + "".join(f" {count} cores |" for count in others),
        "|---|---|---|" + "---|" * (len(rivals) + 1 + len(others)),
    ]
    for key, row in rows[first].items():
        ratios = "".join(f" {row['ratios'][rival]:.2f} x |" for rival in rivals)
        share = f"{row['of_peak']:.2f} {row['peak']}" if row["peak"] else ""
        more = "".join(f" {rows[count][key]['gflops']:.1f} |" for count in others)
        shape = " x ".join(map(str, row["shape"]))
        lines.append(f"| {row['case']} | {shape} | {row['gflops']:.1f} |{ratios} {share} |{more}")
    listed = ", ".join(f"{name} {rate:.1f}" for name, rate in peaks.items())
    held = [row["holds"] for found in data["runs"].values() for row in found if "holds" in row]
    lines += [
        "",
        f"Peaks of a core in GFLOP/s: {listed or 'not probed'}. `python -m bench.gemm.run`, kept in",
        f"[{result.name}]({result.relative_to(ROOT)}), which has bfloat16 results too;",
        f"of {len(held)} cases of which a ratio is asked, {len(held) - sum(held)} miss it.",
    ]
    return "\n".join(lines)


def device(result: pathlib.Path) -> str:
    data = json.loads(result.read_text())
    rows = {(row["group"], row["case"]): row for row in data["results"]}
    asked = [row for row in data["results"] if row["bar"] > 0]
    missed = sum(row["of_copy"] < row["bar"] for row in asked)
    gpu, driver, power = data["gpu"].split(", ")
    cuda = data["cuda"]["runtime"]
    lines = [
        f"On an {gpu}, {data['rows']} x {data['cols']}, from or to bfloat16 where nothing else is "
        "said: bytes that must be moved,",
        "in TB/s, and their share of the rate of a copy in the same run, "
        f"{data['copy_gbps'] / 1000:.2f} TB/s:",
        "",
        "| what | TB/s | of a copy | asked | | torch in the same run, of a copy |",
        "|---|---|---|---|---|---|",
    ]
    for key, name in SHOWN_ON_DEVICE.items():
        row = rows[key]
        bar = f" {row['bar']:.2f}" if row["bar"] > 0 else ""
        verdict = " missed" if row["of_copy"] < row["bar"] else ""
        speed = f"{row['gbps'] / 1000:.2f} | {row['of_copy']:.2f}"
        peers = ", ".join(
            f"{peer['how']} {peer['gbps'] / data['copy_gbps']:.2f}" for peer in row.get("peers", [])
        )
        lines.append(f"| {name} | {speed} |{bar} |{verdict} | {peers} |")
    lines += [
        "",
        f"Driver {driver}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, {power.split('.')[0]} W; "
        "`tools/gpu_check --only build,bench`, kept in",
        f"[{result.name}]({result.relative_to(ROOT)}). Of {len(asked)} cases of which a share is "
        f"asked, {missed} miss it.",
    ]
    return "\n".join(lines)


def device_products(result: pathlib.Path) -> str:
    data = json.loads(result.read_text())
    lines = [
        f"Products on the same card, bfloat16 results, in TFLOP/s and beside torch {data['torch']} in "
        "the same run (of mxfp8:",
        "beside activations dequantized and multiplied in bfloat16; octavo folds them in the call):",
        "",
        "| M x N x K | per tensor | per row | 1x128 by 128x128 | mxfp8 |",
        "|---|---|---|---|---|",
    ]
    kinds = ("tensor", "row", "1x128 by 128x128", "mxfp8")
    rows = {(row["m"], row["n"], row["k"], row["scales"]): row for row in data["results"]}
    for m, n, k in dict.fromkeys(key[:3] for key in rows):
        cells = (rows[m, n, k, kind] for kind in kinds)
        shown = " | ".join(f"{row['tflops']:.0f}, {row['ratio']:.2f} x" for row in cells)
        lines.append(f"| {m} x {n} x {k} | {shown} |")
    lines += [
        "",
        f"`bench/cuda/gemm_bench.py`, kept in [{result.name}]({result.relative_to(ROOT)}). torch's and "
        "octavo's sums are",
        "promoted every 128 products. octavo's figures are of its own kernels (`hopper_fp8`, the bits "
        "of any CPU), also where",
        "`native` would leave a product to cuBLASLt.",
    ]
    return "\n".join(lines)


def error(result: pathlib.Path) -> str:
    found = json.loads(result.read_text())["formats"]["e4m3fn"]
    percent = 100 * (found["least"] + found["most"]) / 2
    return (
        "What no scale and no rounding mode can mend: FP8 with three mantissa bits has a relative "
        f"error of\nabout {percent:.1f} % rms (`python -m bench.error.run`)."
    )


def newest(question: str) -> pathlib.Path | None:
    """The result with the latest date, which its name ends in."""
    results = (ROOT / "bench" / "results").glob(f"{question}-*.json")
    return max(results, key=lambda path: path.name[-15:], default=None)


def filled(readme: str) -> str:
    """The text with everything between its marks made anew, where there is a result."""
    for mark, question, write in (
        ("measured numbers", "convert", table),
        ("measured quantizers", "quantize", quantizers),
        ("measured products", "gemm", products),
        ("measured device", "h200", device),
        ("measured on a device: products", "products-h200", device_products),
        ("measured error", "error", error),
    ):
        result = newest(question)
        if result is None:
            continue
        made = write(result)
        marked = re.compile(rf"(<!-- BEGIN {mark}.*?-->\n).*?(\n?<!-- END {mark} -->)", re.S)
        readme, count = marked.subn(
            lambda m, made=made: m[1] + made + "\n" + m[2].lstrip("\n"), readme
        )
        assert count == 1, mark
    return readme


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text()))


if __name__ == "__main__":
    main()
