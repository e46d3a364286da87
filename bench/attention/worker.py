"""Times all cases on the cores this process was given, and prints JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

import octavo as ov
import octavo.torch as te
from bench.attention.cases import (
    CASES,
    DECODE_AT_LEAST,
    DECODE_AUTO_AT_MOST,
    DECODE_HEADS,
    DECODE_KEYS,
    DECODE_KV_HEADS,
    DECODE_SIZE,
    GRADIENT_HEADS,
    GRADIENT_SHAPES,
    HEADS,
    QUICK_DECODE_KEYS,
    QUICK_GRADIENT_SHAPES,
    QUICK_SHAPES,
    RIVALS,
    SHAPES,
    SLOW_UP_TO,
    TURNS,
    Case,
)
from bench.common.interleave import in_turns
from bench.common.peaks import begin_beside_torch

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def inputs_of(case: Case, tensors: list[torch.Tensor]) -> list[object]:
    """Inputs of a kernel: codes where the rung has them, quantized beforehand."""
    if case.inputs in DTYPES:
        return [x.to(DTYPES[case.inputs]) for x in tensors]
    return [ov.quantize(x, case.inputs) for x in tensors]


def octavo_side(case: Case, tensors: list[torch.Tensor], threads: int) -> Callable[[], object]:
    q, k, v = inputs_of(case, tensors)
    out = torch.empty_like(tensors[0])
    return lambda: ov.attention(q, k, v, precision=case.rung, out=out, threads=threads)


def torch_side(tensors: list[torch.Tensor], dtype: torch.dtype) -> Callable[[], object]:
    q, k, v = (x.to(dtype) for x in tensors)
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def rows(
    shape: tuple[int, int], threads: int, peaks: dict[str, float], quick: bool
) -> list[dict[str, object]]:
    tokens, size = shape
    heads = HEADS.get(tokens, 2)
    tensors = [torch.randn(1, heads, tokens, size) for _ in range(3)]
    functions: dict[str, Callable[[], object]] = {}
    for name, dtype in zip(RIVALS, (torch.float32, torch.bfloat16), strict=True):
        if tokens <= SLOW_UP_TO.get(name, tokens):
            functions[name] = torch_side(tensors, dtype)
    cases = [case for case in CASES if tokens <= SLOW_UP_TO.get(case.rung, tokens)]
    for case in cases:
        functions[case.rung] = octavo_side(case, tensors, threads)
    seconds = in_turns(functions, 2 if quick else TURNS[tokens])
    work = 4e-9 * heads * tokens * tokens * size
    speed = {name: work / taken for name, taken in seconds.items()}
    rivals = {name: speed[name] for name in RIVALS if name in speed}
    made: list[dict[str, object]] = []
    for case in cases:
        ratios = {rival: speed[case.rung] / rate for rival, rate in rivals.items()}
        peak = next((one for one in case.peaks if one in peaks), None)
        row: dict[str, object] = {
            "case": case.rung,
            "inputs": case.inputs,
            "tokens": tokens,
            "size": size,
            "heads": heads,
            "gflops": speed[case.rung],
            "us_per_head": 1e6 * seconds[case.rung] / heads,
            "rivals": rivals,
            "ratios": ratios,
            "at_least": case.at_least,
            "peak": peak,
            "of_peak": None if peak is None else speed[case.rung] / (threads * peaks[peak]),
        }
        known = {rival: least for rival, least in case.at_least.items() if rival in ratios}
        if known and not quick:  # small shapes on a busy machine say nothing
            row["holds"] = all(ratios[rival] >= least for rival, least in known.items())
        made.append(row)
    return made


def decode_row(keys: int, kv_heads: int, threads: int, quick: bool) -> dict[str, object]:
    shape = (1, kv_heads, keys, DECODE_SIZE)
    q = torch.randn(1, DECODE_HEADS, 1, DECODE_SIZE).bfloat16()
    k, v = torch.randn(shape), torch.randn(shape)
    coded = [ov.quantize(x, "fp8-channel") for x in (k, v)]
    wide = [x.bfloat16() for x in (k, v)]
    out = torch.empty_like(q)

    def ours(keys_and_values: list[object], rung: str) -> Callable[[], object]:
        return lambda: ov.attention(q, *keys_and_values, precision=rung, out=out, threads=threads)

    # torch's threads go on spinning for a while, and memory that was just read is near: so neither
    # of the two that are compared comes after torch, nor after one with the same keys.
    functions: dict[str, Callable[[], object]] = {
        "torch bf16": lambda: torch.nn.functional.scaled_dot_product_attention(
            q, *wide, enable_gqa=kv_heads != DECODE_HEADS
        ),
        "fp8 auto": ours(coded, "auto"),
        "bf16": ours(wide, "bf16"),
        "fp8": ours(coded, "bf16"),
    }
    seconds = in_turns(functions, 3 if quick else 15)
    rate = {name: keys / taken for name, taken in seconds.items()}
    row: dict[str, object] = {
        "decode": keys,
        "heads": DECODE_HEADS,
        "kv_heads": kv_heads,
        "size": DECODE_SIZE,
        "tokens_per_second": rate,
        "ratio": rate["fp8"] / rate["bf16"],
        "at_least": DECODE_AT_LEAST,
        "auto_takes": seconds["fp8 auto"] / seconds["fp8"],
        "auto_at_most": DECODE_AUTO_AT_MOST,
    }
    if not quick:
        row["holds"] = row["ratio"] >= DECODE_AT_LEAST
        row["auto_holds"] = row["auto_takes"] <= DECODE_AUTO_AT_MOST
    return row


def gradient_row(shape: tuple[int, int], quick: bool) -> dict[str, object]:
    """Gradients only: the forward pass runs beforehand, and passes its output and log-sum-exp."""
    tokens, size = shape
    tensors = [torch.randn(1, GRADIENT_HEADS, tokens, size) for _ in range(4)]

    def side(function: Callable[..., torch.Tensor], **how: object) -> Callable[[], object]:
        leaves = [x.clone().requires_grad_() for x in tensors[:3]]
        out = function(*leaves, **how)
        return lambda: torch.autograd.grad(out, leaves, tensors[3], retain_graph=True)

    seconds = in_turns(
        {
            "octavo f32": side(te.scaled_dot_product_attention, precision="f32"),
            "torch f32": side(torch.nn.functional.scaled_dot_product_attention),
        },
        2 if quick else 5,
    )
    return {
        "gradients": tokens,
        "size": size,
        "heads": GRADIENT_HEADS,
        "seconds": seconds,
        "ratio": seconds["torch f32"] / seconds["octavo f32"],
    }


def main() -> None:
    threads, quick, peaks = begin_beside_torch()
    for shape in QUICK_SHAPES if quick else SHAPES:
        for row in rows(shape, threads, peaks, quick):
            print(json.dumps(row), flush=True)
    for shape in QUICK_GRADIENT_SHAPES if quick else GRADIENT_SHAPES:
        print(json.dumps(gradient_row(shape, quick)), flush=True)
    for kv_heads in DECODE_KV_HEADS:
        for keys in QUICK_DECODE_KEYS if quick else DECODE_KEYS:
            print(json.dumps(decode_row(keys, kv_heads, threads, quick)), flush=True)


if __name__ == "__main__":
    main()
