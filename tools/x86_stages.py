"""What tools/x86_check does, stage by stage. A stage runs commands, each into a log of its own."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shutil
import sys
import time

from check_stages import ROOT, Stage, count_cases, has_module, output_of

BUILD = ROOT / "build" / "release"
LOGS = ROOT / "build" / "x86-check"
PACKAGE = BUILD / "package"
ENV = {"PYTHONPATH": str(PACKAGE)}
# Every input, every code, golden vectors: one run, in which each program tries every backend.
EXACT = (
    "every_(16_bit_input|code|landmark|quantize)|layout|witness|bad_input|stochastic_.*"
    "|scaled_exact|scaled_ties|golden_vectors|quantize_vectors|scale_search|fp_env"
    "|base|round|format|convert"
)
# Products, attention and quantizers: a run for each instruction set, as if the CPU had no better.
AGREEMENT = (
    "agreement|every_gemm|every_attention|gemm|gemm_thread|attention|attention_thread|ops|quant|nn"
)
NOT_AGAIN = ("cpu/portable", "reference")  # which are tested everywhere else
BACKENDS = "import json, octavo; print(json.dumps([b.name for b in octavo.backends() if b.usable]))"


def build(stage: Stage) -> None:
    stage.build("release", "-DOCTAVO_BUILD_BENCH=ON")


def exact(stage: Stage) -> None:
    shutil.rmtree(BUILD / "test-xml", ignore_errors=True)
    stage.run("isa", ["ctest", "--test-dir", BUILD, "-R", "^isa_", "--output-on-failure"])
    stage.ctest("ctest", BUILD, EXACT, os.cpu_count() or 4, {})
    stage.notes.append(count_cases(BUILD / "test-xml"))


def usable_backends() -> list[str]:
    """The instruction sets of this CPU, the fastest first; none where there is no Python module."""
    found = output_of([sys.executable, "-c", BACKENDS], ENV)
    return [name for name in json.loads(found or "[]") if name not in NOT_AGAIN]


def agree(stage: Stage) -> None:
    names = usable_backends()
    if not names:
        stage.notes.append("no Python module says which there are: one run for all of them")
    for name in names or [""]:
        if time.monotonic() > stage.end:
            stage.fail(f"{name}: no time left")
            continue
        shutil.rmtree(BUILD / "test-xml", ignore_errors=True)
        env = {"OCTAVO_BACKEND": name, "OCTAVO_TEST_BACKEND": name} if name else {}
        stage.ctest(name.replace("/", "-") or "all", BUILD, AGREEMENT, os.cpu_count() or 4, env)
        stage.notes.append(f"{name or 'all'}: {count_cases(BUILD / 'test-xml')}")


def python(stage: Stage) -> None:
    if not any(PACKAGE.glob("octavo/_octavo*.so")) or not has_module("pytest"):
        stage.notes.append("left out: no module, or no pytest")
        return
    folder = ROOT / "python" / "tests"
    tests = [path for path in sorted(folder.glob("test_*.py")) if "cuda" not in path.name]
    workers = ["-n", str(os.cpu_count() or 4)] if has_module("xdist") else []
    # What asks for files, types or stubs of an installed package is not about this CPU.
    others = "readme or guide or notebook or typing or stub"
    stage.pytest(PACKAGE, tests, {}, "-k", f"not ({others})", *workers)


def cpu_name() -> str:
    found = output_of(["grep", "-m1", "^model name", "/proc/cpuinfo"])
    return found.partition(":")[2].strip() if found else platform.machine()


def machine_name(cpu: str) -> str:
    """Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz: xeon-platinum-8481c."""
    words = re.sub(r"\((r|tm)\)|@.*|\d+-core.*", " ", cpu.lower())
    dropped = ("intel", "amd", "cpu", "processor")
    kept = [word for word in re.findall(r"[a-z0-9]+", words) if word not in dropped]
    return "-".join(kept) or platform.machine()


def bench(stage: Stage) -> None:
    if output_of([sys.executable, "-c", BACKENDS], ENV) is None or not has_module("torch"):
        stage.fail("left out: no Python module, or no torch")
        return
    kept = platform.machine() == "x86_64" and not stage.options.quick
    name = f"x86-{machine_name(cpu_name())}-{datetime.date.today().isoformat()}.json"
    result = (ROOT / "bench" / "results" if kept else LOGS) / name
    result.unlink(missing_ok=True)
    commit = stage.options.commit or output_of(["git", "rev-parse", "HEAD"]) or "unknown"
    # What a case takes that has begun when the time is over.
    seconds = max(30.0, stage.end - time.monotonic() - 90)
    command = [sys.executable, "-m", "bench.x86", "--json", result, "--seconds", seconds]
    command += ["--cpu", cpu_name(), "--commit", commit] + ["--quick"] * stage.options.quick
    stage.run("x86", command, ENV)
    print(stage.output("x86"), flush=True)
    if result.exists():
        stage.notes.append(str(result.relative_to(ROOT)))
        if kept:
            shutil.copy(result, LOGS)
    stage.notes.append(stage.output("x86").strip().rpartition("\n")[2])


# In the order they run.
STAGES = {"build": build, "exact": exact, "agree": agree, "python": python, "bench": bench}
