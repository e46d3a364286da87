"""What tools/gpu_check does, stage by stage. A stage runs commands, each into a log of its own."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "cuda"
LOGS = ROOT / "build" / "gpu-check"
# Tests that run on every backend there is, and those of the device alone.
AGREEMENT = (
    "agreement|every_.*|layout|witness|bad_input|stochastic_.*|golden_vectors|quantize_vectors"
    "|fp_env|support|cuda_.*"
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


@dataclass
class Stage:
    """One stage of a run, and how it went."""

    name: str
    end: float  # of its budget
    commit: str | None = None
    seconds: float = 0.0
    good: bool = True
    notes: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)

    def run(
        self, what: str, command: list, env: dict | None = None, end: float | None = None
    ) -> bool:
        """One command of the stage; its output goes into a log. Killed when the budget is spent."""
        log = LOGS / f"{self.name}-{what}.log"
        left = max(1.0, (end or self.end) - time.monotonic())
        command = [str(word) for word in command]
        with log.open("w") as out:
            out.write("+ " + " ".join(command) + "\n")
            out.flush()
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                env=os.environ | (env or {}), start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(left)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        if status == 0:
            return True
        self.good = False
        self.notes.append(f"{what}: {'out of time' if status is None else f'exit {status}'}")
        tail = log.read_text(errors="replace").splitlines()[-25:]
        self.tails.append(f"---- end of {log.relative_to(ROOT)}\n" + "\n".join(tail))
        return False


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
    python = importlib.util.find_spec("nanobind") is not None
    parts = [f"-DOCTAVO_BUILD_PYTHON={'ON' if python else 'OFF'}", "-DOCTAVO_BUILD_EXAMPLES=OFF"]
    parts += [
        f"-DPython_EXECUTABLE={sys.executable}",
        "-DOCTAVO_BUILD_CLI=OFF",
        "-DOCTAVO_WERROR=OFF",
    ]
    parts += ["-DOCTAVO_CUDA_CONFIGS=all"]
    if stage.run("configure", ["cmake", "--preset", "cuda", *parts]):
        stage.run("compile", ["cmake", "--build", BUILD, "--parallel", os.cpu_count() or 4])
    if not python:
        stage.notes.append("no nanobind, so no Python module")


def agree(stage: Stage) -> None:
    junit = LOGS / "agree.xml"
    shutil.rmtree(BUILD / "test-xml", ignore_errors=True)
    # The CPU backends are tested everywhere else.
    stage.run(
        "ctest",
        ["ctest", "--test-dir", BUILD, "-R", f"^({AGREEMENT})_test$", "-LE", "slow", "-j", 12,
         "--no-tests=error", "--output-on-failure", "--output-junit", junit],
        {"OCTAVO_TEST_BACKEND": "cuda"},
    )  # fmt: skip
    stage.run(
        "edges",
        ["ctest", "--test-dir", BUILD, "-R", "^gemm_test$", "--no-tests=error",
         "--output-on-failure"],
        {"OCTAVO_TEST_BACKEND": "cuda", "GTEST_FILTER": EDGES},
    )  # fmt: skip
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for xml in (BUILD / "test-xml").glob("*.xml"):
        try:
            for case in ET.parse(xml).getroot().iter("testcase"):
                failed = case.find("failure") is not None
                skipped = case.find("skipped") is not None or case.get("status") == "notrun"
                counts["failed" if failed else "skipped" if skipped else "passed"] += 1
        except ET.ParseError:
            counts["failed"] += 1
    stage.notes.append(", ".join(f"{n} {what}" for what, n in counts.items()))


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
    stage.run(
        "pytest",
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow and not big",
            *tests,
        ],
        {"PYTHONPATH": str(package.parent), "OCTAVO_TEST_CUDA": "1"},
    )
    stage.notes.append((LOGS / "python-pytest.log").read_text(errors="replace").splitlines()[-1])


def sanitize(stage: Stage) -> None:
    sanitizer = program("compute-sanitizer")
    if sanitizer is None:
        stage.good = False
        stage.notes.append("no compute-sanitizer")
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
                stage.good = good = False
                stage.notes.append(f"{test} is not built")
                continue
            command = [sanitizer, "--tool", tool, "--error-exitcode", 9, "--print-limit", 10]
            good &= stage.run(f"{tool}-{test}", [*command, path, f"--gtest_filter={cases}"], env)
        if good:
            clean.append(tool)
    stage.notes.append("clean: " + (", ".join(clean) or "none"))


def output_of(command: list[str]) -> str | None:
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def products(stage: Stage) -> None:
    """GEMM benchmarks beside torch's, in one process."""
    door = next(BUILD.glob("**/libocta*gemm_kernel_calls.so"), None)
    if door is None or importlib.util.find_spec("torch") is None:
        stage.notes.append("products are left out: " + ("no torch" if door else "not built"))
        return
    name = f"products-h200-{datetime.date.today().isoformat()}.json"
    result = ROOT / "bench" / "results" / name
    command = [sys.executable, ROOT / "bench" / "cuda" / "gemm_bench.py", door, "--json", result]
    stage.run("products", command)
    if result.exists():
        shutil.copy(result, LOGS)
    print("".join((LOGS / "bench-products.log").read_text().partition("\n")[2:]), flush=True)


def ladders(stage: Stage) -> None:
    """Kernel versions (bench/ladder) side by side; the exit status says if results are correct."""
    for name in ("cast_stores", "scale_stores", "gemm_fp8"):
        path = program(f"bench_ladder_cuda_{name}")
        if path is None:
            stage.good = False
            stage.notes.append(f"bench_ladder_cuda_{name} is not built")
            continue
        stage.run(f"ladder-{name}", [path])
        log = LOGS / f"bench-ladder-{name}.log"
        print("".join(log.read_text().partition("\n")[2:]), flush=True)


LARGER = 60  # seconds that the larger matrix may take
SMI = ["nvidia-smi", "--format=csv,noheader"]


def bench(stage: Stage) -> None:
    bench_cuda = program("bench_cuda")
    if bench_cuda is None:
        stage.good = False
        stage.notes.append("bench_cuda is not built")
        return
    ours, larger, peers = (LOGS / f"bench-{name}.json" for name in ("octavo", "larger", "peers"))
    for old in (ours, larger, peers):
        old.unlink(missing_ok=True)
    if not stage.run("octavo", [bench_cuda, "--json", ours]) and not ours.exists():
        return
    if importlib.util.find_spec("torch") is not None:
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
        "commit": stage.commit or output_of(["git", "rev-parse", "HEAD"]) or "unknown",
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
        print("".join((LOGS / "bench-join.log").read_text().partition("\n")[2:]), flush=True)
        stage.notes.append(str(result.relative_to(ROOT)))
        shutil.copy(result, LOGS)


# In the order they run.
STAGES = {"build": build, "agree": agree, "python": python, "sanitize": sanitize, "bench": bench}
