"""Quantized tensors in safetensors files that describe themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from octavo import _octavo
from octavo._arrays import family_named
from octavo._quantize import _checked
from octavo._quantized import QuantizedTensor


def save(path: str | os.PathLike[str], tensors: Mapping[str, QuantizedTensor]) -> None:
    """Writes quantized tensors into one safetensors file, without loss.

    The file appears whole or not at all. It has the codes under the tensor's name, the scales under
    NAME.scales, and says in its metadata how they were made; docs/numerics/layout.md has the rest.
    """
    op = "save"
    if not isinstance(tensors, Mapping):
        raise TypeError(f"[{op}] got {type(tensors).__name__}; expected a dict of QuantizedTensor")
    for name in tensors:
        if not isinstance(name, str):
            raise TypeError(f"[{op}] got a name of type {type(name).__name__}; expected str")
    handles = [_checked(tensor, op)._on_host() for tensor in tensors.values()]
    _octavo.save_quantized(os.fspath(path), list(tensors), handles)


def load(path: str | os.PathLike[str], library: str = "numpy") -> dict[str, QuantizedTensor]:
    """The quantized tensors of a file that save wrote.

    library: "numpy" or "torch": whose arrays codes and scales are to be.
    """
    family = family_named(library, "load")
    loaded: dict[str, Any] = _octavo.load_quantized(os.fspath(path))
    return {name: QuantizedTensor(handle, family) for name, handle in loaded.items()}
