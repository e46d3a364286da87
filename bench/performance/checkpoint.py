"""Quantizing a checkpoint from disk to disk."""

from __future__ import annotations

from .results import Result, section, table, times

SIDES = ("octavo", "torch script", "model_free_ptq")


def side(row: dict, name: str) -> list[str]:
    if name not in row["sides"]:
        return ["", ""]
    found = row["sides"][name]
    return [f"{found['seconds']:.1f} s", f"{found['peak_mebibytes']:.0f} MiB"]


def rows_of(data: dict) -> list[list[str]]:
    return [
        [
            row["recipe"],
            *(cell for name in SIDES for cell in side(row, name)),
            *(times(row["ratios"][n], 1) if n in row["ratios"] else "" for n in SIDES[1:]),
        ]
        for row in data["rows"]
    ]


def checkpoints(alone: Result, with_peers: Result) -> str:
    head = ["recipe"] + [cell for name in SIDES for cell in (name, "memory")]
    head += [f"{name}: times" for name in SIDES[1:]]
    size = alone.data["rows"][0]["bytes"] / 1e9
    busy, quiet = (r.data["machine"]["load_before"] for r in (with_peers, alone))
    return section(
        "## Checkpoints",
        f"A Llama of 1.1 billion random bf16 weights ({size:.1f} GB in two files), quantized on "
        "two cores by `octavo::quantize_checkpoint`, which also measures every error, by a plain "
        "script of torch and safetensors, and by llm-compressor's `model_free_ptq`. Seconds are "
        "those of the work, without imports; memory is the peak of the process. octavo flushes "
        "what it writes to the disk, the others do not.",
        table(head, rows_of(alone.data)),
        alone.measured("python -m bench.checkpoint.run"),
        f"With `model_free_ptq` in turn, on a busier machine (load {busy:.0f} before the run; "
        f"{quiet:.0f} before the one above):",
        table(head, rows_of(with_peers.data)),
        with_peers.measured("make peers && python -m bench.checkpoint.run"),
    )
