"""Casts, quantizers, products and attention on x86 CPUs, beside torch and ml_dtypes."""

from __future__ import annotations

from .results import Result, cores, missing, newest, section, table, times


def rates(result: Result) -> tuple[list[str], dict[tuple, dict[str, dict]]]:
    """Numbers of cores, and for each case its row in each run. Products and attention have a group
    for each shape."""
    runs = result.data["runs"]
    found: dict[tuple, dict[str, dict]] = {}
    for count, rows in runs.items():
        for row in rows:
            if "rate" in row:
                found.setdefault((row["kind"], row["group"], row["case"]), {})[count] = row
    return sorted(runs, key=int), found


def ratio(row: dict) -> str:
    rival = row["rivals"].get(row["rival"])
    return times(row["rate"] / rival) if rival else ""


def rows_of(kinds: tuple[str, ...], counts: list[str], found: dict) -> list[list[str]]:
    made = []
    for (kind, group, case), by_count in found.items():
        if kind not in kinds:
            continue
        digits = 2 if kind in ("cast", "quantize") or "of 1 x" in group else 0
        shape = (
            group.removeprefix("products of ").removeprefix("attention, ").removeprefix("decode, ")
        )
        name = case if kind in ("cast", "quantize") else f"{case}, {shape}"
        cells = [next(iter(by_count.values()))["rival"]]
        for count in counts:
            row = by_count.get(count)
            cells += [f"{row['rate']:.{digits}f}", ratio(row)] if row else ["", ""]
        made.append([name, *cells])
    return made


def forced(result: Result) -> str:
    """An older instruction set on a CPU that has more, torch held to it where torch can be."""
    counts, found = rates(result)
    data = result.data
    backend = data["machine"]["backend"]
    head = ["rival", *(cell for count in counts for cell in (cores(count), "times"))]
    held = [row["holds"] for rows in data["runs"].values() for row in rows if "holds" in row]
    parts = [
        f"### Kernels `{backend}` on a CPU that has more, {result.machine_name}",
        f"`OCTAVO_BACKEND={backend}`, {data['cpu']}, torch {data['versions']['torch']} limited to "
        f"the same instructions where it lets itself be. {missing(held)}",
    ]
    for kinds, name in (
        (("cast", "quantize"), "10^9 elements a second"),
        (("product",), "product, GFLOP/s"),
        (("attention", "decode"), "attention, GFLOP/s"),
    ):
        if rows := rows_of(kinds, counts, found):
            parts.append(table([name, *head], rows))
    command = f"OCTAVO_BACKEND={backend} tools/x86_check --only build,bench"
    return section(*parts, result.measured(command))


def x86(result: Result) -> str:
    counts, found = rates(result)
    data = result.data
    about, versions = data["machine"], data["versions"]
    head = ["rival", *(cell for count in counts for cell in (cores(count), "times"))]
    held = [row["holds"] for rows in data["runs"].values() for row in rows if "holds" in row]
    features = ", ".join(about["cpu"]["features"])
    return section(
        f"### x86, {result.machine_name}",
        f"{data['cpu']} with {features}, kernels `{about['backend']}`, beside torch "
        f"{versions['torch']} and ml_dtypes {versions['ml_dtypes']}. The fastest call of each side "
        "counts, in turns in one process: on a shared host a neighbour on the same core halves the "
        f"speed of AMX for a while. {missing(held)}",
        "10^9 elements a second: casts of 16 million elements, quantizers of 4096 x 4096.",
        table(["case", *head], rows_of(("cast", "quantize"), counts, found)),
        "GFLOP/s of products, both operands quantized beforehand, bfloat16 results, by M x N x K.",
        table(["product", *head], rows_of(("product",), counts, found)),
        "GFLOP/s of attention, not causal, by tokens and head size.",
        table(["attention", *head], rows_of(("attention",), counts, found)),
        "Decode attention, GFLOP/s: one query row of 32 heads, 8 heads of FP8 keys and values, "
        "beside the same cache in bfloat16.",
        table(["decode", *head], rows_of(("decode",), counts, found)),
        result.measured("tools/x86_check --only build,bench"),
    )


def speeds() -> list[list[str]]:
    """Rows for README.md, of one core."""
    result = newest("x86")
    _, found = rates(result)

    def cells(kind: str, group: str, case: str) -> list[str]:
        row = found[kind, group, case]["1"]
        rival = row["rivals"][row["rival"]]
        rate = f"{row['rate']:.0f} {row['unit']}"
        return [rate, row["rival"], times(row["rate"] / rival, 1)]

    machine = "Xeon with AMX, one core"
    return [
        ["GEMM MXFP8, 2048^3", machine,
         *cells("product", "products of 2048 x 2048 x 2048", "mxfp8")],
        ["attention `strict` on FP8, 2048 x 128", machine,
         *cells("attention", "attention, 2048 tokens of 128", "strict")],
    ]  # fmt: skip
