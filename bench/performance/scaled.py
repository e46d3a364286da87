"""Casts with a factor on CPUs, beside eager and compiled torch."""

from __future__ import annotations

from .cpu import measured
from .results import Result, cores, missing, section, table, times


def of_torch(row: dict, kind: str) -> str:
    rival = row[f"{kind}_ms"]
    return times(rival / row["ms"], 1) if rival else ""


def scaled(result: Result) -> str:
    data = result.data
    counts = sorted(data["runs"], key=int)
    found = {count: {row["case"]: row for row in data["runs"][count]} for count in counts}
    head = ["cast, factor"]
    for count in counts:
        head += [f"{cores(count)}, ms", "eager", "compiled"]
    rows = []
    for case in found[counts[0]]:
        cells = [case]
        for count in counts:
            row = found[count][case]
            cells += [f"{row['ms']:.2f}", of_torch(row, "eager"), of_torch(row, "compiled")]
        rows.append(cells)
    held = [row["holds"] for rows in data["runs"].values() for row in rows]
    return section(
        f"### Casts with a factor, {result.machine_name}",
        "CPU milliseconds of all threads for 2048 x 2048 values, and how many times the speed of "
        f"torch {data['versions']['torch']}, eager and compiled, in the same run; outputs reused. "
        "0.3 is no float32; rows and columns have a float32 factor each; value and power_of_two "
        "make one from the amax. The bar is 3 times eager torch. " + missing(held),
        table(head, rows),
        measured(result, "python -m bench.scaled.run"),
    )
