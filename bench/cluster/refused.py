"""What does not fit together, and storage that is gone: one clear error, nothing half written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.checkpoint.model import SHAPES, Shape, write_model
from bench.cluster.identical import SHAPE, clean
from bench.cluster.running import run

FOREIGN = Shape(256, 512, 3, 4, 2, 1024, 1)  # another layer
NOBODY = 65534


class Cases:
    def __init__(self, program: Path, made: Path):
        self.program, self.made, self.out = program, made, made / "out"
        for name, shape in (("model", SHAPE), ("foreign", FOREIGN), ("small", SHAPES["tiny"])):
            write_model(made / name, shape)
        search = ("--recipe", "nvfp4", "--scale-policy", "mse", "--shard-size", "4M")
        run(program, "plan", made / "model", "-o", made / "plan.json", *search)
        run(program, "plan", made / "small", "-o", made / "small.json", "--recipe", "nvfp4")

    def words(self, plan: str, rank: int, world: int, *model: object) -> list[str]:
        named = [self.program, "quantize", *model, "--plan", self.made / plan, "-o", self.out]
        return [*map(str, [*named, "--threads", 1, f"--rank={rank}", "--world", world])]

    def said(self, plan: str, rank: int, world: int, *model: object, **more) -> tuple[int, str]:
        words = self.words(plan, rank, world, *model)
        done = subprocess.run(words, capture_output=True, text=True, env=clean(), **more)
        return done.returncode, done.stderr

    def at_work(self) -> subprocess.Popen[str]:
        """A process in the middle of its work, the first of two."""
        words = self.words("plan.json", 0, 2)
        running = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean()
        )
        deadline = time.monotonic() + 120
        while not list(self.out.glob("octavo-work/*.done.json")):
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(running.communicate()[1])
            time.sleep(0.001)
        return running

    def beside_another(self, plan: str, world: int) -> tuple[int, str]:
        running = self.at_work()
        running.send_signal(signal.SIGSTOP)
        found = self.said(plan, 1, world)
        running.kill()
        running.communicate()
        return found

    def vanished(self) -> tuple[int, str]:
        running = self.at_work()
        away = self.made / "away"
        self.out.rename(away)
        text = running.communicate()[1]
        assert not (away / "config.json").exists()
        return running.returncode, text

    def not_to_be_written(self) -> tuple[int, str]:
        self.out.mkdir()
        for folder in (self.made, self.made.parent):
            folder.chmod(0o755)
        if os.geteuid() == 0:
            return self.said("small.json", 0, 1, user=NOBODY)
        self.out.chmod(0o555)
        return self.said("small.json", 0, 1)


def refused(program: Path, made: Path) -> tuple[list[dict], list[str]]:
    of = Cases(program, made)
    cases: list[tuple[str, str, Callable[[], tuple[int, str]]]] = [
        ("a plan of another model", "model", lambda: of.said("small.json", 0, 1, made / "foreign")),
        ("a rank beyond its world", "0 to 1", lambda: of.said("small.json", 2, 2)),
        ("a negative rank", "rank", lambda: of.said("small.json", -1, 2)),
        ("worlds that differ", "world 2", lambda: of.beside_another("plan.json", 3)),
        ("another plan in the folder", "plan", lambda: of.beside_another("small.json", 2)),
        ("a folder not to be written", "may write", of.not_to_be_written),
        ("storage that vanishes", "", of.vanished),
    ]
    rows, missed = [], []
    for name, wanted, case in cases:
        shutil.rmtree(of.out, ignore_errors=True)
        code, text = case()
        lines = [line for line in text.splitlines() if line.startswith("octavo: [")]
        good = code in (1, 2) and len(lines) == 1 and wanted in lines[0]
        said = (lines[0] if lines else text[-300:]).replace(f"{made}/", "")
        print(f"{name}: {said}", flush=True)
        rows.append({"case": name, "code": code, "said": said, "refused": good})
        if not good:
            missed.append(f"{name}: {said}")
    return rows, missed
