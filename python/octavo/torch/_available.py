"""What can run here: everything, because the CPU does it where nothing else does."""

from __future__ import annotations

from typing import Any

import torch

import octavo


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


def default_device() -> str:
    """Where a layer is made that is not told: a CUDA device where octavo and torch have one."""
    usable = any(entry.name == "cuda" and entry.usable for entry in octavo.backends())
    return "cuda" if usable and torch.cuda.is_available() else "cpu"
