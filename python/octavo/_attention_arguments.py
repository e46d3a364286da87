"""The arguments of attention and of the KV cache, checked; each error names its argument."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from octavo._arguments import real, shown
from octavo._arrays import describe, describe_out
from octavo._dtypes import dtype_name
from octavo._gemm import Operand
from octavo._operation import checked_out, integer, value_type

_MOST_TOKENS: Final = 2**60
_LARGEST_SEED: Final = 2**64 - 1
_ALIGNMENTS: Final = ("top_left", "bottom_right")


def _target(side: Operand, shape: tuple[int, ...], out: Any, op: str) -> Any:
    """Where results go, and whether that is the caller's array."""
    kind = None
    if out is None:
        kind = getattr(side.owner, "kind", "float32")
        kind = kind if isinstance(kind, str) else "float32"
    elif (name := out if isinstance(out, str) else dtype_name(out)) is not None:
        kind = value_type(name, op)
    if kind is not None:
        side.family.check_value(kind, op)
        return side.family.empty(kind, shape, side.cuda, side.stream), False
    value = value_type(describe_out(out, side.family, op).kind, op)
    return checked_out(value, shape, side.family, out, op), True


def _bias(bias: Any, op: str) -> Any:
    """An array of float32; its memory must stay alive during the call."""
    array = describe(bias, f"{op}: bias")
    if array.kind != "float32":
        raise TypeError(f"[{op}] got a bias of {array.kind}; expected float32")
    return array


def _sinks(sinks: Any, op: str) -> Any:
    """An array of float32; its memory must stay alive during the call."""
    array = describe(sinks, f"{op}: sinks")
    if array.kind != "float32":
        raise TypeError(f"[{op}] got sinks of {array.kind}; expected float32, one for each head")
    return array


class _Integers(NamedTuple):
    """An array of integers by its address; the caller keeps it alive."""

    address: int
    shape: tuple[int, ...]
    pitch: int
    """Elements from one row to the next."""

    def of_rows(self) -> tuple[int, int, int, int]:
        rows, columns = self.shape
        return self.address, rows, columns, self.pitch


def _integers(given: Any, name: str, rank: int, kind: str, beside: Operand, op: str) -> _Integers:
    """Of an array with NumPy's interface, or CUDA's, where `beside` is."""
    array = given
    if not hasattr(array, "__cuda_array_interface__") and hasattr(array, "numpy"):
        array = array.numpy()  # torch on the CPU, without a copy
    about = getattr(array, "__cuda_array_interface__", None)
    if about is None:
        about = getattr(array, "__array_interface__", None)
    wanted = f"an array of {'int32' if kind == '<i4' else 'int64'} of {rank} dimension(s)"
    if about is None or about["typestr"] != kind or len(about["shape"]) != rank:
        raise TypeError(f"[{op}] got {name} = {shown(given)}; expected {wanted}")
    if hasattr(array, "__cuda_array_interface__") and beside.cuda < 0:
        raise ValueError(f"[{op}] {name} is on a CUDA device, and q is not; copy it to the CPU")
    shape = tuple(about["shape"])
    size = int(kind[2:])
    strides = about.get("strides") or tuple(size * math.prod(shape[i + 1 :]) for i in range(rank))
    if shape[-1] > 1 and strides[-1] != size:
        raise ValueError(f"[{op}] {name} has gaps in its rows; copy it")
    pitch = strides[0] // size if rank > 1 else 1
    return _Integers(int(about["data"][0] or 0), shape, pitch)


def _soft_cap(soft_cap: Any, op: str) -> float:
    return 0.0 if soft_cap is None else real(soft_cap, "soft_cap", op)


def _probability(dropout_p: Any, op: str) -> float:
    rate = real(dropout_p, "dropout_p", op)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"[{op}] got dropout_p = {dropout_p}; expected 0 to less than 1")
    return rate


def _dropout(dropout_p: Any, seed: Any, op: str) -> tuple[float, int]:
    rate = _probability(dropout_p, op)
    if seed is None:
        if rate:
            raise ValueError(
                f"[{op}] got dropout_p = {dropout_p} and no seed; expected an integer, another one "
                "for each call"
            )
        return rate, 0
    return rate, integer(seed, "seed", _LARGEST_SEED, op)


def _window(window: Any, op: str) -> tuple[int, int]:
    if window is None:
        return -1, -1
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"[{op}] got window = {shown(window)}; expected (before, after), or None")
    left, right = (
        -1 if side is None else integer(side, "window", _MOST_TOKENS, op) for side in window
    )
    return left, right


def _lengths(lengths: Any, name: str, op: str) -> list[int]:
    if lengths is None:
        return []
    try:
        numbers = list(lengths)
    except TypeError:
        raise TypeError(
            f"[{op}] got {name} = {shown(lengths)}; expected a list of integers"
        ) from None
    return [integer(number, name, _MOST_TOKENS, op) for number in numbers]


def _is_bottom_right(align: Any, op: str) -> bool:
    if _name(align, "align", op) not in _ALIGNMENTS:
        raise ValueError(f"[{op}] got align = {shown(align)}; expected {' or '.join(_ALIGNMENTS)}")
    return bool(align == "bottom_right")


def _name(given: Any, name: str, op: str) -> str:
    if not isinstance(given, str):
        raise TypeError(f"[{op}] got {name} of type {type(given).__name__}; expected a name")
    return given


def _factor(softmax_scale: Any, op: str) -> float | None:
    return None if softmax_scale is None else real(softmax_scale, "softmax_scale", op)


def _tolerance(given: Any, name: str, op: str) -> float:
    number = real(given, name, op)
    if not number >= 0 or math.isinf(number):
        raise ValueError(f"[{op}] got {name} = {given}; expected a number of at least 0")
    return number
