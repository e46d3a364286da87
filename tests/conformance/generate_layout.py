"""Writes tests/conformance/layout: files in the memory layout of docs/numerics/layout.md, and the
values that they hold. From the specification alone: NumPy, and not a line of octavo.

    python tests/conformance/generate_layout.py
"""

from __future__ import annotations

import json
import pathlib
import re
import struct

import numpy as np

FOLDER = pathlib.Path(__file__).parent / "layout"
STORED = {"e4m3fn": "F8_E4M3", "e5m2": "F8_E5M2"}
# Where rows end with a byte; else the bytes are U8.
STORED_PACKED = {"e2m1fn": ("F4", 4), "e2m3fn": ("F6_E2M3", 6), "e3m2fn": ("F6_E3M2", 6)}
STORED_SCALES = {"f32": "F32", "bf16": "BF16", "f16": "F16", "e8m0": "F8_E8M0"}


def decode(name: str, code: np.ndarray) -> np.ndarray:
    """The value of each code, NaN codes as NaN."""
    if name in ("mxint8", "int8"):
        return code.astype(np.uint8).view(np.int8) / (64.0 if name == "mxint8" else 1.0)
    exponent_bits, mantissa_bits = map(int, re.match(r"e(\d)m(\d)", name).groups())
    code = code.astype(np.int64)
    bias = 2 ** (exponent_bits - 1) - 1
    sign = np.where(code >> (exponent_bits + mantissa_bits) & 1, -1.0, 1.0)
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = code & (1 << mantissa_bits) - 1
    normal = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
    value = np.where(exponent == 0, mantissa / 2**mantissa_bits * 2.0 ** (1 - bias), normal)
    field = code & (1 << exponent_bits + mantissa_bits) - 1
    if name == "e4m3fn":
        value = np.where(field == 0x7F, np.nan, value)
    elif not name.endswith("fn"):
        top = ((1 << exponent_bits) - 1) << mantissa_bits
        value = np.where(field == top, np.inf, np.where(field > top, np.nan, value))
    return sign * value


def bits(name: str) -> int:
    if "int8" in name:
        return 8
    exponent_bits, mantissa_bits = map(int, re.match(r"e(\d)m(\d)", name).groups())
    return 1 + exponent_bits + mantissa_bits


def packed(codes: np.ndarray, width: int) -> np.ndarray:
    """Rows as little-endian streams of bits that start on a byte."""
    if width == 8:
        return codes
    each = codes[..., None] >> np.arange(width) & 1
    stream = each.reshape(*codes.shape[:-1], -1)
    return np.packbits(stream.astype(np.uint8), axis=-1, bitorder="little")


def scales_of(kind: str, shape: tuple[int, ...], rng) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and values of random scales."""
    if kind == "e8m0":
        codes = rng.integers(110, 140, shape).astype(np.uint8)
        return codes, 2.0 ** (codes.astype(np.float64) - 127)
    if kind == "e4m3+f32":
        codes = rng.integers(1, 0x7F, shape).astype(np.uint8)
        return codes, decode("e4m3fn", codes)
    values = np.exp(rng.standard_normal(shape)).astype(np.float32)
    if kind == "f16":
        return values.astype(np.float16), values.astype(np.float16).astype(np.float64)
    if kind == "bf16":
        top = (values.view(np.uint32) >> 16).astype(np.uint16)
        return top, (top.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values, values.astype(np.float64)


CASES = [
    # name, shape, format, tile, scale, rule
    ("per_tensor", (5, 37), "e4m3fn", (0, 0), "f32", "f32"),
    ("per_tensor_e5m2", (5, 37), "e5m2", (0, 0), "f32", "f32"),
    ("per_row_bf16_scales", (5, 37), "e4m3fn", (1, 0), "bf16", "f32"),
    ("per_column_f16_scales", (5, 37), "e4m3fn", (0, 1), "f16", "f32"),
    ("int8_rows", (4, 33), "int8", (1, 0), "f32", "f32"),
    ("blocks_1x128", (3, 300), "e4m3fn", (1, 128), "f32", "f32"),
    ("blocks_128x128", (130, 257), "e4m3fn", (128, 128), "f32", "f32"),
    ("blocks_16x16_of_a_stack", (2, 20, 40), "e4m3fn", (16, 16), "f32", "f32"),
    ("mxfp8", (3, 70), "e4m3fn", (1, 32), "e8m0", "rceil"),
    ("mxfp8_e5m2", (2, 64), "e5m2", (1, 32), "e8m0", "rceil"),
    ("mxfp6_e2m3", (3, 45), "e2m3fn", (1, 32), "e8m0", "rceil"),
    ("mxfp6_e3m2", (3, 45), "e3m2fn", (1, 32), "e8m0", "rceil"),
    ("mxfp4", (3, 71), "e2m1fn", (1, 32), "e8m0", "even"),
    ("mxint8", (2, 33), "mxint8", (1, 32), "e8m0", "rceil"),
    ("nvfp4", (3, 50), "e2m1fn", (1, 16), "e4m3+f32", "f32"),
    ("ieee_e3m4", (2, 19), "e3m4", (1, 16), "f32", "f32"),
    ("one_dimension", (77,), "e4m3fn", (1, 32), "e8m0", "floor"),
]


def spread(grid: np.ndarray, tile: tuple[int, int], shape: tuple[int, ...]) -> np.ndarray:
    """The scale of every element."""
    if tile == (0, 0):
        return np.broadcast_to(grid, shape)
    rows = shape[-2] if len(shape) > 1 else 1
    cols = shape[-1]
    high, wide = tile[0] or rows, tile[1] or cols
    if len(shape) > 1:
        grid = grid.repeat(high, -2)[..., :rows, :]
    return grid.repeat(wide, -1)[..., :cols]


def grid_shape(tile: tuple[int, int], shape: tuple[int, ...]) -> tuple[int, ...]:
    if tile == (0, 0):
        return ()
    wide = tile[1] or shape[-1]
    across = -(-shape[-1] // wide)
    if len(shape) == 1:
        return (across,)
    high = tile[0] or shape[-2]
    return (*shape[:-2], -(-shape[-2] // high), across)


def main() -> None:
    tensors, metadata, values = {}, {"format": "pt", "octavo.version": "1"}, {}
    for seed, (name, shape, form, tile, scale, rule) in enumerate(CASES):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 1 << bits(form), shape).astype(np.uint8)
        finite = np.isfinite(decode(form, codes))
        codes = np.where(finite, codes, 0).astype(np.uint8)
        grid, numbers = scales_of(scale, grid_shape(tile, shape), rng)
        data = packed(codes, bits(form))

        dense, width = STORED_PACKED.get(form, ("U8", 8))
        whole_rows = dense != "U8" and shape[-1] * width % 8 == 0
        stored = dense if whole_rows else STORED.get(form, "U8")
        tensors[name] = (stored, shape if stored != "U8" else (data.size,), data)
        kind = STORED_SCALES.get(scale, "F8_E4M3")
        tensors[f"{name}.scales"] = (kind, grid.shape, grid)
        product = decode(form, codes) * spread(numbers, tile, shape)
        if scale == "e4m3+f32":
            whole = np.float32(0.0123)
            tensors[f"{name}.tensor_scale"] = ("F32", (), np.array([whole], np.float32))
            product = product * np.float64(whole)
        values[name] = product.astype(np.float32)  # rounded once
        metadata[f"octavo.tensor.{name}"] = (
            f"{'x'.join(map(str, shape))} float32 format={form} tile={tile[0]}x{tile[1]} "
            f"scale={scale} rule={rule}"
        )
    write("quantized.safetensors", tensors, metadata)
    write("values.safetensors", {n: ("F32", v.shape, v) for n, v in values.items()}, {})


def write(name: str, tensors: dict, metadata: dict) -> None:
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for tensor, (kind, shape, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[tensor] = {
            "dtype": kind,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
