"""Conversions, quantizers, products and a layer on CPUs, beside torch, torchao and ml_dtypes."""

from __future__ import annotations

from .results import Result, cores, missing, section, table, times


def measured(result: Result, command: str) -> str:
    """The line below a table of a CPU: what it reports, and what Result.measured has."""
    about = result.data["machine"]
    features = ", ".join(about["cpu"]["features"])
    return (
        f"{about['cpu']['name']} with {features}, kernels `{about['backend']}`. "
        f"{result.measured(command)}"
    )


def speed_rows(data: dict, names: dict) -> list[list[str]]:
    """Case, rival, and for each number of cores the rate and how many times the rival's it is."""
    counts = sorted(data["runs"], key=int)
    found = {
        count: {(row["case"], row.get("rival")): row for row in data["runs"][count]}
        for count in counts
    }
    rows = []
    for key, name in names.items():
        cells = []
        for count in counts:
            row = found[count][key]
            cells += [f"{row['gel_per_s']:.2f}", times(row["ratio"], 1) if "ratio" in row else ""]
        rows.append([name, key[1] or "", *cells])
    return rows


def speed_head(data: dict, what: str) -> list[str]:
    return [what, "rival"] + [
        cell for count in sorted(data["runs"], key=int) for cell in (cores(count), "times")
    ]


def conversions(result: Result) -> str:
    data = result.data
    versions = data["versions"]
    # The case "zero" makes zero of a NaN in formats that have none, as ml_dtypes does.
    names = {
        (row["case"], row["rival"]): row["case"].removesuffix(" zero") for row in data["runs"]["1"]
    }
    return section(
        f"### Conversions, {result.machine_name}",
        "10^9 elements a second, 16 million elements, outputs reused, and how many times the "
        f"rival's rate in the same run (torch {versions['torch']}, ml_dtypes "
        f"{versions['ml_dtypes']}). Other rounding and overflow modes stand beside nearest even "
        "and saturate. Stochastic rounding runs at about a quarter of that, because its random "
        "bits cost more than the rounding.",
        table(speed_head(data, "conversion"), speed_rows(data, names)),
        measured(result, "python -m bench.convert.run"),
    )


def quantizers(result: Result) -> str:
    data = result.data
    names = {
        (row["case"], row["rival"]): row["case"]
        for row in data["runs"]["1"]
        if row.get("rival") and "ratio" in row
    }
    return section(
        f"### Quantizers, {result.machine_name}",
        f"10^9 elements a second, 4096 x 4096, beside torchao {data['versions']['torchao']} and, "
        "for one scale a tensor, the eager torch expression. Rows and columns at once stand "
        "beside two passes of octavo, and beside rows alone.",
        table(speed_head(data, "quantization"), speed_rows(data, names)),
        measured(result, "python -m bench.quantize.run"),
    )


def products(result: Result) -> str:
    data = result.data
    first, *others = sorted(data["runs"], key=int)
    rows = {
        count: {(row["case"], *row["shape"]): row for row in found if row.get("out") == "float32"}
        for count, found in data["runs"].items()
    }
    rivals = list(next(iter(rows[first].values()))["rivals"])
    peaks = next(row["peaks"] for row in data["runs"][first] if "peaks" in row)
    made = []
    for key, row in rows[first].items():
        share = f"{row['of_peak']:.2f} {row['peak']}" if row["peak"] else ""
        made.append(
            [
                row["case"],
                " x ".join(map(str, row["shape"])),
                f"{row['gflops']:.1f}",
                *(times(row["ratios"][rival]) for rival in rivals),
                share,
                *(f"{rows[count][key]['gflops']:.1f}" for count in others),
            ]
        )
    listed = ", ".join(f"{name} {rate:.1f}" for name, rate in peaks.items())
    held = [row["holds"] for found in data["runs"].values() for row in found if "holds" in row]
    slow_bf16 = (
        " This CPU has no BFMMLA and no SMMLA, and torch's bf16 is slower than its f32 there: "
        "look at the ratio to `torch f32`."
    )
    return section(
        f"### GEMM, {result.machine_name}",
        "[M, K] x [N, K]^T with float32 results, in GFLOP/s, operands quantized before; on one "
        f"core beside torch {data['versions']['torch']} in the same run, and as a share of the "
        f"core's probed peak ({listed or 'not probed'} "
        f"GFLOP/s).{'' if 'bfmmla' in peaks else slow_bf16}",
        table(
            ["operands", "M x N x K", "1 core", *rivals, "of the peak", *map(cores, others)], made
        ),
        f"{measured(result, 'python -m bench.gemm.run')} The file has bfloat16 results too. "
        f"{missing(held)}",
    )


def layer(result: Result) -> str:
    data = result.data
    rows = [
        [
            row["recipe"],
            row["sums"],
            count,
            f"{row['ms']:.1f}",
            times(row["beside_f32"]),
            f"{row['in_kernels']:.3f}",
        ]
        for count, found in data["runs"].items()
        for row in found
    ]
    return section(
        f"### A training step of one layer, {result.machine_name}",
        "Forward and backward of `octavo.torch.Linear`, 1024 x 1024 on 512 rows, beside "
        f"`torch.nn.Linear` in f32 (torch {data['versions']['torch']}), and the share of a step "
        "that is spent in kernels.",
        table(["recipe", "sums", "cores", "ms", "nn.Linear f32", "in kernels"], rows),
        measured(result, "python -m bench.linear.run"),
    )


def error(result: Result) -> str:
    data = result.data
    formats = [
        [name, str(found["mantissa_bits"]), f"{100 * (found['least'] + found['most']) / 2:.1f} %"]
        for name, found in data["formats"].items()
    ]
    scaled = [
        [
            kind,
            *(
                f"{100 * found[preset][figure]:.2f} %"
                for preset in ("fp8", "mxfp8")
                for figure in ("median_row", "flushed")
            ),
        ]
        for kind, found in data["scaled"].items()
    ]
    return section(
        "## Error of the formats themselves",
        "What no scale and no rounding mode can mend: the relative error (rms) of normal values, "
        "at any scale inside the range of the format.",
        table(["format", "mantissa bits", "rms error"], formats),
        "Where scales help is range. Relative error of the median row, and elements that became "
        "zero, with one scale a tensor (`fp8`) and one for 32 values (`mxfp8`):",
        table(["values", "fp8", "zeros", "mxfp8", "zeros"], scaled),
        f"The same on any machine. {result.measured('python -m bench.error.run')}",
    )


def policies(result: Result) -> str:
    """What scale policies that search cost beside max."""
    runs = result.data["runs"]
    counts = sorted(runs, key=int)
    rows: dict[str, list[str]] = {}
    for count in counts:
        for row in runs[count]:
            bar = "" if row["at_most"] is None else f"{row['at_most']:g} x"
            cells = rows.setdefault(row["case"], [bar])
            cells += [f"{row['max_ns']:.2f}", f"{row['ns']:.2f}", times(row["ratio"])]
    held = [row["holds"] for count in counts for row in runs[count] if "holds" in row]
    head = ["scales", "at most"]
    head += [cell for count in counts for cell in (f"max, {cores(count)}", "searched", "times")]
    quick = " A quick run: fewer rows and turns." if result.data["quick"] else ""
    backend = result.data["machine"]["backend"]
    return section(
        f"### Scale policies, `{backend}`, {result.machine_name}",
        f"CPU time in nanoseconds a value of policies that search, beside `max`.{quick} "
        f"{missing(held)}",
        table(head, [[case, *cells] for case, cells in rows.items()]),
        measured(result, "python -m bench.policy.run"),
    )
