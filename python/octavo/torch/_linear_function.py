"""One forward and one backward of Linear under torch's autograd, on tensors of torch's."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

import octavo
from octavo import _octavo
from octavo._arrays_torch import TORCH
from octavo._quantize import value_kind
from octavo.torch._quantized_tensor import QuantizedTensor
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
        is_codes = isinstance(weight, QuantizedTensor)
        y, saved = _forward(x, weight, bias, state, needs, trains, is_first_microbatch, state.cache)
        # What lies in a saved tensor goes when torch lets that go: after a backward, unless the
        # graph is retained. Hooks put other tensors in its place.
        token, hooked = x.new_empty(0), _saved_tensors_are_hooked()
        ctx.forward_arguments, ctx.again = None, None
        if saved.keeps_values:
            # Codes are only ever replaced: an alias with content of its own keeps these.
            codes = type(weight)(copy.copy(weight._content)) if is_codes else None
            ctx.forward_arguments = (codes, bias, state, needs)
            ctx.pointers = None if hooked else _pointers(x, weight)
            ctx.save_for_backward(token, x, *(() if is_codes else (weight,)))
        else:
            # With nothing of torch's saved, torch would not see that a graph is used twice.
            ctx.again = saved if hooked else None
            ctx.save_for_backward(token)
        if not hooked:
            token._octavo_saved = saved  # type: ignore[attr-defined]
        result: torch.Tensor = TORCH.take(y)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        token, *values = ctx.saved_tensors  # raises where they are gone or changed
        saved = ctx.again or getattr(token, "_octavo_saved", None)
        if ctx.forward_arguments is not None:
            codes, *others = ctx.forward_arguments
            x, weight = values[0], values[1] if codes is None else codes
            if saved is None or ctx.pointers != _pointers(x, weight):
                saved = _saved_of(x, weight, *others)
        elif saved is None:
            raise RuntimeError(
                f"[{_OP}] a hook put another tensor in the place of what forward saved; have hooks "
                "there before forward, with torch.autograd.graph.saved_tensors_hooks"
            )
        found = _octavo.linear_backward(shared(dy.contiguous(), _OP), saved)
        gradients = [None if gradient is None else TORCH.take(gradient) for gradient in found]
        return (*gradients, None, None, None, None)


def _saved_tensors_are_hooked() -> bool:
    """True also where torch does not say: that is right for both, and keeps or does more."""
    try:
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    except (AttributeError, TypeError):
        return True


def _pointers(x: torch.Tensor, weight: torch.Tensor) -> tuple[int, ...]:
    is_codes = isinstance(weight, QuantizedTensor)
    return (x.data_ptr(),) if is_codes else (x.data_ptr(), weight.data_ptr())


def _saved_of(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: ModuleState,
    needs: tuple[bool, bool, bool],
) -> _octavo.LinearSaved:
    """What a forward of values keeps, of values that lie elsewhere by now: packed and unpacked by
    hooks, or in a storage that was let go in between. A backward of values does not depend on the
    recipe, so there is none here."""
    for tensor in (x, weight):
        if not isinstance(tensor, QuantizedTensor) and tensor.numel() and not tensor.data_ptr():
            raise RuntimeError(
                f"[{_OP}] backward needs a tensor of shape {tuple(tensor.shape)} whose storage "
                "was resized to nothing since forward; give it its values again before"
            )
    if isinstance(weight, QuantizedTensor):
        weight = octavo.dequantize(weight.quantized, weight.dtype)
    enabled, calibrating, recipe = _octavo.current_autocast()
    inner = _octavo.Autocast(recipe, False, False, None) if enabled or calibrating else None
    try:
        return _forward(x, weight, bias, state, needs, True, None, _octavo.WeightCache())[1]
    finally:
        if inner is not None:
            inner.leave(False)


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
    is_codes = isinstance(weight, QuantizedTensor)
    return _octavo.linear_forward(
        _octavo.Tensor.borrow(source.view(value_kind(source, _OP)), x),
        weight.quantized._handle if is_codes else shared(weight, _OP),
        weight._content.made_with if is_codes else None,
        None if bias is None else shared(bias, _OP),
        needs=(needs[0], needs[1], needs[2] and bias is not None),
        training=training,
        is_first_microbatch=is_first_microbatch,
        quantizers=state.handle,
        cache=cache,
        accumulator=state.accumulator,
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
        has_grad_mode and layer.training,
    )
    return y


# _product as the compiler leaves it alone, once it was asked for: making it takes longer than a
# small product does.
_hidden: list[Callable[..., torch.Tensor]] = []


def untraced_product() -> Callable[..., torch.Tensor]:
    """_product, which torch.compile does not look into. Importing the compiler takes seconds: where
    nobody has, there is nothing to hide from."""
    compiler = sys.modules.get("torch._dynamo")
    if compiler is None:
        return _product
    if not _hidden:
        _hidden.append(compiler.disable(_product))
    return _hidden[0]
