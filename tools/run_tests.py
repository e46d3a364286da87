"""Builds and runs the tests, one stage after another, and says at the end how many passed.

    run_tests.py               the first tier: what a person runs before a change is shown to others
    run_tests.py --all         both tiers: what continuous integration runs
    run_tests.py release dev   these stages only
    run_tests.py slow          the exhaustive tests

What the tests need from PyPI is installed while C++ is compiled (tools/bootstrap), before the first
stage that runs it. A stage that fails does not stop the next one: one run should show all that is
broken. The last line has the form "N passed, N failed", where N counts single test cases, and the
exit status is 1 if any failed. Only the standard library is used.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from memory_folder import folder_for_files

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __iadd__(self, other: Count) -> Count:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        return self


def take_interrupts() -> None:
    """A shell that runs this in the background has it ignore interrupts; tests send them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(command: list[str], variables: dict[str, str] | None = None) -> bool:
    print("+", " ".join(command), flush=True)
    env = os.environ | (variables or {})
    return subprocess.run(command, cwd=ROOT, env=env, preexec_fn=take_interrupts).returncode == 0


def count_cases(xml_file: Path) -> Count:
    """Counts the cases of a JUnit file: GoogleTest, pytest and ctest all write this shape."""
    count = Count()
    for case in ET.parse(xml_file).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            count.skipped += 1
        else:
            count.passed += 1
    return count


def count_ctest(junit: Path, cases: Path) -> Count:
    """ctest knows programs, GoogleTest's XML knows cases; a program that died left no XML."""
    total = Count()
    for program in ET.parse(junit).getroot().iter("testcase"):
        failed = program.find("failure") is not None
        detail = cases / f"{program.get('name')}.xml"
        try:
            count = count_cases(detail)
        except (OSError, ET.ParseError):
            skipped = program.find("skipped") is not None
            count = Count(int(not failed and not skipped), int(failed), int(skipped))
        # All cases passed and the program still failed: a sanitizer's report, a crash at exit.
        if failed and count.failed == 0:
            count.failed = 1
        total += count
    return total


class Packages:
    """What stages need from PyPI, installed in the background: minutes where nothing is there yet,
    most of them waiting for the network."""

    def __init__(self, level: str) -> None:
        self._process = subprocess.Popen(["tools/bootstrap", level], cwd=ROOT)

    def are_there(self, seconds: float) -> bool:
        """Is the installation over, after that long at most?"""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def installed(self) -> bool:
        return self._process.wait() == 0


# Several sources compiled as one, in a folder that build trees share: the package then has objects
# of `release` from ccache.
UNITY = ["-DOCTAVO_UNITY=ON", f"-DOCTAVO_UNITY_FOLDER={ROOT / 'build' / 'unity'}"]

BUILD_SECONDS: dict[str, float] = {}  # of the stages that compile, by their names


def cpp_stage(
    preset: str,
    test_preset: str | None = None,
    prefix: list[str] = (),
    target: str | None = None,
    options: list[str] = (),
    stage: str | None = None,
) -> Count:
    build = ROOT / "build" / preset
    cases = build / "test-xml"
    junit = RESULTS / f"ctest-{test_preset or preset}.xml"
    shutil.rmtree(cases, ignore_errors=True)
    junit.unlink(missing_ok=True)
    configure = ["cmake", "--preset", preset, "-DOCTAVO_WERROR=ON", *UNITY, *options]
    start = time.monotonic()
    build_command = ["cmake", "--build", "--preset", preset]
    if target is not None:
        build_command += ["--target", target]
    if not run(configure) or not run(build_command):
        return Count(failed=1)
    BUILD_SECONDS[stage or test_preset or preset] = time.monotonic() - start
    ctest = ["ctest", "--preset", test_preset or preset, "--output-junit", str(junit)]
    good = run([*prefix, *ctest])
    if not junit.exists():
        return Count(failed=1)
    count = count_ctest(junit, cases)
    if not good and count.failed == 0:
        count.failed = 1
    return count


def find_nvcc() -> str | None:
    usual = "/usr/local/cuda/bin/nvcc"
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which(usual)


def cuda_stage() -> Count:
    """Compiles and links what needs CUDA; where there is no device its tests skip themselves."""
    nvcc = find_nvcc()
    if nvcc is None:
        print("left out: the CUDA backend is not built, because there is no nvcc")
        return Count()
    build = ROOT / "build" / "cuda-one"
    cases, junit = build / "test-xml", RESULTS / "ctest-cuda.xml"
    shutil.rmtree(cases, ignore_errors=True)
    junit.unlink(missing_ok=True)
    # One configuration of each kernel: all of them are `make cuda`, and minutes.
    parts = [f"-DOCTAVO_BUILD_{part}=OFF" for part in ("CLI", "EXAMPLES")]
    configure = ["cmake", "--preset", "cuda", "-B", str(build), "-DOCTAVO_CUDA_CONFIGS=one"]
    compiler = f"-DCMAKE_CUDA_COMPILER={nvcc}"
    targets = ["octavo_cuda_tests", "bench_cuda"]
    start = time.monotonic()
    if not run([*configure, compiler, "-DOCTAVO_WERROR=ON", *UNITY, *parts]):
        return Count(failed=1)
    if not run(["cmake", "--build", str(build), "--target", *targets]):
        return Count(failed=1)
    BUILD_SECONDS["cuda"] = time.monotonic() - start
    ctest = ["ctest", "--test-dir", str(build), "-L", "^cuda$", "--output-on-failure"]
    good = run([*ctest, "--no-tests=error", "--output-junit", str(junit)])
    if not junit.exists():
        return Count(failed=1)
    count = count_ctest(junit, cases)
    if not good and count.failed == 0:
        count.failed = 1
    return count


def dev_stage() -> Count:
    """Test programs of `release` with a library under sanitizers: that alone is compiled again. A
    tree in which all is sanitized is preset `dev`."""
    return cpp_stage(
        "release",
        test_preset="sanitized",
        target="octavo_sanitized_tests",
        options=["-DOCTAVO_SANITIZED_TWIN=ON"],
        stage="dev",
    )


def tsan_stage() -> Count:
    # The thread sanitizer wants its shadow memory at fixed places, which strong address space
    # randomisation of recent kernels can occupy.
    fixed_addresses = ["setarch", "-R"]
    allowed = shutil.which("setarch") and (
        subprocess.run([*fixed_addresses, "true"], capture_output=True).returncode == 0
    )
    return cpp_stage("tsan", prefix=fixed_addresses if allowed else [])


def package_stage() -> Count:
    good = run(["make", "--no-print-directory", "package", "WERROR=ON"])
    return Count(passed=int(good), failed=int(not good))


# NVPL, the BLAS in torch's builds for ARM, does not know some processors (a Neoverse V1 in a
# virtual machine is one) and then never returns from a product. Its own variable names one that it
# knows.
ANOTHER_CPU = {"NVPL_BLAS_DEBUG_CPU_TYPE": "1"}
PRODUCT = "import torch; a = torch.ones(64, 64); a @ a"


def variables_for_torch(seconds: float = 120) -> dict[str, str] | None:
    """Environment variables that torch's matmul needs; None if it does not return at all.

    Tried without and with ANOTHER_CPU at the same time. One that has not returned when the other
    has had twice its time never will."""

    def product(variables: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [".venv/bin/python", "-c", PRODUCT],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=subprocess.DEVNULL,  # of one that fails, the tests will say why
            stderr=subprocess.DEVNULL,
        )

    start = time.monotonic()
    plain, other = product({}), product(ANOTHER_CPU)
    other_returned = False
    try:
        while (now := time.monotonic() - start) < seconds:
            if plain.poll() is not None:
                return {}
            if not other_returned and other.poll() is not None:
                other_returned = True
                seconds = min(seconds, 2 * now + 5)
            time.sleep(0.1)
        return ANOTHER_CPU if other_returned else None
    finally:
        for one in (plain, other):
            one.kill()
            one.wait()


def python_stage() -> Count:
    junit = RESULTS / "pytest.xml"
    junit.unlink(missing_ok=True)
    variables = variables_for_torch()
    if variables is None:
        print("torch does not return from a product of 64 x 64 by 64 x 64 on this machine")
        return Count(failed=1)
    for name, value in variables.items():
        print(f"torch does not return from a product here unless {name}={value}: set for the tests")
    # One worker per job: a case takes one core for most of its time.
    workers = os.environ.get("CTEST_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
    command = [".venv/bin/pytest", "-q", "-m", "not slow", "-n", workers, f"--junitxml={junit}"]
    good = run(command, variables)
    try:
        count = count_cases(junit)
    except (OSError, ET.ParseError):
        return Count(failed=1)
    if not good and count.failed == 0:
        count.failed = 1
    return count


def ray_stage() -> Count:
    """octavo.ray on a cluster of several raylets on this machine; one process, as they share it."""
    junit = RESULTS / "ray.xml"
    junit.unlink(missing_ok=True)
    good = run([".venv/bin/pytest", "-q", "-n", "0", "tests/ray", f"--junitxml={junit}"])
    try:
        count = count_cases(junit)
    except (OSError, ET.ParseError):
        return Count(failed=1)
    if not good and count.failed == 0:
        count.failed = 1
    return count


def checks_stage() -> Count:
    """What looks at sources and compiles nothing; each check counts as one case."""
    tracked = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]

    def files(*patterns: str) -> list[str]:
        found = subprocess.run([*tracked, *patterns], cwd=ROOT, capture_output=True, text=True)
        return [name for name in found.stdout.splitlines() if (ROOT / name).exists()]

    python_files = files("*.py")
    count = Count()
    for command in (
        [".venv/bin/python", "tests/layering/check_layering.py"],
        ["clang-format", "--dry-run", "-Werror", *files("*.cc", "*.h", "*.cu", "*.cuh")],
        [".venv/bin/ruff", "check", "--quiet", *python_files],
        [".venv/bin/ruff", "format", "--check", "--quiet", *python_files],
        [".venv/bin/mypy"],
    ):
        print("+", " ".join(command[:4]), "..." if len(command) > 4 else "", flush=True)
        good = subprocess.run(command, cwd=ROOT).returncode == 0
        count += Count(passed=int(good), failed=int(not good))
    return count


def emulated_stage() -> Count:
    """Instruction sets that this CPU lacks: of its architecture, in programs of `release` under
    qemu; AVX-512 on ARM, with SIMDe."""
    listing = subprocess.run(
        ["ctest", "--preset", "emulated", "--show-only=json-v1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if '"name" : "' not in listing.stdout:
        print("left out: this CPU runs every instruction set of its architecture itself, and")
        print("there is no SIMDe (libsimde-dev) to run those of another")
        return Count()
    return cpp_stage("release", test_preset="emulated", target="octavo_emulated_tests")


# What users get: what a person runs.
FIRST_TIER = {
    "checks": checks_stage,
    "release": lambda: cpp_stage("release"),
    "package": package_stage,
    "python": python_stage,
}
# The same code under instruments: what continuous integration runs besides.
SECOND_TIER = {
    "emulated": emulated_stage,
    "oblivious": lambda: cpp_stage("release", test_preset="oblivious", target="octavo_oblivious"),
    "dev": dev_stage,
    "tsan": tsan_stage,
    "x86_64": lambda: cpp_stage("x86_64"),
    "cuda": cuda_stage,
    "ray": ray_stage,
}
# Stages that run nothing from PyPI.
WITHOUT_PACKAGES = ("release", "slow")
EXTRA_STAGES = {
    "slow": lambda: cpp_stage("release", test_preset="slow"),
}


def stages_of(arguments: list[str]) -> list[str]:
    if arguments and arguments != ["--all"]:
        return arguments
    stages = [*FIRST_TIER, *SECOND_TIER] if arguments else [*FIRST_TIER]
    # An x86 machine runs x86 code in every stage; only others need the emulator.
    return [name for name in stages if name != "x86_64" or platform.machine() != "x86_64"]


def main(arguments: list[str]) -> int:
    known = FIRST_TIER | SECOND_TIER | EXTRA_STAGES
    stages = stages_of(arguments)
    unknown = [name for name in stages if name not in known]
    if unknown:
        print(f"unknown stage {unknown[0]!r}; stages: {', '.join(known)}", file=sys.stderr)
        return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    files = folder_for_files()  # removed when this program ends
    if files is not None:
        os.environ["TMPDIR"] = files.name
    rows = []
    total = Count()
    level = "ray" if "ray" in stages else "test"
    packages = Packages(level) if set(stages) - set(WITHOUT_PACKAGES) else None
    if packages and not packages.are_there(seconds=5):  # C++ first, then
        stages.sort(key=lambda name: name not in WITHOUT_PACKAGES)
    for name in stages:
        print(f"\n==== {name} ====", flush=True)
        start = time.monotonic()
        if packages is None or name in WITHOUT_PACKAGES or packages.installed():
            count = known[name]()
        else:
            print("tools/bootstrap failed, see above")
            count = Count(failed=1)
        rows.append((name, count, time.monotonic() - start))
        total += count
    heads = ("passed", "failed", "skipped", "seconds", "building")
    print(f"\n{'stage':<10}" + "".join(f"{head:>9}" for head in heads))
    for name, count, seconds in rows:
        building = f"{BUILD_SECONDS[name]:.0f}" if name in BUILD_SECONDS else ""
        numbers = (count.passed, count.failed, count.skipped, f"{seconds:.0f}", building)
        print(f"{name:<10}" + "".join(f"{number:>9}" for number in numbers))
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
