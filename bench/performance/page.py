"""docs/performance.md as one text, and pages with tables made anew."""

from __future__ import annotations

import re
from pathlib import Path

from . import (
    attention,
    checkpoint,
    cluster,
    cpu,
    h200,
    h200_attention,
    h200_decode,
    h200_gemm,
    models,
    quality,
    readme,
    scaled,
    switch,
    x86,
)
from .results import newest, on_h200, results, section

TOP = (
    "# Performance",
    "<!-- Made by `python -m bench.performance` from bench/results; never edited by hand. -->",
    "What was measured, on which machine and day, beside which rival, and with which command. A "
    "rival runs in the same run, in turns with octavo, so that a busy machine slows both alike; "
    "medians count. "
    '"times" is how many times the rival\'s speed octavo has; below 1 the rival is faster. A "bar" '
    "is what a case is held to; what misses it is counted. Numbers of one run compare with each "
    "other; those of two machines or days do not.",
    "`make bench` measures again on a CPU, `tools/x86_check --only build,bench` on one of x86, "
    "`tools/gpu_check --only build,bench` and the programs of `bench/cuda` on a Hopper GPU; the "
    "README of each question in `bench/` says how it is timed.",
)


def cpu_sections(question: str, write) -> list[str]:
    return [write(result) for result in results(question) if result.machine != "h200"]


def performance() -> str:
    sections = [
        section(*TOP),
        "## CPU",
        *cpu_sections("convert", cpu.conversions),
        *cpu_sections("scaled", scaled.scaled),
        *cpu_sections("quantize", cpu.quantizers),
        *cpu_sections("gemm", cpu.products),
        *cpu_sections("attention", attention.attention),
        *cpu_sections("attention-rates", attention.rates),
        *cpu_sections("linear", cpu.layer),
        *cpu_sections("policy", cpu.policies),
        *cpu_sections("switch", switch.switch),
        *cpu_sections("x86", x86.x86),
        *cpu_sections("forced-avx2", x86.forced),
        *cpu_sections("forced-avx512", x86.forced),
        *cpu_sections("eval", models.evaluation),
        *cpu_sections("eval-memory", models.memory),
        *cpu_sections("gptq", models.gptq),
        *cpu_sections("generate", models.generation),
        checkpoint.checkpoints(newest("checkpoint"), newest("checkpoint-peers")),
        cluster.cluster(newest("cluster")),
        quality.quality(newest("quality")),
        "## NVIDIA H200",
        h200.memory_bound(on_h200("")),
        h200_gemm.products(on_h200("products")),
        h200_gemm.weights(on_h200("weights")),
        h200_gemm.groups(on_h200("groups")),
        h200_gemm.layer(on_h200("linear")),
        h200_gemm.choices(on_h200("choices"), on_h200("shapes")),
        h200_attention.forward(on_h200("attention-forward")),
        h200_attention.gradients(on_h200("attention-backward")),
        h200_decode.decode(on_h200("attention-decode")),
        attention.mean(newest("attention-mean"), on_h200("attention-mean-peers")),
        cpu.error(newest("error")),
    ]
    return "\n\n".join(sections) + "\n"


def filled(text: str, mark: str, table: str) -> str:
    """A page with what stands between its marks made anew."""
    marked = re.compile(rf"(<!-- BEGIN {mark}\b.*?-->\n).*?(<!-- END {mark} -->)", re.S)
    text, count = marked.subn(lambda found: found[1] + table + "\n" + found[2], text)
    if count != 1:
        raise ValueError(f"a page has {count} tables marked {mark}, expected 1")
    return text


def pages(root: Path) -> dict[Path, str]:
    """What is made from results: pages, and tables in pages."""
    marked = {
        "README.md": ("SPEED", readme.speeds()),
        "docs/design/many-machines.md": ("DIVISION", cluster.division(newest("cluster"))),
    }
    made = {root / name: filled((root / name).read_text(), *of) for name, of in marked.items()}
    made[root / "docs" / "performance.md"] = performance()
    if results("switch"):
        made[root / "docs" / "guide" / "recipe-switch.svg"] = switch.drawing(newest("switch"))
    return made
