"""What tools/gpu_check and tools/x86_check share: stages with a budget of time each, whose commands
write a log each, and a table of them at the end. Only the standard library is used."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Stage:
    """One stage of a run, and how it went."""

    name: str
    logs: Path
    end: float  # of its budget
    options: argparse.Namespace
    seconds: float = 0.0
    good: bool = True
    notes: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)

    def log(self, what: str) -> Path:
        return self.logs / f"{self.name}-{what}.log"

    def output(self, what: str) -> str:
        """What a command of this stage printed, without the line that is the command."""
        return "".join(self.log(what).read_text(errors="replace").partition("\n")[2:])

    def fail(self, note: str) -> None:
        self.good = False
        self.notes.append(note)

    def run(
        self, what: str, command: list, env: dict | None = None, end: float | None = None
    ) -> bool:
        """One command of the stage; its output goes into a log. Killed when the budget is spent."""
        log = self.log(what)
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
        self.fail(f"{what}: {'out of time' if status is None else f'exit {status}'}")
        tail = log.read_text(errors="replace").splitlines()[-25:]
        self.tails.append(f"---- end of {log.relative_to(ROOT)}\n" + "\n".join(tail))
        return False

    def build(self, preset: str, *settings: str) -> None:
        """Without what needs more than a compiler: the program, examples, warnings as errors."""
        build = ROOT / "build" / preset
        python = has_module("nanobind")
        if self.run(
            "configure",
            ["cmake", "--preset", preset, f"-DOCTAVO_BUILD_PYTHON={'ON' if python else 'OFF'}",
             f"-DPython_EXECUTABLE={sys.executable}", "-DOCTAVO_BUILD_CLI=OFF",
             "-DOCTAVO_BUILD_EXAMPLES=OFF", "-DOCTAVO_WERROR=OFF", *settings],
        ):  # fmt: skip
            self.run("compile", ["cmake", "--build", build, "--parallel", os.cpu_count() or 4])
        if not python:
            self.notes.append("no nanobind, so no Python module")

    def ctest(
        self, what: str, build: Path, tests: str, jobs: int, env: dict, *more: object
    ) -> bool:
        command = ["ctest", "--test-dir", build, "-R", f"^({tests})_test$", "-LE", "slow"]
        command += ["-j", jobs, "--no-tests=error", "--output-on-failure"]
        return self.run(what, [*command, *more], env)

    def pytest(self, package: Path, tests: list[Path], env: dict, *more: str) -> None:
        """Tests of the package that lies in the folder `package`."""
        mark = "not slow and not big"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", mark]
        self.run("pytest", [*command, *more, *tests], {"PYTHONPATH": str(package), **env})
        self.notes.append(self.output("pytest").strip().rpartition("\n")[2])


def count_cases(folder: Path) -> str:
    """Cases in the XML that GoogleTest programs left in a folder."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for xml in folder.glob("*.xml"):
        try:
            for case in ET.parse(xml).getroot().iter("testcase"):
                failed = case.find("failure") is not None
                skipped = case.find("skipped") is not None or case.get("status") == "notrun"
                counts["failed" if failed else "skipped" if skipped else "passed"] += 1
        except ET.ParseError:
            counts["failed"] += 1
    return ", ".join(f"{n} {what}" for what, n in counts.items())


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def output_of(command: list[str], env: dict | None = None) -> str | None:
    try:
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True,
            env=os.environ | (env or {}),
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None


def main(
    description: str | None,
    stages: dict[str, Callable[[Stage], None]],
    budget: dict[str, float],
    logs: Path,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> int:
    """Runs the stages that are asked for; returns how many failed."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(stages), help="stages, with commas between")
    parser.add_argument("--budget", default="", help="stage=seconds, with commas between")
    parser.add_argument("--out", type=Path, help="a folder for copies of logs and results")
    parser.add_argument("--commit", help="what is tested, where there is no git to ask")
    add_options(parser)
    options = parser.parse_args()
    wanted = options.only.split(",")
    seconds = budget | {
        k: float(v) for k, _, v in (b.partition("=") for b in options.budget.split(",") if b)
    }
    for name in [*wanted, *seconds]:
        if name not in stages:
            parser.error(f"unknown stage {name!r}; stages: {', '.join(stages)}")
    logs.mkdir(parents=True, exist_ok=True)
    done = []
    for name in (n for n in stages if n in wanted):
        start = time.monotonic()
        stage = Stage(name, logs, end=start + seconds[name], options=options)
        try:
            stages[name](stage)
        except Exception as error:  # the next stage must still run
            stage.fail(f"{type(error).__name__}: {error}")
        stage.seconds = time.monotonic() - start
        for tail in stage.tails[:4]:
            print(tail, flush=True)
        done.append(stage)
    print(f"\n{'stage':<10}{'':<8}{'seconds':>8}  notes")
    for stage in done:
        verdict = "good" if stage.good else "FAILED"
        print(f"{stage.name:<10}{verdict:<8}{stage.seconds:>8.0f}  {'; '.join(stage.notes)}")
    if options.out:
        ignored = shutil.ignore_patterns("package")
        shutil.copytree(logs, options.out, dirs_exist_ok=True, ignore=ignored)
    return sum(not stage.good for stage in done)
