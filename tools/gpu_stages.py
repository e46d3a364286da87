"""What tools/gpu_check does, stage by stage. A stage runs commands, each into a log of its own."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sys
import time
from pathlib import Path

from check_stages import ROOT, Stage, count_cases, has_module, output_of

BUILD = ROOT / "build" / "cuda"
LOGS = ROOT / "build" / "gpu-check"
# Tests that run on every backend there is, and those of the device alone.
AGREEMENT = (
    "agreement|every_.*|layout|witness|bad_input|stochastic_.*|scaled_exact|scaled_ties"
    "|golden_vectors|quantize_vectors|fp_env|support|cuda_.*"
)
# Of the GEMM tests, written for the CPU, those that a device passes unchanged: no K, M or N.
EDGES = "GemmEdges.Nothing*"
# For compute-sanitizer, which is slow: every kernel family once.
SANITIZED = {
    "agreement_test": (
        "*Shape/fp8:*Shape/fp8_channel:*Shape/fp8_1x128:*Shape/fp8_block:*Shape/mxfp8:*Shape/mxfp4:"
        "*Shape/nvfp4:*Shape/fp8_both:*Shape/fp8_1x128_both:*Shape/mxfp8_both:*Shape/nvfp4_both:"
        "*Shape/mxfp8_stochastic:*Shape/mxfp8_te:*Shape/mxint8:*Requantized/fp8:"
        "*Requantized/fp8_1x128_both:*ProduceRows*/layer_norm_weight_bias"
    ),
    "layout_test": "PackedLayout.Matches*:StridedLayout.*:RaggedLayout.Bytes*:InPlaceLayout.*",
    "cuda_streams_test": "*Graph*:*Alignment*",
    "cuda_gemm_test": "*EveryTypeOfResult:*Nan*:*RowsOfCodes*",
    "cuda_gemm_kernels_test": "*EveryPairOfFormats:*StreamK*",
    "cuda_gemm_mx_test": "*Limit*:*AnyScaling:*EveryShape*:*Groups",
    "cuda_gemm_streams_test": "*Workspace*",
    "cuda_gemm_bf16_test": "*StridesOfValues:*FractionBits",
    "cuda_gemm_fp4_test": "*AnyScale:*SmallM*:*WithinTheBound",
    "cuda_mx_scale_sectors_test": "*Edges*",
}
# What compute-sanitizer does not see in tensor-core GEMM kernels. Initcheck does not see TMA stores
# and takes results for uninitialised memory; flags of stream-K are read before they are written on
# purpose, because no value but this launch's ticket counts. Racecheck does not see that an mbarrier
# in shared memory hands over a pipeline stage; it reports a race where one thread writes a number,
# others read it after they waited at one barrier, and the next is written after they arrived at
# another.
FP8_PRODUCTS = (
    "cuda_gemm_test",
    "cuda_gemm_kernels_test",
    "cuda_gemm_mx_test",
    "cuda_gemm_streams_test",
)
BLIND = {
    "initcheck": (*FP8_PRODUCTS, "cuda_gemm_fp4_test"),
    "racecheck": (*FP8_PRODUCTS, "cuda_gemm_bf16_test", "cuda_gemm_fp4_test"),
}


def program(name: str) -> Path | None:
    """Of the build tree, or of the CUDA toolkit."""
    found = next(
        (p for p in BUILD.glob(f"**/{name}") if p.is_file() and os.access(p, os.X_OK)), None
    )
    if found is None and (
        path := shutil.which(name) or shutil.which(f"/usr/local/cuda/bin/{name}")
    ):
        found = Path(path)
    return found


def build(stage: Stage) -> None:
    stage.build("cuda", "-DOCTAVO_CUDA_CONFIGS=all")


def agree(stage: Stage) -> None:
    shutil.rmtree(BUILD / "test-xml", ignore_errors=True)
    # The CPU backends are tested everywhere else.
    env = {"OCTAVO_TEST_BACKEND": "cuda"}
    stage.ctest("ctest", BUILD, AGREEMENT, 12, env, "--output-junit", LOGS / "agree.xml")
    stage.ctest("edges", BUILD, "gemm", 1, env | {"GTEST_FILTER": EDGES})
    stage.notes.append(count_cases(BUILD / "test-xml"))


def python(stage: Stage) -> None:
    tests = sorted((ROOT / "python" / "tests").glob("test_cuda_*.py"))
    module = next(BUILD.glob("**/_octavo*.so"), None)
    if not tests or module is None:
        stage.notes.append("left out: " + ("no test_cuda_*.py" if not tests else "no module"))
        return
    # The package as it would be installed.
    package = LOGS / "package" / "octavo"
    shutil.rmtree(package.parent, ignore_errors=True)
    shutil.copytree(ROOT / "python" / "octavo", package)
    shutil.copy(module, package)
    stage.pytest(package.parent, tests, {"OCTAVO_TEST_CUDA": "1"})


def sanitize(stage: Stage) -> None:
    sanitizer = program("compute-sanitizer")
    if sanitizer is None:
        stage.fail("no compute-sanitizer")
        return
    # Exact allocations, so that reads beyond a buffer are seen as well as writes.
    # Only octavo's kernels: those of other libraries are not ours to fix.
    env = {
        "OCTAVO_TEST_BACKEND": "cuda",
        "OCTAVO_TEST_GUARD": "0",
        "OCTAVO_CUDA_LIBRARY_GEMM": "0",
    }
    clean = []
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        good = True
        for test, cases in SANITIZED.items():
            if test in BLIND.get(tool, ()):
                continue
            path = program(test)
            if path is None:
                good = False
                stage.fail(f"{test} is not built")
                continue
            command = [sanitizer, "--tool", tool, "--error-exitcode", 9, "--print-limit", 10]
            good &= stage.run(f"{tool}-{test}", [*command, path, f"--gtest_filter={cases}"], env)
        if good:
            clean.append(tool)
    stage.notes.append("clean: " + (", ".join(clean) or "none"))


def products(stage: Stage) -> None:
    """GEMM benchmarks beside torch's, in one process."""
    door = next(BUILD.glob("**/libocta*gemm_kernel_calls.so"), None)
    if door is None or not has_module("torch"):
        stage.notes.append("products are left out: " + ("no torch" if door else "not built"))
        return
    name = f"products-h200-{datetime.date.today().isoformat()}.json"
    result = ROOT / "bench" / "results" / name
    command = [sys.executable, ROOT / "bench" / "cuda" / "gemm_bench.py", door, "--json", result]
    stage.run("products", command)
    if result.exists():
        shutil.copy(result, LOGS)
    print(stage.output("products"), flush=True)


def ladders(stage: Stage) -> None:
    """Kernel versions (bench/ladder) side by side; the exit status says if results are correct."""
    for name in ("cast_stores", "scale_stores", "gemm_fp8"):
        path = program(f"bench_ladder_cuda_{name}")
        if path is None:
            stage.fail(f"bench_ladder_cuda_{name} is not built")
            continue
        stage.run(f"ladder-{name}", [path])
        print(stage.output(f"ladder-{name}"), flush=True)


LARGER = 60  # seconds that the larger matrix may take
SMI = ["nvidia-smi", "--format=csv,noheader"]


def bench(stage: Stage) -> None:
    bench_cuda = program("bench_cuda")
    if bench_cuda is None:
        stage.fail("bench_cuda is not built")
        return
    ours, larger, peers = (LOGS / f"bench-{name}.json" for name in ("octavo", "larger", "peers"))
    for old in (ours, larger, peers):
        old.unlink(missing_ok=True)
    if not stage.run("octavo", [bench_cuda, "--json", ours]) and not ours.exists():
        return
    if has_module("torch"):
        # What is left after LARGER and a case that has begun when the time is over.
        seconds = max(10, stage.end - time.monotonic() - LARGER - 30)
        folder = ROOT / "bench" / "cuda"
        command = [sys.executable, folder / "peers.py", "--json", peers, "--seconds", seconds]
        was_good = stage.good
        stage.run("peers", command, end=stage.end - LARGER)
        stage.good = was_good  # the table shows what they did not do
    four_times = ["--rows", 32768, "--cols", 16384, "--repeats", 21]
    stage.run("larger", [bench_cuda, *four_times, "--json", larger])
    products(stage)
    ladders(stage)
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": stage.options.commit or output_of(["git", "rev-parse", "HEAD"]) or "unknown",
        "gpu": output_of([*SMI, "--query-gpu=name,driver_version,power.limit"]),
        "nvcc": (output_of([str(program("nvcc")), "--version"]) or "").splitlines()[-2:-1],
    }
    result = ROOT / "bench" / "results" / f"h200-{datetime.date.today().isoformat()}.json"
    join = [
        sys.executable,
        ROOT / "bench" / "cuda" / "join.py",
        ours,
        "--larger",
        larger,
        "--peers",
        peers,
    ]
    if stage.run("join", [*join, "--facts", json.dumps(facts), "--json", result]):
        print(stage.output("join"), flush=True)
        stage.notes.append(str(result.relative_to(ROOT)))
        shutil.copy(result, LOGS)


# In the order they run.
STAGES = {"build": build, "agree": agree, "python": python, "sanitize": sanitize, "bench": bench}
