"""Is the output of several processes that of one, byte for byte, also after kills and restarts?"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.checkpoint.model import Shape, write_model
from bench.cluster.running import run

# 152 MB of bf16, and some seconds of NVFP4 with search: time to die in.
SHAPE = Shape(1024, 2816, 6, 16, 4, 4096, 3)
OPTIONS = ("--recipe", "nvfp4", "--scale-policy", "mse", "--shard-size", "4M")
KILLS, TAKEOVER = 20, 1.0
RAY = """
import sys
import ray
from ray.cluster_utils import Cluster
import octavo.ray
plan, out, nodes = sys.argv[1], sys.argv[2], int(sys.argv[3])
made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
for _ in range(nodes - 1):
    made.add_node(num_cpus=1)
made.wait_for_nodes()
ray.init(address=made.address, log_to_driver=False)
octavo.ray.quantize(None, out, plan=plan, progress=False)
ray.shutdown()
made.shutdown()
"""


def digests(folder: Path) -> dict[str, str]:
    """Of everything in it, folders and temporary files included."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@dataclass
class Runs:
    program: Path
    made: Path
    python: Path
    whole: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        return self.made / "out"

    def words(self, rank: int, world: int, *more: object, plan: str = "plan.json") -> list[str]:
        named = [self.program, "quantize", "--plan", self.made / plan, "-o", self.out]
        return [*map(str, [*named, "--threads", 1, "--rank", rank, "--world", world, *more])]

    def start(self, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean()
        )

    def clear(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)

    def same(self) -> bool:
        return digests(self.out) == self.whole

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + 120
        while not list(self.out.glob(pattern)) and not (self.out / "config.json").exists():
            if time.monotonic() > deadline:
                raise SystemExit(f"no {pattern} in {self.out}")
            time.sleep(0.001)


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OCTAVO_")}


def ended(running: list[subprocess.Popen[str]]) -> list[int]:
    for one in running:
        one.communicate(timeout=600)
    return [one.returncode for one in running]


def plain(runs: Runs, world: int) -> dict[str, object]:
    codes = ended([runs.start(runs.words(rank, world)) for rank in range(world)])
    return {"processes": world, "good": codes == [0] * world}


def launched(runs: Runs, world: int, launcher: list[str], tool: str) -> dict[str, object]:
    if shutil.which(tool) is None:
        return {"skipped": f"no {tool}"}
    words = [str(runs.program), "quantize", "--plan", str(runs.made / "plan.json")]
    done = subprocess.run(
        [*launcher, *words, "-o", str(runs.out), "--threads", "1"],
        capture_output=True,
        text=True,
        env=clean(),
    )
    said = all(f"rank {rank} of {world}" in done.stderr for rank in range(world))
    return {"processes": world, "good": done.returncode == 0 and said}


def ray(runs: Runs) -> dict[str, object]:
    has = subprocess.run([runs.python, "-c", "import ray, octavo"], capture_output=True)
    if has.returncode != 0:
        return {"skipped": "no ray, or no octavo, in that Python"}
    words = [str(runs.python), "-c", RAY, str(runs.made / "plan.json"), str(runs.out), "3"]
    done = subprocess.run(words, capture_output=True, text=True, env=clean())
    if done.returncode != 0:
        print(done.stderr[-2000:], file=sys.stderr)
    return {"raylets": 3, "good": done.returncode == 0}


def kills(runs: Runs) -> dict[str, object]:
    """One of three is killed at a random moment, until KILLS of them died in the middle."""
    chance = random.Random(33)
    begin = time.monotonic()
    ended([runs.start(runs.words(rank, 3, "--takeover-after", TAKEOVER)) for rank in range(3)])
    whole = time.monotonic() - begin
    rounds, good, died = 0, 0, 0
    while died < KILLS and rounds < 3 * KILLS:  # one may have ended before its kill
        rounds += 1
        runs.clear()
        running = [
            runs.start(runs.words(rank, 3, "--takeover-after", TAKEOVER)) for rank in range(3)
        ]
        runs.wait_for("octavo-work/run.json")
        time.sleep(chance.random() * 0.8 * whole)
        victim = chance.randrange(3)
        running[victim].send_signal(signal.SIGKILL)
        codes = ended(running)
        died += codes[victim] == -signal.SIGKILL
        others = [code for rank, code in enumerate(codes) if rank != victim]
        good += others == [0, 0] and codes[victim] in (0, -signal.SIGKILL) and runs.same()
    whole_work = good == rounds and died == KILLS
    return {"processes": 3, "rounds": rounds, "died": died, "same": good, "good": whole_work}


def stale(runs: Runs) -> dict[str, object]:
    """One is stopped in the middle, taken over, and goes on when all is done."""
    stopped = runs.start(runs.words(0, 2, "--takeover-after", TAKEOVER))
    runs.wait_for("octavo-work/*.done.json")
    stopped.send_signal(signal.SIGSTOP)
    other = runs.start(runs.words(1, 2, "--takeover-after", TAKEOVER))
    codes = ended([other])
    same = runs.same()
    stopped.send_signal(signal.SIGCONT)
    codes += ended([stopped])
    return {"processes": 2, "good": codes == [0, 0] and same}


def late(runs: Runs) -> dict[str, object]:
    first = runs.start(runs.words(0, 2))
    runs.wait_for("octavo-work/*.done.json")
    second = runs.start(runs.words(1, 2))
    said = second.communicate(timeout=600)[1]
    codes = [*ended([first]), second.returncode]
    return {"processes": 2, "good": codes == [0, 0] and "wrote 0 files" not in said}


def mistake(runs: Runs) -> dict[str, object]:
    """Two plans, one folder: one is made, and each process of the other has one line to say."""
    both = ["plan.json", "other.json"]
    running = [
        (plan, runs.start(runs.words(rank, 3, plan=plan))) for rank in range(3) for plan in both
    ]
    said = [(plan, one.communicate(timeout=600)[1], one.returncode) for plan, one in running]
    winners = {plan for plan, _, code in said if code == 0}
    lines = {text.count("octavo: [") for plan, text, _ in said if plan not in winners}
    wholes = {"plan.json": runs.whole, "other.json": digests(runs.made / "other")}
    good = len(winners) == 1 and lines == {1} and digests(runs.out) == wholes[min(winners)]
    return {"processes": 6, "good": good, "compared": False}


def clocks(runs: Runs) -> dict[str, object]:
    faketime = shutil.which("faketime")
    if faketime is None:
        return {"skipped": "no faketime"}
    shifts = ["-3y", "+0", "+5y"]
    codes = ended(
        [
            runs.start([faketime, "-f", shift, *runs.words(rank, 3, "--takeover-after", 5)])
            for rank, shift in enumerate(shifts)
        ]
    )
    return {"processes": 3, "clocks": shifts, "good": codes == [0, 0, 0]}


def identical(program: Path, made: Path, python: Path) -> tuple[list[dict], list[str]]:
    runs = Runs(program, made, python)
    size = write_model(made / "model", SHAPE)
    for plan, whole, options in (
        ("plan.json", "whole", OPTIONS),
        ("other.json", "other", ("--recipe", "mxfp8", *OPTIONS[4:])),
    ):
        run(program, "plan", made / "model", "-o", made / plan, *options)
        run(program, "quantize", made / "model", "-o", made / whole, *options)
    runs.whole = digests(made / "whole")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    mpirun = ["mpirun", *root, "--oversubscribe", "-n", "3"]
    torchrun = shutil.which("torchrun", path=f"{python.parent}:{os.environ['PATH']}") or "torchrun"
    cases: list[tuple[str, Callable[[], dict[str, object]]]] = [
        *((f"{n} processes", lambda n=n: plain(runs, n)) for n in (1, 2, 3, 8)),
        ("Open MPI", lambda: launched(runs, 3, mpirun, "mpirun")),
        (
            "torchrun",
            lambda: launched(runs, 2, [torchrun, "--nproc-per-node", "2", "--no-python"], torchrun),
        ),
        ("Ray", lambda: ray(runs)),
        ("one of three killed", lambda: kills(runs)),
        ("a stale claim", lambda: stale(runs)),
        ("a late joiner", lambda: late(runs)),
        ("two runs by mistake", lambda: mistake(runs)),
        ("clocks that differ by years", lambda: clocks(runs)),
    ]
    rows, missed = [], []
    for name, case in cases:
        runs.clear()
        begin = time.monotonic()
        found = case()
        row: dict[str, object] = {"case": name, "bytes": size, "files": len(runs.whole), **found}
        row["seconds"] = round(time.monotonic() - begin, 2)
        if "skipped" not in found:
            compared = row.pop("compared", True)
            row["identical"] = bool(row.pop("good")) and (not compared or runs.same())
            if not row["identical"]:
                missed.append(name)
        what = row.get("skipped") or ("the bytes of one" if row["identical"] else "OTHER BYTES")
        print(f"{name}: {what}, {row['seconds']} s", flush=True)
        rows.append(row)
    return rows, missed
