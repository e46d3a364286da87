"""The table of speeds of README.md: ARM, x86 and the H200."""

from __future__ import annotations

from . import h200_gemm, x86
from .results import newest, on_h200, table, times


def one_core(question: str) -> tuple:
    result = newest(question)
    return result, result.data["runs"]["1"]


def speed(question: str, case: str, rival: str) -> list[str]:
    result, rows = one_core(question)
    row = next(row for row in rows if row["case"] == case and row["rival"] == rival)
    rate = f"{row['gel_per_s']:.2f} G elements/s"
    return [f"{result.machine_name}, one core", rate, rival, times(row["ratio"], 1)]


def product(case: str, shape: list[int], rival: str) -> list[str]:
    result, rows = one_core("gemm")
    row = next(
        row
        for row in rows
        if row.get("case") == case and row["shape"] == shape and row["out"] == "float32"
    )
    rate = f"{row['gflops']:.0f} GFLOP/s"
    return [f"{result.machine_name}, one core", rate, rival, times(row["ratios"][rival], 1)]


def attention(case: str, tokens: int, size: int, rival: str) -> list[str]:
    result, rows = one_core("attention")
    row = next(
        row
        for row in rows
        if (row.get("case"), row.get("tokens"), row.get("size")) == (case, tokens, size)
    )
    rate = f"{row['gflops']:.0f} GFLOP/s"
    return [f"{result.machine_name}, one core", rate, rival, times(row["ratios"][rival], 1)]


def attention_on_h200(what: str, shape: str, rival: str) -> list[str]:
    rows = on_h200("attention-forward").data["results"]
    rates = {row["what"]: row["tflops"] for row in rows if row.get("shape") == shape}
    ratio = times(rates[what] / rates[rival], 1)
    return ["H200", f"{rates[what]:.0f} TFLOP/s", "torch's cuDNN in bfloat16", ratio]


def checkpoint(recipe: str) -> list[str]:
    result = newest("checkpoint")
    row = next(row for row in result.data["rows"] if row["recipe"] == recipe)
    ours, script = row["sides"]["octavo"], row["sides"]["torch script"]
    return [
        f"{result.machine_name}, two cores",
        f"{ours['seconds']:.1f} s, {ours['peak_mebibytes']:.0f} MiB",
        f"torch script, {script['peak_mebibytes']:.0f} MiB",
        times(row["ratios"]["torch script"], 1),
    ]


def quantizer(case: str) -> list[str]:
    data = on_h200("").data
    row = next(r for r in data["results"] if (r["group"], r["case"]) == ("quantize", case))
    peer = row["peers"][0]
    rate = f"{row['gbps'] / 1000:.2f} TB/s, {row['of_copy']:.2f} of a copy"
    return ["H200", rate, peer["how"], times(peer["us"] / row["us"], 1)]


def gemm(question: str, kind: str, name: str, shape: tuple, beside: str) -> list[str]:
    row = h200_gemm.by_shape(on_h200(question).data, kind)[shape][name]
    time = row["us"]["octavo"]
    rate = f"{row['tflops']:.0f} TFLOP/s" if shape[0] > 128 else f"{time:.1f} us"
    return ["H200", rate, beside, times(row["ratio"], 1)]


def step(recipe: str) -> list[str]:
    data = on_h200("linear").data
    time = f"{data['ms'][recipe]:.2f} ms"
    return ["H200", time, "torch bfloat16", times(data["ratio"][recipe], 1)]


def speeds() -> str:
    large, small = (8192, 8192, 8192), (16, 8192, 8192)
    block = "1x128 by 128x128"
    rows = [
        ["quantize bfloat16 to MXFP8", *speed("quantize", "bfloat16 -> mxfp8", "torchao")],
        ["decode e4m3fn to bfloat16", *speed("convert", "e4m3fn -> bfloat16", "torch")],
        ["GEMM MXFP4, 2048^3", *product("mxfp4", [2048, 2048, 2048], "torch f32")],
        ["checkpoint of 1.1 billion weights to MXFP8", *checkpoint("mxfp8")],
        ["attention `strict` on FP8, 2048 x 128", *attention("strict", 2048, 128, "torch f32")],
        *x86.speeds(),
        ["quantize bfloat16 to NVFP4, 16384 x 8192", *quantizer("nvfp4, tensor amax given")],
        ["GEMM FP8, 1x128 by 128x128 scales, 8192^3",
         *gemm("products", "scales", block, large, "torch._scaled_mm")],
        ["bfloat16 by MXFP4 weights, 16 x 8192 x 8192",
         *gemm("weights", "weights", "mxfp4", small, "torch bfloat16")],
        ["attention `fast` on FP8, 16384 x 128",
         *attention_on_h200("fast", "1x32x16384x128", "torch, cuDNN bf16")],
        ["`Linear` step under MXFP8, 8192 x 4096 x 16384", *step("MXFP8BlockScaling")],
    ]  # fmt: skip
    return table(["", "machine", "octavo", "beside", "times as fast"], rows)
