"""How fast, and in how much memory, does a checkpoint become a quantized one?

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench.checkpoint.model import SHAPES, write_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = ROOT / "build" / "release" / "bench" / "checkpoint" / "bench_checkpoint"
PEERS = ROOT / ".venv-peers" / "bin" / "python"
RECIPES = ("fp8-block", "fp8-channel", "mxfp8", "nvfp4")
SCHEMES = {
    "fp8-block": "FP8_BLOCK",
    "fp8-channel": "FP8_DYNAMIC",
    "mxfp8": "MXFP8",
    "nvfp4": "NVFP4A16",
}
AT_LEAST = {
    "torch script": {"fp8-block": 2.5, "fp8-channel": 2.5, "mxfp8": 2.5},
    "model_free_ptq": {"fp8-block": 9, "fp8-channel": 9, "mxfp8": 9, "nvfp4": 18},
}
MOST_MEBIBYTES = 300
KEPT_LINES = 6  # last output lines of a failed side

MODEL_FREE = """
import json, sys, time
from llmcompressor import model_free_ptq
start = time.perf_counter()
model_free_ptq(sys.argv[1], sys.argv[2], scheme=sys.argv[3],
               ignore=["lm_head", "re:.*embed_tokens"], device="cpu")
seconds = time.perf_counter() - start
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "peak_mebibytes": peak}))
"""


def sides(source: pathlib.Path, out: pathlib.Path, recipe: str) -> dict[str, list[str]]:
    """Commands that quantize, and print the seconds it took without what starting them takes."""
    paths = [str(source), str(out)]
    made = {
        "octavo": [str(OCTAVO), *paths, recipe, "compressed-tensors"],
        "torch script": [sys.executable, "-m", "bench.checkpoint.torch_script", *paths, recipe],
    }
    if PEERS.exists():
        made["model_free_ptq"] = [str(PEERS), "-c", MODEL_FREE, *paths, SCHEMES[recipe]]
    return made


class FailedError(RuntimeError):
    """A side failed: the others' figures are kept."""


def run_once(command: list[str], out: pathlib.Path) -> dict[str, float]:
    """Runs one side in its own process, which reports its seconds and its peak RSS."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()  # so that no side waits for the writes of another
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=words, text=True
        )
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        words.seek(0)
        last = ([""] + words.read().split("\n"))[-KEPT_LINES:]
    shutil.rmtree(out, ignore_errors=True)
    if process.returncode != 0:
        said = "\n".join(line for line in last if line.strip())
        raise FailedError(f"ended with {process.returncode}: {said}")
    try:
        told = json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise FailedError(f"did not say its seconds: {printed[-200:]!r}") from error
    return {
        "seconds": told["seconds"],
        "process_seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mebibytes": told["peak_mebibytes"],
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure; of memory the most."""
    out = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    out["peak_mebibytes"] = max(run["peak_mebibytes"] for run in runs)
    return out


def measured(source: pathlib.Path, out: pathlib.Path, recipe: str, turns: int) -> dict[str, object]:
    """The sides are interleaved, so that all run under the same conditions; the median counts.

    A side that fails is left out of later rounds, and the row says why.
    """
    samples: dict[str, list[dict[str, float]]] = {}
    failed: dict[str, str] = {}
    for _ in range(turns):
        for name, command in sides(source, out, recipe).items():
            if name in failed:
                continue
            try:
                samples.setdefault(name, []).append(run_once(command, out))
            except FailedError as error:
                failed[name] = str(error)
    done = {name: runs for name, runs in samples.items() if runs}
    row: dict[str, object] = {"recipe": recipe, "failed": failed}
    row["sides"] = {name: summary(runs) for name, runs in done.items()}
    ours = row["sides"].get("octavo")
    rivals = [name for name in done if name != "octavo"]
    row["ratios"] = {}
    if ours:
        row["ratios"] = {name: row["sides"][name]["seconds"] / ours["seconds"] for name in rivals}
    asked = {name: AT_LEAST[name][recipe] for name in rivals if recipe in AT_LEAST[name]}
    row["at_least"] = asked
    row["holds"] = (
        "octavo" not in failed
        and ours["peak_mebibytes"] <= MOST_MEBIBYTES
        and all(row["ratios"][name] >= least for name, least in asked.items())
    )
    return row


def print_row(row: dict) -> None:
    print(f"  {row['recipe']:<12}", end="")
    for name, side in row["sides"].items():
        print(
            f"  {name} {side['seconds']:.2f} s ({side['cpu_seconds']:.1f} of CPU, "
            f"{side['peak_mebibytes']:.0f} MiB)",
            end="",
        )
    ratios = "  ".join(f"{ratio:.2f} x {name}" for name, ratio in row["ratios"].items())
    print(f"  {ratios}{'' if row['holds'] else '  MISSED'}", flush=True)
    for name, reason in row["failed"].items():
        print(f"    {name} {reason}", flush=True)


def machine(folder: pathlib.Path) -> dict[str, object]:
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False
    )
    return {
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "file_system": kind.stdout.strip(),
        "model_free_ptq": "here" if PEERS.exists() else "not here: no .venv-peers (make peers)",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it runs")
    parser.add_argument("--recipe", choices=RECIPES, action="append", help="only these")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--folder", type=pathlib.Path, help="where models are put (default: TMPDIR)"
    )
    parser.add_argument("--large", action="store_true", help="8 GB too, for the peak of memory")
    arguments = parser.parse_args()
    if not OCTAVO.exists():
        print(f"no {OCTAVO}: build it with -DOCTAVO_BUILD_BENCH=ON", file=sys.stderr)
        return 1
    result: dict[str, object] = {"question": "checkpoint", "rows": []}

    def keep(row: dict[str, object]) -> None:
        """Writes the rows at once: a later side may fail or be stopped."""
        result["rows"].append(row)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n")

    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="octavo-bench-") as name:
        folder = pathlib.Path(name)
        result["machine"] = machine(folder)
        source, out = folder / "model", folder / "out"
        shape = "tiny" if arguments.quick else "1.1b"
        total = write_model(source, SHAPES[shape])
        print(f"{shape}: {total / 1e9:.2f} GB of bf16 in {SHAPES[shape].files} files", flush=True)
        for recipe in arguments.recipe or RECIPES:
            row = measured(source, out, recipe, 1 if arguments.quick else arguments.turns)
            keep({**row, "bytes": total})
            print_row(row)
        if arguments.large:
            shutil.rmtree(source)
            total = write_model(source, SHAPES["4b"])
            for recipe in arguments.recipe or RECIPES:
                run = run_once(sides(source, out, recipe)["octavo"], out)
                keep({"recipe": recipe, "bytes": total, "sides": {"octavo": run}})
                print(
                    f"  {recipe:<12}  {total / 1e9:.2f} GB: octavo {run['seconds']:.2f} s, "
                    f"{run['peak_mebibytes']:.0f} MiB",
                    flush=True,
                )
    return 1 if any("octavo" in row.get("failed", {}) for row in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
