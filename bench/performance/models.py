"""Models that run: evaluation and generation beside transformers, GPTQ."""

from __future__ import annotations

import statistics

from .results import Result, cores, section, table, times


def evaluation(result: Result) -> str:
    data = result.data
    wall = {side: statistics.median(runs) for side, runs in data["seconds"].items()}
    cpu = {side: statistics.median(runs) for side, runs in data["cpu_seconds"].items()}
    names = {
        "octavo": "`octavo eval`, bfloat16 weights",
        "float32": "transformers, float32",
        "bfloat16": "transformers, bfloat16",
    }
    sides = [side for side in names if side in wall]
    rivals = [side for side in sides if side != "octavo"]
    rows = [
        [
            names[side],
            f"{wall[side]:.2f} s",
            f"{cpu[side]:.2f} s",
            f"{data['tokens'] / wall[side]:.0f}",
            f"{data['losses'][side]:.6f}",
        ]
        for side in sides
    ]
    best = {kind: min(of[side] for side in rivals) for kind, of in (("wall", wall), ("cpu", cpu))}
    return section(
        f"### Evaluating a model, {result.machine_name}",
        f"{data['model']}, {data['tokens']} tokens in windows of {data['window']}, "
        f"{data['threads']} thread{'s' * (data['threads'] != 1)}, load {data['load']:.1f} from "
        f"other processes (transformers {data['transformers']}, torch {data['torch']}). octavo "
        "reads its files layer by layer within that time; the CPU time is that of its process.",
        table(["", "time", "CPU time", "tokens/s", "loss"], rows),
        f"octavo has {times(best['wall'] / wall['octavo'])} the speed of the faster rival, by CPU "
        f"time {times(best['cpu'] / cpu['octavo'])}; the bar is 1.",
        result.measured("python -m bench.eval.run"),
    )


def memory(result: Result) -> str:
    data = result.data
    return section(
        f"### A model larger than memory, {result.machine_name}",
        f"`octavo eval` of {data['bytes'] / 1e9:.1f} GB of random bfloat16 weights with a "
        f"vocabulary of {data['vocabulary']} on {data['tokens']} tokens, with `--max-memory "
        f"{data['max_memory']}`: the process had {data['peak_bytes'] / 1e9:.2f} GB of memory at "
        f"most; the bar is {data['most_bytes'] / 1e9:.1f} GB.",
        result.measured("python -m bench.eval.memory"),
    )


def gptq(result: Result) -> str:
    data = result.data

    def row(one: dict) -> list[str]:
        bar = "" if one["at_most"] is None else f"{one['at_most']:.0f} s"
        seconds = (one["seconds"], *(one[f"{part}_median"] for part in ("factor", "column")))
        rest = (f"{one['cpu_seconds']:.2f} s", bar, f"{one['hessian_median']:.1f} s")
        return [cores(str(one["threads"])), *(f"{s:.2f} s" for s in seconds), *rest]

    rows = data["rows"]
    size, tokens = f"{rows[0]['rows']} x {rows[0]['width']}", rows[0]["hessian_tokens"]
    same = len({one["codes"] for one in rows}) == 1
    parts = [
        f"### GPTQ of one layer, {result.machine_name}",
        f"A weight of {size} to {rows[0]['preset']} with damping 0.05, medians of "
        f"{len(rows[0]['factor_seconds'])} runs, load {data['machine']['load_before']:.1f} from "
        "other processes: its Hessian is factored, its columns are walked. "
        f"Summing the Hessian up of {tokens} tokens comes before. "
        f"{'Codes and errors are the same on any number of cores.' if same else 'CODES DIFFER.'}",
        table(
            [
                "",
                "GPTQ",
                "factorisation",
                "columns",
                "CPU time",
                "bar",
                f"Hessian of {tokens} tokens",
            ],
            map(row, rows),
        ),
    ]
    if "model" in data:
        model = data["model"]
        threads = model["threads"] or model["cores"]
        parts.append(
            f"{model['model']} whole, calibrated by {model['tokens']} tokens, on "
            f"{cores(str(threads))}: {model['seconds']:.0f} s and {model['peak_mebibytes']:.0f} "
            f"MiB; the bar is {model['at_most']:.0f} s."
        )
    return section(*parts, result.measured("python -m bench.gptq.run"))


NAMES = {
    "octavo bfloat16": "`octavo generate`, bfloat16 weights",
    "octavo bfloat16, rounded": "the same, `--activations bfloat16`",
    "octavo mxfp4": "`octavo generate`, MXFP4 weights",
    "octavo mxfp4, rounded": "the same, `--activations bfloat16`",
    "transformers bfloat16": "transformers, bfloat16",
    "transformers float32": "transformers, float32",
}


def generation(result: Result) -> str:
    parts = [f"### Generating text, {result.machine_name}"]
    for data in result.data["models"]:
        rates, prompts = (
            {side: statistics.median(runs) for side, runs in data[key].items()}
            for key in ("tokens_per_second", "prompt_tokens_per_second")
        )
        sides = [side for side in NAMES if side in rates]
        peer, rivals = rates.get("transformers bfloat16"), "without transformers"
        if peer:
            rivals = f"transformers {data['transformers']}, torch {data['torch']}"
        parts += [
            f"{data['model']}: {data['tokens']} tokens after a prompt of {data['prompt']}, greedy, "
            f"{data['threads']} thread{'s' * (data['threads'] != 1)}, load {data['load']:.1f} from "
            f"other processes ({rivals}).",
            table(
                ["", "tokens/s", "beside transformers, bfloat16", "prompt, tokens/s"],
                [
                    [
                        NAMES[side],
                        f"{rates[side]:.1f}",
                        times(rates[side] / peer) if peer else "",
                        f"{prompts[side]:.0f}",
                    ]
                    for side in sides
                ],
            ),
        ]
    has_bf16 = all(data["has_bf16"] for data in result.data["models"])
    parts.append(
        "The bar of MXFP4 weights is 1.5 x transformers in bfloat16."
        if has_bf16
        else "This CPU does not multiply bfloat16, so nothing is held to the bar of MXFP4 weights, "
        "1.5 x transformers in bfloat16."
    )
    return section(*parts, result.measured("python -m bench.generate.run"))
