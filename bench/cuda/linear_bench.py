"""A training step of one layer on a Hopper GPU: octavo.torch's Linear beside torch's own in bf16.

    linear_bench.py [--rows 8192] [--in 4096] [--out 16384] [--repeats 15] [--json FILE]

Forward and backward, quantization included. CUDA events around several steps that follow each other
without waiting, as the layers of a model do; interleaved, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

import octavo.torch as te

STEPS = 5


def step_of(layer, x, dy, recipe=None):
    def step():
        x.grad = None
        layer.weight.grad = None
        if recipe is None:
            y = layer(x)
        else:
            with te.autocast(enabled=True, recipe=recipe):
                y = layer(x)
        y.backward(dy)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--in", dest="features", type=int, default=4096)
    parser.add_argument("--out", type=int, default=16384)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json")
    args = parser.parse_args()
    where = dict(device="cuda", dtype=torch.bfloat16)
    x = torch.randn(args.rows, args.features, requires_grad=True, **where)
    dy = torch.randn(args.rows, args.out, **where)
    plain = torch.nn.Linear(args.features, args.out, bias=False, **where)
    steps = {"torch bf16": step_of(plain, x, dy)}
    for name in (
        "MXFP8BlockScaling",
        "Float8CurrentScaling",
        "Float8BlockScaling",
        "DelayedScaling",
    ):
        layer = te.Linear(
            args.features, args.out, bias=False, params_dtype=torch.bfloat16, device="cuda"
        )
        steps[name] = step_of(layer, x, dy, getattr(te.recipe, name)())
    for name in list(steps):
        try:
            start = time.monotonic()
            steps[name]()
            torch.cuda.synchronize()
            print(f"first step of {name}: {time.monotonic() - start:.2f} s", flush=True)
        except Exception as error:  # the others are still worth a figure
            print(f"{name}: {type(error).__name__}: {error}")
            del steps[name]
    times = {name: [] for name in steps}
    for _ in range(args.repeats):
        for name, step in steps.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(STEPS):
                step()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) / STEPS)
    base = statistics.median(times["torch bf16"])
    results = {name: statistics.median(ms) for name, ms in times.items()}
    for name, ms in results.items():
        print(f"{name:<24}{ms:9.3f} ms{base / ms:8.2f} x bf16")
    if args.json:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        sizes = {"rows": args.rows, "in": args.features, "out": args.out}
        with open(args.json, "w") as file:
            json.dump(facts | sizes | {"repeats": args.repeats, "steps": STEPS, "ms": results,
                                       "ratio": {n: base / ms for n, ms in results.items()}},
                      file, indent=1)  # fmt: skip


if __name__ == "__main__":
    main()
