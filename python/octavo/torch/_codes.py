"""Memory of codes and scales of a quantized tensor: allocated, moved, transposed and viewed."""

from __future__ import annotations

import torch

import octavo
from octavo import _octavo
from octavo._arrays.torch_arrays import TORCH
from octavo._quantized import _PARTS


def moved_codes(codes: octavo.QuantizedTensor, device: torch.device) -> octavo.QuantizedTensor:
    """The same codes and scales on another device."""
    made = empty_like(codes, device)
    for to, source in zip(parts_of(made).values(), parts_of(codes).values(), strict=True):
        to.copy_(source)
    return made


def with_dtype(codes: octavo.QuantizedTensor, dtype: torch.dtype) -> octavo.QuantizedTensor:
    """The same codes, of values of another type."""
    return with_handle(codes, codes._handle.with_source(str(dtype).removeprefix("torch.")))


def empty_like(codes: octavo.QuantizedTensor, device: torch.device) -> octavo.QuantizedTensor:
    """Memory for a quantization of the same kind."""
    return _empty(codes, codes.scaling, device)


def _empty(
    codes: octavo.QuantizedTensor, scaling: octavo.Scaling, device: torch.device
) -> octavo.QuantizedTensor:
    return new_codes(codes._handle.shape, codes._handle.source, scaling, device)


def new_codes(
    shape: list[int], source: str, scaling: octavo.Scaling, device: torch.device
) -> octavo.QuantizedTensor:
    """Uninitialized memory for codes of values of a type."""
    if device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"[quantized] codes cannot be on {device}; expected the CPU or CUDA")
    cuda = -1
    if device.type == "cuda":
        cuda = torch.cuda.current_device() if device.index is None else device.index
    handle = _octavo.QuantizedTensor.empty(shape, source, scaling, TORCH.allocator(cuda), cuda)
    return octavo.QuantizedTensor(handle, TORCH, TORCH.stream(cuda))


def parts_of(codes: octavo.QuantizedTensor) -> dict[str, torch.Tensor]:
    """Codes as bytes and scales, by their names in octavo.QuantizedTensor: all that there are."""
    found = {part: getattr(codes._handle, part) for part in _PARTS}
    return {
        part: TORCH.take(tensor, raw=True) for part, tensor in found.items() if tensor is not None
    }


def with_both(codes: octavo.QuantizedTensor) -> octavo.QuantizedTensor | None:
    """With the missing copy made by transposing the other; None where it is not the transpose."""
    rows, cols = codes.tile
    scaling = codes.scaling
    turns = rows == cols and (rows == 0 or codes.ndim == 2) and codes.ndim >= 2
    if not turns or codes.tensor_scale is not None or scaling.hadamard != "none":
        return None
    made = _empty(codes, scaling.replace(rowwise=True, columnwise=True), torch.device(codes.device))
    to, there = parts_of(made), parts_of(codes)
    for part, other in (("codes", "columnwise_codes"), ("scales", "columnwise_scales")):
        if part in there:
            to[part].copy_(there[part])
            to[other].copy_(_transposed(there[part]).reshape(to[other].shape))
        else:
            to[other].copy_(there[other])
            to[part].copy_(_transposed(there[other]).reshape(to[part].shape))
    return made


def _transposed(part: torch.Tensor) -> torch.Tensor:
    return part if part.dim() < 2 else part.reshape(-1, part.shape[-1]).t()


def with_handle(
    codes: octavo.QuantizedTensor, handle: _octavo.QuantizedTensor
) -> octavo.QuantizedTensor:
    """Other codes that belong to the same library and stream."""
    return octavo.QuantizedTensor(handle, codes._family, codes._stream)


def as_bytes(codes: torch.Tensor | None) -> torch.Tensor | None:
    """Codes as Transformer Engine has them."""
    return None if codes is None else codes.view(torch.uint8)


def as_scales(scales: torch.Tensor | None) -> torch.Tensor | None:
    """float32 as they are, codes as bytes."""
    return scales if scales is None or scales.dtype == torch.float32 else scales.view(torch.uint8)
