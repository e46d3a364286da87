"""Feature queries of Transformer Engine: all are true, because the CPU backend supports
everything."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

import octavo
from octavo._arguments import shown


@overload
def is_fp8_available(return_reason: Literal[False] = False) -> bool: ...
@overload
def is_fp8_available(return_reason: Literal[True]) -> tuple[bool, str]: ...
def is_fp8_available(return_reason: bool = False) -> bool | tuple[bool, str]:
    """True; with return_reason, (True, "")."""
    return (True, "") if return_reason else True


@overload
def is_fp8_block_scaling_available(return_reason: Literal[False] = False) -> bool: ...
@overload
def is_fp8_block_scaling_available(return_reason: Literal[True]) -> tuple[bool, str]: ...
def is_fp8_block_scaling_available(return_reason: bool = False) -> bool | tuple[bool, str]:
    """As is_fp8_available."""
    return is_fp8_available(True) if return_reason else is_fp8_available()


@overload
def is_mxfp8_available(return_reason: Literal[False] = False) -> bool: ...
@overload
def is_mxfp8_available(return_reason: Literal[True]) -> tuple[bool, str]: ...
def is_mxfp8_available(return_reason: bool = False) -> bool | tuple[bool, str]:
    """As is_fp8_available."""
    return is_fp8_available(True) if return_reason else is_fp8_available()


@overload
def is_nvfp4_available(return_reason: Literal[False] = False) -> bool: ...
@overload
def is_nvfp4_available(return_reason: Literal[True]) -> tuple[bool, str]: ...
def is_nvfp4_available(return_reason: bool = False) -> bool | tuple[bool, str]:
    """As is_fp8_available."""
    return is_fp8_available(True) if return_reason else is_fp8_available()


@overload
def is_bf16_available(return_reason: Literal[False] = False) -> bool: ...
@overload
def is_bf16_available(return_reason: Literal[True]) -> tuple[bool, str]: ...
def is_bf16_available(return_reason: bool = False) -> bool | tuple[bool, str]:
    """As is_fp8_available."""
    return is_fp8_available(True) if return_reason else is_fp8_available()


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


def default_device() -> torch.device | str:
    """Default device of layers: torch's, where a scope (with torch.device(...)) or
    set_default_device says one; else a CUDA device where octavo and torch have one."""
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return mode.device
    usable = any(entry.name == "cuda" and entry.usable for entry in octavo.backends())
    return "cuda" if usable and torch.cuda.is_available() else "cpu"
