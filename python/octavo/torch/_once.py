"""Backward functions without double backward: they raise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from octavo.torch._quantized_tensor import QuantizedTensor


def differentiable_once(op: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a backward: double backward through its gradients raises. torch's own
    once_differentiable treats them as constants where dy is one, so a gradient penalty would train
    nothing."""
    text = (
        f"[{op}] gradients of gradients are not offered: its backward was asked for with "
        "create_graph=True, and something goes back from what it gave; detach that, or use a layer "
        "of torch's"
    )

    def around(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapper(ctx: Any, *gradients: Any) -> Any:
            with torch.no_grad():
                found = backward(ctx, *(_dense(gradient, op) for gradient in gradients))
            if not torch.is_grad_enabled():
                return found
            functions: Any = torch._C._functions
            raises = functions.DelayedError(text.encode(), len(found))
            return raises(*(one if one is None else one.detach().requires_grad_() for one in found))

        return wrapper

    return around


def _dense(gradient: Any, op: str) -> Any:
    """What a hook made of a gradient, as values in memory."""
    if isinstance(gradient, QuantizedTensor):
        return gradient.dequantize()
    if isinstance(gradient, torch.Tensor) and gradient.layout != torch.strided:
        raise TypeError(
            f"[{op}] got a gradient of layout {gradient.layout}; expected a strided one; convert "
            "it with x.to_dense() where it is made"
        )
    return gradient
