"""Feature queries of Transformer Engine: all are true, because the CPU backend supports
everything."""

from __future__ import annotations

from typing import Any

import torch

import octavo
from octavo._arguments import shown


def is_fp8_available(return_reason: bool = False) -> Any:
    """True; with return_reason, (True, "")."""
    return (True, "") if return_reason else True


def is_fp8_block_scaling_available(return_reason: bool = False) -> Any:
    """As is_fp8_available."""
    return is_fp8_available(return_reason)


def is_mxfp8_available(return_reason: bool = False) -> Any:
    """As is_fp8_available."""
    return is_fp8_available(return_reason)


def is_nvfp4_available(return_reason: bool = False) -> Any:
    """As is_fp8_available."""
    return is_fp8_available(return_reason)


def is_bf16_available(return_reason: bool = False) -> Any:
    """As is_fp8_available."""
    return is_fp8_available(return_reason)


def place_of(device: Any, op: str) -> torch.device:
    """An argument of this name; None: where layers are made."""
    if device is None:
        return torch.device(default_device())
    try:
        place = torch.device(device)
    except (TypeError, RuntimeError) as error:
        kind = ValueError if isinstance(device, str) else TypeError
        raise kind(
            f"[{op}] got device = {shown(device)}; expected a device of torch's, such as 'cpu' or "
            f"'cuda:0', or None ({str(error).splitlines()[0]})"
        ) from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"[{op}] got device = {shown(device)}, and torch has no CUDA device here; say "
            "device='cpu', or leave it out"
        )
    return place


def default_device() -> str:
    """Default device of layers: a CUDA device where octavo and torch have one."""
    usable = any(entry.name == "cuda" and entry.usable for entry in octavo.backends())
    return "cuda" if usable and torch.cuda.is_available() else "cpu"
