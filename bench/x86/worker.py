"""Times all cases on the cores this process was given, and prints JSON, a row a case."""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator

import torch

import octavo
from bench.common.interleave import in_turns
from bench.common.memory import copy_of
from bench.common.peaks import probed
from bench.x86 import cases, sides
from bench.x86.cases import Case

# Upper limits of turns. On a shared host the best of many had the core and its AMX unit alone.
TURNS, QUICK_TURNS = 1000, 2
# The instruction of the products of a backend, by the probe's name: of int8, f32, and all others.
INSTRUCTIONS = {
    "cpu/amx": ("tdpbssd", "fma_avx512", "tdpbf16ps"),
    "cpu/avx512_vbmi": ("fma_avx512",) * 3,
    "cpu/avx512": ("fma_avx512",) * 3,
    "cpu/avx2": ("fma_avx2",) * 3,
}
FORCED = os.environ.get("OCTAVO_BACKEND", "").removeprefix("cpu/") in cases.FORCED


def settle(function: Callable[[], object]) -> None:
    """Threads of the side before, which may spin for some milliseconds, go to sleep; those of this
    side wake up, as they are between calls of a program that makes one after another."""
    time.sleep(0.005)
    function()


def fastest(
    functions: sides.Sides, seconds: float, quick: bool, threads: int = 1
) -> tuple[dict, dict]:
    """Seconds of each, and what those that failed said."""
    working, failed = {}, {}
    for name, function in functions.items():
        try:
            function()
            working[name] = function
        except Exception as error:  # a rival that cannot; the others are still to be timed
            if name == "octavo":
                raise
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    turns = QUICK_TURNS if quick else TURNS
    before = settle if threads > 1 and not quick else lambda function: None
    return in_turns(working, turns, pick=min, seconds=seconds, before=before), failed


def row_of(case: Case, rate: float, rivals: dict[str, float], threads: int, quick: bool) -> dict:
    if FORCED:
        case = cases.when_forced(case)
    row: dict[str, object] = {
        "kind": case.kind, "case": case.name, "unit": case.unit, "rate": rate,
        "rivals": rivals, "rival": case.rival, "at_least": case.at_least,
    }  # fmt: skip
    asked = []
    if case.rival in rivals and case.at_least > 0:
        asked.append(case.at_least * rivals[case.rival])
    if threads == 1 and case.on_one_core is not None:
        asked.append(case.on_one_core)
    if asked:
        row["asked"] = max(asked)
        if not quick:  # small sizes on a busy machine say nothing
            row["holds"] = rate >= row["asked"]
    return row


def cast_rows(threads: int, quick: bool, seconds: float) -> Iterator[dict]:
    values = torch.randn(cases.QUICK_CAST_ELEMENTS if quick else cases.CAST_ELEMENTS)
    values = copy_of(values, torch.float32)
    for case in cases.casts(quick):
        times, failed = fastest(sides.of_cast(case, values, threads), seconds, quick, threads)
        rates = {name: case.work / taken for name, taken in times.items()}
        yield row_of(case, rates.pop("octavo"), rates, threads, quick) | {"failed": failed}


def quantize_rows(threads: int, quick: bool, seconds: float) -> Iterator[dict]:
    shape = cases.QUICK_QUANTIZE_SHAPE if quick else cases.QUANTIZE_SHAPE
    values = copy_of(torch.randn(shape), torch.bfloat16)
    for case in cases.quantizers(quick):
        times, _ = fastest(sides.of_quantize(case, values, threads), seconds, quick, threads)
        yield row_of(case, case.work / times["octavo"], {}, threads, quick)


def share_of_peak(case: Case, rate: float, threads: int, peaks: dict[str, float]) -> dict:
    """Of what one core was probed to multiply, times the cores."""
    by_type = INSTRUCTIONS.get(octavo.doctor()["backend"], ("", "", ""))
    instruction = by_type[{"int8 per row": 0, "f32": 1}.get(case.name.removesuffix(", packed"), 2)]
    return {"share": rate / (threads * peaks[instruction])} if instruction in peaks else {}


def product_rows(
    shape: tuple[int, int, int],
    peaks: dict[str, float],
    threads: int,
    quick: bool,
    seconds: float,
) -> Iterator[dict]:
    m, n, k = shape
    x, w = torch.randn(m, k), torch.randn(n, k)
    wanted = cases.products(shape)
    functions = sides.product_rivals(x, w, threads)
    for case in wanted:
        functions[case.name] = sides.of_product(case, x, w, threads)
    times, failed = fastest(functions, len(functions) * seconds, quick, threads)
    rivals = {name: wanted[0].work / times[name] for name in cases.PRODUCT_RIVALS if name in times}
    for case in (case for case in wanted if case.name in times):
        rate = case.work / times[case.name]
        row = row_of(case, rate, rivals, threads, quick)
        row |= {"shape": list(shape), "failed": failed}
        yield row | share_of_peak(case, rate, threads, peaks)


def attention_rows(
    tokens: int, size: int, threads: int, quick: bool, seconds: float
) -> Iterator[dict]:
    wanted = cases.attention(tokens, size)
    functions = sides.of_attention(wanted, tokens, size, threads)
    times, failed = fastest(functions, len(functions) * seconds, quick, threads)
    own = {case.name for case in wanted}
    rivals = {name: wanted[0].work / t for name, t in times.items() if name not in own}
    for case in (case for case in wanted if case.name in times):
        row = row_of(case, case.work / times[case.name], rivals, threads, quick)
        yield row | {"tokens": tokens, "size": size, "failed": failed}


def decode_rows(keys: int, threads: int, quick: bool, seconds: float) -> Iterator[dict]:
    case = cases.decode(keys, threads)
    functions = sides.of_decode(keys, threads)
    times, failed = fastest(functions, len(functions) * seconds, quick, threads)
    rates = {name: case.work / taken for name, taken in times.items()}
    row = row_of(case, rates.pop("octavo"), rates, threads, quick)
    yield row | {"keys": keys, "failed": failed}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--only", default="", help="names of groups begin with one of these")
    parser.add_argument("--known", type=json.loads, default=[], help="groups that are not timed")
    args = parser.parse_args()
    threads, quick = args.threads, args.quick
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    # What torch says, with a stack of calls, on CPUs without bf16; it multiplies another way then.
    warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
    peaks = probed(quick)
    print(json.dumps({"peaks": peaks}), flush=True)
    # Small shapes first: a run that exceeds its budget then skips the longest.
    groups = [("casts", cast_rows, ()), ("quantizers", quantize_rows, ())]
    for shape in sorted(cases.QUICK_SHAPES if quick else cases.SHAPES, key=lambda s: s[0] * s[1]):
        name = f"products of {' x '.join(map(str, shape))}"
        groups.append((name, product_rows, (shape, peaks)))
    for tokens, size in cases.QUICK_ATTENTION if quick else cases.ATTENTION:
        name = f"attention, {tokens} tokens of {size}"
        groups.append((name, attention_rows, (tokens, size)))
    for keys in cases.QUICK_DECODE_KEYS if quick else cases.DECODE_KEYS:
        groups.append((f"decode, one query, {keys} keys", decode_rows, (keys,)))
    chosen = tuple(part for part in args.only.split(",") if part)
    groups = [group for group in groups if not chosen or group[0].startswith(chosen)]
    groups = [group for group in groups if group[0] not in args.known]
    sides_of = {"casts": 48, "quantizers": 4, "products": 22, "attention,": 6, "decode,": 3}
    sides_in_all = max(1, sum(sides_of[group[0].split()[0]] for group in groups))
    each = args.seconds / sides_in_all
    end = time.monotonic() + args.seconds
    for name, rows, arguments in groups:
        if time.monotonic() > end:
            print(json.dumps({"left_out": name}), flush=True)
            continue
        for row in rows(*arguments, threads, quick, each):
            print(json.dumps({"group": name} | row), flush=True)


if __name__ == "__main__":
    main()
