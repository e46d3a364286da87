"""Fixtures: every 16-bit input, a foreign array, and peers that may be missing."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="session")
def ml_dtypes() -> ModuleType:
    return pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed; it is optional")


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    return pytest.importorskip("torch", reason="torch is not installed; it is optional")


@pytest.fixture(scope="session")
def all_16_bits() -> np.ndarray:
    """Every pattern of 16 bits: all bfloat16, float16 and 16-bit codes."""
    return np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


@pytest.fixture(scope="session")
def edges_f32() -> np.ndarray:
    """float32 where casts go wrong: around every midpoint and limit, and random bits."""
    exact = (
        np.arange(1 << 16, dtype=np.uint32) << 16
    )  # every bfloat16: all FP8 values and midpoints among them
    around = np.concatenate([exact + np.uint32(step) for step in (0, 1, 0xFFFF, 0x8000)])
    random = (
        np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    )
    return np.concatenate([around, random]).view(np.float32)


class Foreign:
    """An array of a library that is known by DLPack alone."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()

    @staticmethod
    def __array_namespace__():
        return Foreign

    @staticmethod
    def from_dlpack(x):
        return Foreign(np.from_dlpack(x))


@pytest.fixture(scope="session")
def foreign() -> type[Foreign]:
    return Foreign
