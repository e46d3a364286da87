"""Reads a safetensors file of plain floating point into NumPy arrays, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}


def load(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        raw = memoryview(data)[begin:end]
        if entry["dtype"] == "BF16":  # the upper half of a float32
            values = np.frombuffer(raw, "<u2").astype("<u4") << 16
            values = values.view("<f4")
        else:
            values = np.frombuffer(raw, TYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors
