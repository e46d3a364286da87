"""Counts the instructions that a call of attention executes, for CPUs that are not at hand.

An emulator (qemu-aarch64, which has every extension) runs `bench_attention_call` and logs the
blocks of instructions that it translates and executes. The difference between two numbers of
queries, or of keys, is their cost: program start and the packing of keys for all queries cancel. A
count is not a time: it does not say how many of them a core does in a cycle.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

BACKENDS = ("cpu/neon", "cpu/neon_dot", "cpu/neon_bf16", "cpu/neon_i8mm")
RUNGS = ("bf16", "strict", "balanced", "fast")
SIZES = (64, 128)
QUERIES, MORE_QUERIES, KEYS = 96, 480, 256
# One query of each head, heads sharing their keys.
DECODE_HEADS, DECODE_KEYS, MORE_DECODE_KEYS = (1, 4), 1024, 2048


def executed(program: pathlib.Path, backend: str, arguments: list[str]) -> int:
    """Instructions of one run of the program."""
    command = [shutil.which("qemu-aarch64"), "-cpu", "max", "-d", "in_asm,exec,nochain"]
    environment = {**os.environ, "OCTAVO_BACKEND": backend, "OCTAVO_THREADS": "1"}
    lengths: dict[bytes, int] = {}  # of blocks, by their address
    total = 0
    with subprocess.Popen(
        [*command, str(program), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    ) as run:
        first, length = b"", 0
        for line in run.stderr:
            if line.startswith(b"Trace "):
                # Trace 0: host address [flags/address/...]
                total += lengths[line.split(b"/", 2)[1].lstrip(b"0")]
            elif line.startswith(b"0x"):
                first = first or line[2:].split(b":", 1)[0]
                length += 1
                lengths[first] = length
            else:
                first, length = b"", 0
    if run.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)} failed on {backend}")
    return total


def difference(
    program: pathlib.Path, backend: str, rung: str, few: list[int], more: list[int]
) -> int:
    """Shapes are heads, queries, keys, size."""
    few_count, more_count = (
        executed(program, backend, [rung, *(str(n) for n in shape)]) for shape in (few, more)
    )
    return more_count - few_count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=pathlib.Path, default=None)
    parser.add_argument("--quick", action="store_true", help="one size and two rungs")
    arguments = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    program = arguments.program or root / "build/release/bench/attention/bench_attention_call"
    if shutil.which("qemu-aarch64") is None or not program.exists():
        sys.exit(f"instructions: needs qemu-aarch64 and {program}")
    print(f"instructions for each score, of further queries against {KEYS} keys")
    print(f"{'':22}" + "".join(f"{name.removeprefix('cpu/'):>12}" for name in BACKENDS))
    for size in SIZES[-1:] if arguments.quick else SIZES:
        for rung in RUNGS[:2] if arguments.quick else RUNGS:
            print(f"{rung + ', size ' + str(size):22}", end="", flush=True)
            for backend in BACKENDS:
                count = difference(
                    program,
                    backend,
                    rung,
                    [1, QUERIES, KEYS, size],
                    [1, MORE_QUERIES, KEYS, size],
                )
                scores = (MORE_QUERIES - QUERIES) * KEYS
                print(f"{count / scores:12.1f}", end="", flush=True)
            print()
    print("instructions for each further key in bf16, one query of each head")
    for heads in DECODE_HEADS:
        print(f"{str(heads) + ' heads, size 128':22}", end="", flush=True)
        for backend in BACKENDS:
            count = difference(
                program,
                backend,
                "bf16",
                [heads, 1, DECODE_KEYS, 128],
                [heads, 1, MORE_DECODE_KEYS, 128],
            )
            print(f"{count / (MORE_DECODE_KEYS - DECODE_KEYS):12.1f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
