"""Tracers of torch that run a function once and record its operations. octavo's kernels are none of
torch's, so a graph would hold the numbers of that one run."""

from __future__ import annotations

import sys

import torch


def refuse_tracing(op: str) -> None:
    """RuntimeError where make_fx or torch.jit.trace records what is called on this thread."""
    tracer = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if tracer is not None and tracer.get_proxy_mode() is not None:
        raise _refused(op, "make_fx")
    if torch._C._get_tracing_state() is not None:
        raise _refused(op, "torch.jit.trace")


def _refused(op: str, tracer: str) -> RuntimeError:
    return RuntimeError(
        f"[{op}] got a call that {tracer} records, whose graph would repeat the numbers of this "
        "one call for every input; use torch.compile, which calls octavo between its graphs, or "
        "trace the functions before and after"
    )
