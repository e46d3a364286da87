"""What a core can do at most, and how a worker that is held against it begins."""

from __future__ import annotations

import json
import subprocess
import warnings

import torch

from bench.common.workers import ROOT, worker_arguments

PROBE = ROOT / "build" / "release" / "bench" / "probe" / "bench_probe"


def probed(quick: bool) -> dict[str, float]:
    """GFLOP/s of one core by instruction; empty where there is no probe."""
    if not PROBE.exists():
        return {}
    # The best of many turns on one core; other threads of this process sleep meanwhile.
    done = subprocess.run(
        [PROBE, "20" if quick else "200"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def begin_beside_torch() -> tuple[int, bool, dict[str, float]]:
    """Threads, quick and peaks, which are the first row that is printed."""
    arguments = worker_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    # What torch says, with a stack of calls, on CPUs without bf16; it multiplies another way then.
    warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
    peaks = probed(arguments.quick)
    print(json.dumps({"peaks": peaks}), flush=True)
    return arguments.threads, arguments.quick, peaks
