"""One forward and one backward of Linear under torch's autograd, on tensors of torch's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from octavo import _octavo
from octavo._arrays.torch_arrays import TORCH
from octavo._quantize import value_kind
from octavo.torch._checkpoint import is_second_forward, scales_for
from octavo.torch._once import differentiable_once
from octavo.torch._quantized_tensor import QuantizedTensor
from octavo.torch._saved import Layout
from octavo.torch._state import ModuleState, shared

_OP = "Linear"


class _LinearFunction(torch.autograd.Function):
    """One forward and one backward of the library's."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        state: ModuleState,
        is_first_microbatch: bool | None,
        has_grad_mode: bool,
        trains: bool,
    ) -> torch.Tensor:
        needs = ctx.needs_input_grad[:3] if has_grad_mode else (False, False, False)
        y, saved = _forward(x, weight, bias, state, needs, trains, is_first_microbatch, state.cache)
        own = {"x": x}
        if not isinstance(weight, QuantizedTensor):
            own["weight"] = weight
        # torch keeps, checks and frees all saved memory; a library object without any stays.
        parts = [
            (name, own[name] if name in own else TORCH.take(part, raw=True))
            for name, part in saved.take_parts()
        ]
        ctx.saved, ctx.layouts = (
            saved,
            [Layout(_OP, name, part, is_values=name in ("x", "weight")) for name, part in parts],
        )
        # With nothing saved, torch would not see that a graph is used twice.
        ctx.save_for_backward(*(part for _, part in parts) if parts else (x.new_empty(0),))
        result: torch.Tensor = TORCH.take(y)
        return result

    @staticmethod
    @differentiable_once(_OP)
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        parts = ctx.saved_tensors  # raises where they are gone or changed
        places = [layout.place(part) for layout, part in zip(ctx.layouts, parts, strict=False)]
        found = _octavo.linear_backward(shared(dy.contiguous(), _OP), ctx.saved.with_parts(places))
        gradients = [None if gradient is None else TORCH.take(gradient) for gradient in found]
        return (*gradients, None, None, None, None)


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: ModuleState,
    needs: tuple[bool, bool, bool],
    training: bool,
    is_first_microbatch: bool | None,
    cache: _octavo.WeightCache,
) -> tuple[_octavo.Tensor, _octavo.LinearSaved]:
    source = TORCH.describe(x, _OP)
    own_x = _octavo.Tensor.borrow(source.view(value_kind(source, _OP)), source.obj)
    own_weight: _octavo.Tensor | _octavo.QuantizedTensor
    if isinstance(weight, QuantizedTensor):
        own_weight, made_with = weight.quantized._handle, weight._content.made_with
    else:
        own_weight, made_with = shared(weight, _OP), None
    return _octavo.linear_forward(
        own_x,
        own_weight,
        made_with,
        None if bias is None else shared(bias, _OP),
        needs=(needs[0], needs[1], needs[2] and bias is not None),
        training=training,
        is_first_microbatch=is_first_microbatch,
        quantizers=state.handle,
        cache=cache,
        accumulator=state.accumulator,
        scales=scales_for(state),
        allocate=TORCH.allocator(source.cuda),
        stream=source.stream,
    )


def _product(layer: Any, x: torch.Tensor, is_first_microbatch: bool | None) -> torch.Tensor:
    bias, has_grad_mode = None if layer.return_bias else layer.bias, torch.is_grad_enabled()
    layer._state.prepare()
    y: torch.Tensor = _LinearFunction.apply(
        x,
        layer.weight,
        bias,
        layer._state,
        is_first_microbatch,
        has_grad_mode,
        has_grad_mode and layer.training and not is_second_forward(),
    )
    return y


# _product as the compiler leaves it alone, once it was asked for: making it takes longer than a
# small product does.
_hidden: list[Callable[..., torch.Tensor]] = []


def untraced_product() -> Callable[..., torch.Tensor]:
    """_product, excluded from torch.compile's tracing. Importing the compiler takes seconds: where
    the program has not imported it, there is no tracing."""
    compiler = sys.modules.get("torch._dynamo")
    if compiler is None:
        return _product
    if not _hidden:
        _hidden.append(compiler.disable(_product))
    return _hidden[0]
