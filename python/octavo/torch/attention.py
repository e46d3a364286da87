"""scaled_dot_product_attention with gradients, with torch's name and arguments."""

from __future__ import annotations

from typing import Any, cast

import torch

from octavo import _octavo
from octavo._arguments import flags, real, wrong_type
from octavo._arrays import describe
from octavo._attention import attention
from octavo._attention_arguments import _bias, _probability, _soft_cap
from octavo._gemm import _operand
from octavo._octavo import View
from octavo.torch._dtype import check_same_dtype, under_autocast
from octavo.torch._once import differentiable_once
from octavo.torch._saved import Layout


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Any, k: Any, v: Any, bias: Any, sinks: Any, causal: bool, how: dict[str, Any]
    ) -> Any:
        ctx.causal, ctx.how = causal, how
        # Saved so that backward need not recompute it. Other precisions have rounded P in both, as
        # tensor cores do in backward.
        keeps = keeps_forward(how["precision"], q) and any(ctx.needs_input_grad[:5])
        found = attention(
            q.detach(),
            k.detach(),
            v.detach(),
            bias=bias,
            sinks=None if sinks is None else sinks.detach(),
            causal=causal,
            return_lse=keeps,
            **how,
        )
        out, lse = found if keeps else (found, None)
        saved = {
            "query": q,
            "key": k,
            "value": v,
            "attn_mask": bias,
            "sinks": sinks,
            "the output": out if keeps else None,
            "the log-sum-exp": lse,
        }
        ctx.save_for_backward(*saved.values())
        ctx.layouts = [
            None if x is None else Layout("scaled_dot_product_attention", name, x, is_values=True)
            for name, x in saved.items()
        ]
        return out

    @staticmethod
    @differentiable_once("scaled_dot_product_attention")
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, bias, sinks, out, lse = (
            part if layout is None else layout.checked(part)
            for part, layout in zip(ctx.saved_tensors, ctx.layouts, strict=True)
        )
        op = "scaled_dot_product_attention"
        d_out = gradients[0].detach().contiguous()
        into = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v)]
        # Named lists keep their memory alive until the work is done.
        operands = [_operand(x.detach(), op, "an input", None) for x in (q, k, v)]
        gradient_operands = [_operand(x, op, "a gradient", None) for x in (d_out, *into)]
        q_handle, k_handle, v_handle = (side.handle for side in operands)
        d_out_view, d_q, d_k, d_v = (cast(View, side.handle) for side in gradient_operands)
        forward = [] if out is None else [describe(x.detach(), op) for x in (out, lse)]
        d_sinks = None if sinks is None else torch.empty_like(sinks)
        of_sinks = [describe(x.detach(), op) for x in (sinks, d_sinks) if x is not None]
        sinks_view, d_sinks_view = (
            (one.view("float32") for one in of_sinks) if of_sinks else (None, None)
        )
        out_view, lse_view = (one.view(one.kind) for one in forward) if forward else (None, None)
        _octavo.attention_backward(
            q_handle,
            k_handle,
            v_handle,
            d_out_view,
            d_q,
            d_k,
            d_v,
            ctx.how["precision"],
            ctx.causal,
            False,
            -1,
            -1,
            [],
            [],
            ctx.how["softmax_scale"],
            None if bias is None else _bias(bias, op).view("float32"),
            out_view,
            lse_view,
            soft_cap=_soft_cap(ctx.how["soft_cap"], op),
            sinks=sinks_view,
            d_sinks=d_sinks_view,
            stream=operands[0].stream,
            dropout=ctx.how["dropout_p"],
            seed=ctx.how["seed"] or 0,
        )
        return (*into, None, d_sinks, None, None)


def keeps_forward(precision: str, q: torch.Tensor) -> bool:
    """Does backward take the forward's output and log-sum-exp?"""
    if q.device.type != "cpu" and precision == "bf16":
        return q.dtype == torch.bfloat16
    return precision == "f32" and q.dtype == torch.float32


def seed_of_torch() -> int:
    """Of torch's CPU generator: torch.manual_seed sets it, torch's checkpoints restore it."""
    return int(torch.randint(2**63 - 1, ()).item())


def _mask_as_bias(attn_mask: Any, is_causal: bool, op: str) -> Any:
    """torch's mask as a bias of the scores: for a boolean mask -inf where it is False."""
    if is_causal:
        raise ValueError(f"[{op}] got attn_mask and is_causal; expected one of them")
    if not isinstance(attn_mask, torch.Tensor):
        raise wrong_type(op, "attn_mask", attn_mask, "a torch tensor, or None")
    if attn_mask.requires_grad:
        raise NotImplementedError(
            f"[{op}] attn_mask requires a gradient, which is not offered; detach it"
        )
    if attn_mask.dtype == torch.bool:
        hidden = torch.full((), -torch.inf, dtype=torch.float32, device=attn_mask.device)
        return torch.where(attn_mask, torch.zeros_like(hidden), hidden)
    if not attn_mask.is_floating_point():
        raise TypeError(f"[{op}] got attn_mask of {attn_mask.dtype}; expected bool or floats")
    return attn_mask.float()


def _checked_sinks(sinks: Any, op: str) -> Any:
    if sinks is None:
        return None
    if not isinstance(sinks, torch.Tensor):
        raise wrong_type(op, "sinks", sinks, "a torch tensor, or None")
    if not sinks.is_floating_point():
        raise TypeError(f"[{op}] got sinks of {sinks.dtype}; expected floats, one for each head")
    return sinks.float()


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    precision: str = "auto",
    rtol: float = 5e-3,
    atol: float = 5e-3,
    soft_cap: float | None = None,
    sinks: Any = None,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, at octavo.attention's precisions.

    Gradients are those of exact attention at the inputs that the precision has. attn_mask is
    boolean (True: seen) or added to the scores, in float32, and has no gradient of its own. A row
    that sees nothing is zeros. dropout_p drops weights whenever it is not 0, as torch's does; its
    seed comes from torch's generator for the CPU. soft_cap and sinks are those of octavo.attention;
    sinks have a gradient. Under torch.autocast query, key and value are cast, as torch has it.
    """
    op = "scaled_dot_product_attention"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor):
            raise wrong_type(op, name, x, "a torch tensor")
        if not 2 <= x.dim() <= 4:
            raise ValueError(
                f"[{op}] got {name} of shape {tuple(x.shape)}; expected [batch, heads, tokens, "
                "size], or that without batch, or without both"
            )
    query, key, value = (under_autocast(x) for x in (query, key, value))
    check_same_dtype(op, query=query, key=key, value=value)
    flags(op, is_causal=is_causal, enable_gqa=enable_gqa)
    if scale is not None:
        scale = real(scale, "scale", op)
    bias = None if attn_mask is None else _mask_as_bias(attn_mask, bool(is_causal), op)
    rate = _probability(dropout_p, op)
    if query.dim() != key.dim() or key.dim() != value.dim():
        raise ValueError(
            f"[{op}] got query, key and value of {query.dim()}, {key.dim()} and {value.dim()} "
            "dimensions; expected as many of each"
        )
    if not enable_gqa and query.dim() > 2 and query.shape[-3] != key.shape[-3]:
        raise ValueError(
            f"[{op}] query has {query.shape[-3]} heads and key {key.shape[-3]}; "
            "say enable_gqa=True to let heads share keys"
        )
    how: dict[str, Any] = {
        "precision": precision,
        "rtol": rtol,
        "atol": atol,
        "softmax_scale": scale,
        "soft_cap": soft_cap,
        "dropout_p": rate,
        "seed": seed_of_torch() if rate else None,
    }
    logits = _checked_sinks(sinks, op)
    out: torch.Tensor = _Attention.apply(query, key, value, bias, logits, bool(is_causal), how)
    return out
