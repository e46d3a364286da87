"""Tensors saved for backward: torch keeps them, and saved_tensors_hooks may replace them."""

from __future__ import annotations

import torch

from octavo.torch._quantized_tensor import QuantizedTensor


class Layout:
    """How a tensor lay when it was saved. Hooks may give another one that is like it."""

    def __init__(self, op: str, name: str, part: torch.Tensor, is_values: bool = False) -> None:
        self.op, self.name, self.stride = op, name, part.stride()
        self.is_values = is_values  # may lie anyhow; codes and scales as they were made
        self.like = part.shape, part.dtype, part.device

    def checked(self, part: torch.Tensor) -> torch.Tensor:
        """The same, if it can take the place of what was saved."""
        if part.layout != torch.strided or isinstance(part, QuantizedTensor):
            kind = type(part).__name__ if part.layout == torch.strided else part.layout
            raise RuntimeError(
                f"[{self.op}] a hook gave a {kind} in the place of {self.name}; expected a dense "
                "tensor as forward saved it"
            )
        if (part.shape, part.dtype, part.device) != self.like:
            shape, dtype, device = self.like
            raise RuntimeError(
                f"[{self.op}] a hook gave {part.dtype} {tuple(part.shape)} on {part.device} in the "
                f"place of {self.name}; expected what forward saved: {dtype} {tuple(shape)} on "
                f"{device}"
            )
        if part.numel() and not part.data_ptr():
            raise RuntimeError(
                f"[{self.op}] backward needs a tensor of shape {tuple(part.shape)} whose storage "
                "was resized to nothing since forward; give it its values again before"
            )
        return part

    def place(self, part: torch.Tensor) -> tuple[int, list[int], torch.Tensor]:
        """Where the library finds it: address, strides in bytes, owner."""
        part = self.checked(part)
        if part.stride() != self.stride:
            part = part.contiguous() if self.is_values else self._as_it_lay(part)
        part = part.resolve_neg()
        size = part.element_size()
        return part.data_ptr(), [stride * size for stride in part.stride()], part

    def _as_it_lay(self, part: torch.Tensor) -> torch.Tensor:
        shape, dtype, device = self.like
        return torch.empty_strided(shape, self.stride, dtype=dtype, device=device).copy_(part)
