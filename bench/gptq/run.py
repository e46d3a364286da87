"""How long does GPTQ of one layer take? See README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "bench" / "gptq" / "bench_gptq"
OCTAVO = ROOT / "build" / "release" / "bin" / "octavo"
AT_MOST = {2: 10.0}  # seconds of a layer of 4096 x 4096, by cores
MODEL_AT_MOST = 900.0  # seconds of a model of 135 million parameters
WIDTH, QUICK_WIDTH = 4096, 512


def cpu() -> str:
    lines = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    found = [line.split(":")[1].strip() for line in lines.splitlines() if "Model name" in line]
    return found[0] if found else platform.machine()


def run(program: pathlib.Path, cores: list[int], width: int, runs: int) -> dict:
    words = [str(program), str(len(cores)), str(width), str(width), str(runs)]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    row = json.loads(done.stdout)
    for part in ("hessian", "factor", "column"):
        row[f"{part}_median"] = statistics.median(row[f"{part}_seconds"])
        row[f"{part}_cpu_median"] = statistics.median(row[f"{part}_cpu_seconds"])
    row["seconds"] = row["factor_median"] + row["column_median"]
    row["cpu_seconds"] = row["factor_cpu_median"] + row["column_cpu_median"]
    return row


def quantize(arguments: argparse.Namespace) -> dict:
    """A whole model to NVFP4, calibrated by a text; seconds and peak memory of the process."""
    with tempfile.TemporaryDirectory(prefix="bench-gptq-") as folder:
        words = [arguments.octavo, "quantize", arguments.model, "-o", f"{folder}/out"]
        words += ["--recipe", "nvfp4", "--method", "gptq", "--text", arguments.text]
        words += ["--tokens", arguments.tokens]
        start = time.perf_counter()
        subprocess.run([str(word) for word in words], stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "model": arguments.model.name,
        "tokens": arguments.tokens,
        "cores": len(os.sched_getaffinity(0)),
        "threads": os.environ.get("OCTAVO_THREADS"),
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mebibytes": usage.ru_maxrss / 1024,
        "at_most": MODEL_AT_MOST,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", type=pathlib.Path, help="also of all its layers (SmolLM2-135M)")
    parser.add_argument("--text", type=pathlib.Path, help="that it is calibrated by")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--octavo", type=pathlib.Path, default=OCTAVO)
    parser.add_argument("--json", type=pathlib.Path, help="also write the results there")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a bar is missed")
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.text is None):
        parser.error("--model and --text go together")
    available = sorted(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    width = QUICK_WIDTH if arguments.quick else WIDTH
    rows, missed = [], []
    for count in sorted({1, min(2, len(available)), len(available)}):
        row = run(arguments.program, available[-count:], width, arguments.runs)
        row["at_most"] = None if arguments.quick else AT_MOST.get(count)
        if row["at_most"] is not None and row["seconds"] > row["at_most"]:
            missed.append(f"{row['seconds']:.1f} s with {count} threads, at most {row['at_most']}")
        rows.append(row)
        print(
            f"{count} threads: {row['seconds']:.2f} s a layer of {width} x {width} "
            f"(factorisation {row['factor_median']:.2f} s, columns {row['column_median']:.2f} s), "
            f"Hessian of {row['hessian_tokens']} tokens {row['hessian_median']:.2f} s; "
            f"CPU time of the layer {row['cpu_seconds']:.2f} s",
            flush=True,
        )
    if len({(row["codes"], row["error"]) for row in rows}) > 1:
        missed.append("codes depend on the number of threads")
    found: dict[str, object] = {
        "question": "gptq",
        "machine": {"cpu": cpu(), "cores": len(available), "load_before": load},
        "rows": rows,
    }
    if arguments.model:
        found["model"] = row = quantize(arguments)
        print(
            f"{row['model']}, {row['tokens']} tokens: {row['seconds']:.0f} s, "
            f"peak {row['peak_mebibytes']:.0f} MiB"
        )
        if row["seconds"] > row["at_most"]:
            missed.append(f"a model in {row['seconds']:.0f} s, at most {row['at_most']:.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return int(arguments.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
