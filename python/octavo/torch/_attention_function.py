"""One forward and one backward of attention under a recipe, with torch's autograd."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch

import octavo
from octavo import _octavo
from octavo._arrays.torch_arrays import TORCH
from octavo._attention_arguments import _bias
from octavo._gemm import _operand
from octavo._octavo import View
from octavo._quantize import value_kind
from octavo.torch._attention_mask import Mask
from octavo.torch._checkpoint import scales_for
from octavo.torch._codes import new_codes, parts_of
from octavo.torch._once import differentiable_once
from octavo.torch._quantized_tensor import _Content
from octavo.torch._saved import Layout
from octavo.torch._state import ModuleState
from octavo.torch.attention import keeps_forward

_OP = "DotProductAttention"
_OUTPUT = 4  # its slot


class How(NamedTuple):
    """Arguments that are not tensors with a gradient."""

    layout: str
    mask: Mask
    softmax_scale: float | None
    precision: str
    fp8_precision: str
    trains: bool = False
    dropout: float = 0.0
    seed: int = 0


class Attend(torch.autograd.Function):
    """q, k and v are [batch, heads, tokens, size] with any strides; the output lies as how says."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        state: ModuleState,
        how: How,
    ) -> torch.Tensor:
        sources = [TORCH.describe(x, _OP) for x in (q, k, v)]
        mask = how.mask
        bias = None if mask.bias is None else _bias(mask.bias, _OP)
        # Saved so that backward need not recompute it: see keeps_forward.
        lse = None
        if keeps_forward(how.precision, q) and any(ctx.needs_input_grad[:3]):
            lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        sum_view = None if lse is None else TORCH.describe(lse, _OP)
        q_view, k_view, v_view = (source.view(value_kind(source, _OP)) for source in sources)
        found = _octavo.attention_forward(
            q_view,
            k_view,
            v_view,
            state.handle,
            training=how.trains,
            precision=how.precision,
            fp8_precision=how.fp8_precision,
            **_arguments(mask),
            softmax_scale=how.softmax_scale,
            bias=None if bias is None else bias.view("float32"),
            scales=scales_for(state),
            allocate=TORCH.allocator(sources[0].cuda),
            stream=sources[0].stream,
            log_sum_exp=None if sum_view is None else sum_view.view("float32"),
            dropout=how.dropout,
            seed=how.seed,
        )
        # The bias is saved with the rest, so that torch detects in-place changes.
        ctx.how = how._replace(mask=mask._replace(bias=None))
        ctx.dtypes = [x.dtype for x in (q, k, v)]
        stream = sources[0].stream
        made = [octavo.QuantizedTensor(handle, TORCH, stream) for handle in found.inputs]
        ctx.kinds = [(one._handle.shape, one._handle.source, one.scaling) for one in made]
        parts = {
            f"{name}.{part}": memory
            for name, one in zip(("q", "k", "v"), made, strict=bool(made))
            for part, memory in parts_of(one).items()
        } or {"q": q, "k": k, "v": v}
        order = (2, 0, 1, 3) if how.layout == "sbhd" else (0, 2, 1, 3)
        out: torch.Tensor = TORCH.take(found.out).permute(order).flatten(2).contiguous()
        if lse is not None and not made:
            parts |= {"the output": out, "the log-sum-exp": lse}
        ctx.layouts = [Layout(_OP, name, part, is_values=not made) for name, part in parts.items()]
        ctx.save_for_backward(mask.bias, *parts.values())
        if not found.gives_codes:
            return out.to(q.dtype)  # FP8 of float64 has come out as float32
        own = octavo.QuantizedTensor(
            found.output_codes(TORCH.describe(out, _OP).view("float32")), TORCH, stream
        )
        quantizer = state.quantizers("scaling_fwd")[_OUTPUT]
        return quantizer.makes(_Content(own, quantizer))

    @staticmethod
    @differentiable_once(_OP)
    def backward(ctx: Any, d_out: torch.Tensor) -> Any:
        how = ctx.how
        added, *kept = ctx.saved_tensors
        saved = [layout.checked(part) for layout, part in zip(ctx.layouts, kept, strict=True)]
        inputs = _filled(ctx.kinds, saved) if ctx.kinds else saved[:3]
        forward = [] if ctx.kinds else saved[3:]
        shapes = [kind[0] for kind in ctx.kinds] or [list(x.shape) for x in inputs]
        batches, heads, rows = shapes[0][:3]
        size = shapes[2][3]
        heads_of = {
            "sbhd": lambda x: x.reshape(rows, batches, heads, size).permute(1, 2, 0, 3),
            "bshd": lambda x: x.reshape(batches, rows, heads, size).permute(0, 2, 1, 3),
        }
        into = [
            torch.empty(shape, dtype=dtype, device=d_out.device)
            for shape, dtype in zip(shapes, ctx.dtypes, strict=True)
        ]
        # Named lists keep their memory alive until the work is done.
        operands = [_operand(x, _OP, "an input", None) for x in inputs]
        given = heads_of[how.layout](d_out).contiguous()
        gradients = [_operand(x, _OP, "a gradient", None) for x in (given, *into)]
        q_handle, k_handle, v_handle = (side.handle for side in operands)
        d_out_view, d_q, d_k, d_v = (cast(View, side.handle) for side in gradients)
        if forward:
            forward[0] = heads_of[how.layout](forward[0]).contiguous()
        results = [TORCH.describe(x, _OP) for x in forward]
        mask = _arguments(how.mask)
        bias = None if added is None else _bias(added, _OP)
        _octavo.attention_backward(
            q_handle,
            k_handle,
            v_handle,
            d_out_view,
            d_q,
            d_k,
            d_v,
            how.fp8_precision if ctx.kinds else how.precision,
            **mask,
            softmax_scale=how.softmax_scale,
            bias=None if bias is None else bias.view("float32"),
            out=results[0].view(results[0].kind) if results else None,
            log_sum_exp=results[1].view("float32") if results else None,
            stream=gradients[0].stream,
            dropout=how.dropout,
            seed=how.seed,
        )
        return (*into, None, None)


def _arguments(mask: Mask) -> dict[str, Any]:
    given = mask._asdict()
    del given["bias"]
    return given


def _filled(kinds: list[Any], parts: Any) -> list[octavo.QuantizedTensor]:
    """Codes of these kinds, of what was saved of them: hooks may have moved it."""
    made, rest = [], iter(parts)
    for shape, source, scaling in kinds:
        codes = new_codes(shape, source, scaling, parts[0].device)
        for memory in parts_of(codes).values():
            memory.copy_(next(rest))
        made.append(codes)
    return made
