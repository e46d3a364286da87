"""A checkpoint divided among processes."""

from __future__ import annotations

from .results import Result, section, table, times


def plans(rows: list[dict]) -> str:
    def balance(one: dict, world: int) -> str:
        found = next((row for row in one["simulated"] if row["world"] == world), None)
        return "" if found is None else f"{found['balance']:.3f}"

    worlds = (8, 32, 64)
    head = ["model", "size", "tensors", "plan", "memory"]
    head += [f"slowest / mean of {world}" for world in worlds]
    return table(
        head,
        [
            [
                one["model"],
                f"{one['bytes'] / 1e12:.2f} TB",
                f"{one['tensors']}",
                f"{one['seconds']:.1f} s",
                f"{one['peak_bytes'] / 1e6:.0f} MB",
                *(balance(one, world) for world in worlds),
            ]
            for one in rows
        ],
    )


def division(result: Result) -> str:
    """How processes share each model, and what that asks of storage."""

    def files(one: dict) -> str:
        fewest, most = one["fewest_files"], one["most_files"]
        return f"{most}" if fewest == most else f"{fewest}-{most}"

    rows = [
        [
            model["model"],
            f"{one['world']}",
            files(one),
            f"{one['most_bytes'] / 1e12:.3f}",
            f"{one['balance']:.3f}",
            f"{one['bound']:.2f}",
            f"{one['seconds']:.0f}",
            f"{one['gigabytes_per_second']:.0f}",
        ]
        for model in result.data["planned"]
        for one in model["simulated"]
    ]
    head = ["model", "processes", "files of each", "TB of the slowest", "slowest / mean", "bound"]
    return table([*head, "seconds, 16 cores each", "GB/s of storage"], rows)


def same(rows: list[dict]) -> str:
    def found(one: dict) -> str:
        if "skipped" in one:
            return f"not measured: {one['skipped']}"
        rounds = f", {one['rounds']} times" if "rounds" in one else ""
        return ("the bytes of one" if one["identical"] else "OTHER BYTES") + rounds

    return table(
        ["case", "folder", "time"],
        [[one["case"], found(one), f"{one['seconds']:.1f} s"] for one in rows],
    )


def gain(of: dict) -> str:
    by_cpu = of.get("gain_by_cpu_time")
    by_itself = "" if by_cpu is None else f" (by CPU time alone {times(by_cpu)})"
    return (
        f"A checkpoint of {of['bytes'] / 1e9:.1f} GB to NVFP4 with search: two processes on two "
        f"cores are {times(of['gain'])} as fast as one on one{by_itself}; two apart do "
        f"{times(of['gain_of_two_apart'])} its work on that machine. A plan, and the work by it, "
        f"take {100 * of['overhead']:+.1f} % of the time of plain quantizing."
    )


def cluster(result: Result) -> str:
    data = result.data
    parts = [
        "## Many processes",
        "Sparse models with the names and shapes of the published configs, planned for NVFP4 from "
        "their headers, and divided by simulation. What that says of storage is in "
        "[many machines](design/many-machines.md).",
        plans(data["planned"]),
    ]
    if "processes" in data:
        parts.append(gain(data["processes"]))
    if "identical" in data:
        size = data["identical"][0]["bytes"] / 1e6
        parts += [
            f"{size:.0f} MB of bf16 to NVFP4 with search, as each of these makes it, compared with "
            "the folder of one call without a plan, byte for byte:",
            same(data["identical"]),
        ]
    return section(*parts, result.measured("python -m bench.cluster"))
