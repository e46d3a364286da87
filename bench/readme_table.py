"""Writes the table of measured numbers into README.md, from the newest result of each question."""

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
        f"aarch64 with {features}; `python bench/convert/run.py`, kept in",
        f"[{result.relative_to(ROOT)}]({result.relative_to(ROOT)}), which has the other rounding and",
        "overflow modes too. Stochastic rounding runs at about a quarter of nearest even: its random",
        "bits cost more than the rounding.",
    ]
    return "\n".join(lines)


def main() -> None:
    newest = sorted((ROOT / "bench" / "results").glob("convert-*.json"), key=lambda p: p.name[-15:])
    readme = ROOT / "README.md"
    text = readme.read_text()
    marked = re.compile(r"(<!-- BEGIN measured numbers.*?-->\n).*?(\n<!-- END measured numbers -->)", re.S)
    readme.write_text(marked.sub(lambda m: m[1] + table(newest[-1]) + m[2], text))


if __name__ == "__main__":
    main()
