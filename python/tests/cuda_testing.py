"""Helpers of tests on a CUDA device."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")


def _has_device() -> bool:
    if not torch.cuda.is_available():
        return False
    from octavo import _octavo

    try:
        _octavo.check_cuda(0)
    except RuntimeError:
        if os.environ.get("OCTAVO_TEST_CUDA"):  # the machine that is there for it
            raise
        return False
    return True


needs_cuda = pytest.mark.skipif(not _has_device(), reason="needs a CUDA device")

FORMATS = [
    "e4m3fn",
    "e5m2",
    "e4m3fnuz",
    "e5m2fnuz",
    "e3m4",
    "e8m0fnu",
    "e2m1fn",
    "e2m3fn",
    "e3m2fn",
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Of all magnitudes, with zeros, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x * torch.exp2(4 * torch.randn(shape, generator=generator, dtype=torch.float64))
    return torch.where(x.abs() < 0.05, 0.0, x).to(dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    """Every byte, on the CPU."""
    return x.detach().cpu().contiguous().flatten().view(torch.uint8)


def same(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    return (
        got.shape == wanted.shape
        and got.dtype == wanted.dtype
        and torch.equal(bits(got), bits(wanted))
    )


def same_quantized(got, wanted) -> bool:
    names = ("codes", "scales", "tensor_scale", "columnwise_codes", "columnwise_scales")
    for name in names:
        a, b = getattr(got, name), getattr(wanted, name)
        if (a is None) != (b is None) or (a is not None and not same(a, b)):
            return False
    return True
