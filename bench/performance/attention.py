"""Attention on CPUs beside torch's scaled_dot_product_attention."""

from __future__ import annotations

from .cpu import measured
from .results import Result, cores, section, table, times


def forward(data: dict) -> str:
    first, *others = sorted(data["runs"], key=int)
    key = ("case", "tokens", "size")
    found = {
        count: {tuple(row[k] for k in key): row for row in data["runs"][count] if "case" in row}
        for count in data["runs"]
    }
    rivals = ["torch f32", "torch bf16"]
    rows = [
        [
            row["case"],
            row["inputs"],
            f"{row['tokens']} x {row['size']}",
            f"{row['gflops']:.1f}",
            *(times(row["ratios"][r]) if r in row["ratios"] else "" for r in rivals),
            f"{row['of_peak']:.2f} {row['peak']}",
            *(f"{found[count][name]['gflops']:.1f}" for count in others),
        ]
        for name, row in found[first].items()
    ]
    head = ["rung", "Q, K, V", "tokens x head size", "1 core", *rivals, "of the peak"]
    return table([*head, *map(cores, others)], rows)


def gradients(data: dict) -> str:
    rows = [
        [
            f"{row['gradients']} x {row['size']}",
            cores(count),
            *(f"{1e3 * row['seconds'][side]:.1f}" for side in ("octavo f32", "torch f32")),
            times(row["ratio"]),
        ]
        for count, found in data["runs"].items()
        for row in found
        if "gradients" in row
    ]
    return table(["tokens x head size", "", "octavo f32, ms", "torch f32, ms", "times"], rows)


def decode(data: dict) -> str:
    sides = ["fp8", "bf16", "fp8 auto", "torch bf16"]
    rows = [
        [
            f"{row['decode']}",
            f"{row['heads']} on {row['kv_heads']}",
            cores(count),
            *(f"{row['tokens_per_second'][side] / 1e6:.2f}" for side in sides),
            times(row["ratio"]),
        ]
        for count, found in data["runs"].items()
        for row in found
        if "decode" in row
    ]
    return table(["keys", "heads of Q on heads of K", "", *sides, "fp8 beside bf16"], rows)


def attention(result: Result) -> str:
    data = result.data
    peaks = next(row["peaks"] for row in data["runs"]["1"] if "peaks" in row)
    listed = ", ".join(f"{name} {rate:.1f}" for name, rate in peaks.items())
    return section(
        f"### Attention, {result.machine_name}",
        "GFLOP/s (4 S S D for each head), without a mask, beside torch "
        f"{data['versions']['torch']} in the same run, and as a share of the core's probed peak "
        f"({listed} GFLOP/s). [attention.md](numerics/attention.md) says what each rung rounds.",
        forward(data),
        "Gradients for a given forward pass:",
        gradients(data),
        "Decode attention: one query a head, head size 128, in millions of keys a second. Keys "
        "and values are codes with one scale a token (`fp8`) or bf16; `fp8 auto` chooses the "
        "rung itself.",
        decode(data),
        measured(result, "python -m bench.attention.run"),
    )


FAMILIES = {
    "one_product": "one product has all of a score",
    "either_sign": "large products of either sign",
}


def rates(result: Result) -> str:
    data = result.data
    normal = [
        [
            f"{row['tokens']} x {row['size']}" + (", causal" if row["causal"] else ""),
            f"{row['done_again']} of {row['rows']}",
        ]
        for row in data["normal"]
    ]
    hard = [
        [FAMILIES[row["family"]], str(row["keys"]), f"{1e6 * row['outside']:.0f}"]
        for row in data["hard"]
    ]
    return section(
        f"### Rows of `strict` that are redone in f32, {result.machine_name}",
        f"Kernels `{data['backend']}`, which sum scores in f16. Of normal inputs:",
        table(["tokens x head size", "rows redone"], normal),
        "Of inputs made to be hard, elements in a million outside of 5e-3 + 5e-3 |exact|:",
        table(["scores", "keys that share a row", "in a million"], hard),
        result.measured("python -m bench.attention.rates"),
    )


def mean_table(data: dict, digits: int) -> str:
    names = list(data["results"][0]["mean_error"])
    rows = [
        # Adding 0 makes 0 of -0.
        [str(row["keys"]), *(f"{round(100 * row['mean_error'][n], digits) + 0} %" for n in names)]
        for row in data["results"]
    ]
    return table(["keys", *names], rows)


def mean(ours: Result, peers: Result) -> str:
    versions = ", ".join(f"{name} {it}" for name, it in peers.data["versions"].items())
    return section(
        "## FP8 attention where V has a mean",
        "The mean of result / exact - 1, where exact is float64 attention of the same e4m3 "
        "inputs: Q and K normal, head size 128, no mask. Hopper's FP8 tensor cores keep 13 "
        "fraction bits of a sum and cut the rest off; where all products of P V have one sign, "
        f"that adds up with the number of keys. The peers' figures ({versions}):",
        mean_table(peers.data, 1),
        f"NVIDIA H200, driver {peers.data['driver']}, {peers.date}, by a program that is not part "
        f"of this repository: {peers.link}.",
        "octavo's rungs, and P V as tensor cores sum it, with V in [0, 1). Sums that are never "
        "promoted lose what the peers lose:",
        mean_table(ours.data, 2),
        measured(ours, "python -m bench.attention.mean"),
    )
