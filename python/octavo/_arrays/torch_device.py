"""Operations that octavo leaves to torch on a device: on its current stream, without
synchronization."""

from __future__ import annotations

import torch

from octavo._arrays import Array
from octavo._arrays.torch_arrays import TORCH


def one(cuda: int) -> Array:
    """A float32 1. Not cached: memory allocated during graph capture is freed with the graph."""
    return TORCH.describe(torch.ones((), dtype=torch.float32, device=f"cuda:{cuda}"), "one")


def unswizzled(scales: Array, rows: int, cols: int) -> Array:
    """Scales of one byte in tiles of 128 x 4 (docs/numerics/layout.md) as a grid of bytes."""
    down, across = -(-rows // 128), -(-cols // 4)
    # Of a tile 32 lines, each with four scales of four rows that are 32 apart.
    tiles = scales.obj.view(torch.uint8).reshape(down, across, 32, 4, 4)
    grid = tiles.permute(0, 3, 2, 1, 4).reshape(128 * down, 4 * across)
    return TORCH.describe(grid[:rows, :cols].contiguous(), "unswizzled")


def divide(values: Array, by: Array) -> None:
    """values *= 1 / by, as NumPy rounds it: twice, in float32."""
    values.obj.mul_(by.obj.reshape(()).reciprocal())
