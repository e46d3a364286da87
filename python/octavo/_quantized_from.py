"""Codes and scales made outside of octavo: checked, and used without a copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from octavo import _octavo
from octavo._arguments import flags
from octavo._arrays import NUMPY, Array, describe
from octavo._dtypes import Kind, code_format, kind_name
from octavo._octavo import Format, Scaling, Tensor, View
from octavo._operation import check_packed_rows, integer, row_bytes
from octavo._quantize import as_scaling
from octavo._quantized import QuantizedTensor

# What holds scales of each kind.
_SCALE_KINDS: Final[dict[str, Kind]] = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "e8m0": Format("e8m0fnu"),
    "e4m3+f32": Format("e4m3fn"),
}
_INTEGERS: Final = {1: ("uint8", "int8"), 2: ("uint16", "int16")}


def quantized(
    codes: Any,
    scales: Any,
    scaling: str | Scaling,
    *,
    shape: tuple[int, ...] | None = None,
    tensor_scale: Any = None,
    check: bool = True,
) -> QuantizedTensor:
    """Codes and scales made outside of octavo, as a QuantizedTensor.

    codes: of a dtype of the scaling's format, or plain integers; packed as the scaling says, unless
        their dtype says otherwise. Contiguous arrays are used where they lie, others copied.
    scales: one for each tile: of the scaling's type, or uint8 where that is one of eight bits. What
        codes are multiplied by: positive, zero or NaN. Row-major, or column-major (the result's
        scaling says so). Scales of a signed type are checked for negative values, which
        synchronizes with a CUDA device.
    shape: of the tensor; needed where the last byte of packed rows is not full.
    tensor_scale: one float32, where scales are e4m3 (NVFP4).
    check: False takes scales as they are, negative ones too, without a check or synchronization.
    """
    op = "quantized"
    flags(op, check=check)
    scaling = as_scaling(scaling, op)
    array = describe(codes, op, codes=True)
    kind = _kind_as(array, scaling.format, "codes", op)
    cols, shape = _cols_and_shape(array, scaling, shape, op)
    owned = _borrow(array, kind, cols, op)
    grid = describe(scales, op)
    grid_kind = _kind_as(grid, _SCALE_KINDS[scaling.scale], "scales", op)
    owned_grid = _borrow(grid, grid_kind, None, op, scalar=scaling.tile == (0, 0), transposed=True)
    level = None
    if tensor_scale is not None:
        one = describe(tensor_scale, op)
        level = _borrow(one, _kind_as(one, "float32", "tensor scale", op), None, op, scalar=True)
    handle = _octavo.QuantizedTensor.of(
        shape, scaling, owned, owned_grid, level, array.stream, validate=bool(check)
    )
    return QuantizedTensor(handle, array.family.for_results(array))


def _kind_as(array: Array, wanted: Kind, what: str, op: str) -> Kind:
    """The kind of external codes or scales; plain integers may be codes of any format."""
    integers = _INTEGERS[wanted.itemsize] if isinstance(wanted, Format) else ()
    same = code_format(wanted)
    if array.kind == wanted or array.kind in integers:
        return wanted
    if same is not None and code_format(array.kind) == same:
        return wanted
    names = " or ".join((kind_name(wanted), *integers))
    raise TypeError(f"[{op}] the {what} are of dtype {kind_name(array.kind)}; expected {names}")


def _cols_and_shape(
    array: Array, scaling: Scaling, shape: Any, op: str
) -> tuple[int | None, tuple[int, ...]]:
    """Codes in a packed row, or None where they are not packed; and the tensor's shape."""
    format = scaling.format
    typed = isinstance(array.kind, Format)
    packed = array.cols is not None or (scaling.packed and not typed and bool(array.shape))
    if shape is not None:
        shape = tuple(integer(size, "a size", 2**60, op) for size in shape)
    if format.bits >= 8 or not packed:
        return None, array.shape if shape is None else shape
    check_packed_rows(array, op)
    held = array.shape[-1]
    if shape is None:
        shape = array.shape[:-1] + (8 * held // format.bits,)
    wanted = shape[:-1] + ((row_bytes(shape[-1], format),) if shape else ())
    if wanted != array.shape:
        raise ValueError(
            f"[{op}] got packed codes of shape {array.shape}; expected {wanted} for a tensor of "
            f"shape {shape}: rows of bytes"
        )
    return shape[-1], shape


def _borrow(
    array: Array,
    kind: Kind,
    cols: int | None,
    op: str,
    scalar: bool = False,
    transposed: bool = False,
) -> Tensor:
    """External memory as a dense tensor; a copy where it is not dense. transposed: it may also be
    column-major, its last dimension the slowest."""
    if transposed and not _is_dense(array) and _is_dense(_last_first(array)):
        return Tensor.borrow(array.view(kind), array.obj)
    if not _is_dense(array):
        if array.cuda >= 0:
            raise ValueError(
                f"[{op}] got an array on cuda:{array.cuda} that is not contiguous; "
                "pass x.contiguous()"
            )
        array = NUMPY.describe(np.array(array.numpy(), order="C", subok=False), op)
    shape = () if scalar and all(size == 1 for size in array.shape) else array.shape
    strides = _dense_strides(shape, array)
    if cols is not None:
        shape, strides = shape[:-1] + (cols,), strides[:-1] + (0,)
    packed = cols is not None
    view = View(array.address, kind, shape, strides, packed, array.read_only, array.cuda)
    return Tensor.borrow(view, array.obj)


def _last_first(array: Array) -> Array:
    shape, strides = array.shape, array.strides
    return replace(array, shape=shape[-1:] + shape[:-1], strides=strides[-1:] + strides[:-1])


def _dense_strides(shape: tuple[int, ...], array: Array) -> tuple[int, ...]:
    step = _itemsize(array.kind)
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _is_dense(array: Array) -> bool:
    dense = _dense_strides(array.shape, array)
    return 0 in array.shape or all(
        size == 1 or stride == wanted
        for size, stride, wanted in zip(array.shape, array.strides, dense, strict=True)
    )


def _itemsize(kind: Kind) -> int:
    if isinstance(kind, Format):
        return kind.itemsize
    return 2 if kind == "bfloat16" else np.dtype(kind).itemsize
