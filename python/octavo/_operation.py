"""One conversion of one array: what is it, what is expected, does it fit, go.

The public functions say what they want in terms of Arrays; here it is checked, results are made
and the library is called. All checks come before the first byte is written.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from octavo import _octavo
from octavo._arrays import Array, Family, describe_out
from octavo._dtypes import VALUES, Kind, as_format, as_value, code_format, kind_name
from octavo._octavo import Format, View

# Plain integers that may hold codes, by the bytes of a code.
_INTEGERS: Final = {1: ("uint8", "int8"), 2: ("uint16", "int16")}
_ANY_INTEGER: Final = _INTEGERS[1] + _INTEGERS[2]
# Arguments of a policy that are numbers, and the largest each can be.
_NUMBERS: Final = {"seed": 2**64 - 1, "first_index": 2**64 - 1, "stochastic_bits": 2**31 - 1}
_MOST_COLS: Final = 2**60 - 1  # times 16 bits still fits in 64
MOST_THREADS: Final = _octavo.max_threads()


class Counts(NamedTuple):
    """Counts of a conversion."""

    saturated: int
    """Values beyond the range of the format, whatever the overflow rule made of them."""
    flushed: int
    """Values other than zero that became zero."""
    nan: int
    """NaN inputs."""


class Policy(NamedTuple):
    """How values become codes. None: as the profile says, else the library's default."""

    rounding: str | None = None
    overflow: str | None = None
    nan: str | None = None
    profile: str | None = None
    seed: int | None = None
    first_index: int | None = None
    stochastic_bits: int | None = None

    def arguments(self, op: str) -> dict[str, Any]:
        """What was chosen, checked, by the names that the library's encode has for it."""
        if self == _NOTHING_CHOSEN:  # nearly always
            return {}
        chosen = {}
        for name, value in zip(self._fields, self, strict=True):
            if value is None:
                continue
            chosen[name] = value
            if name in _NUMBERS:
                chosen[name] = integer(value, name, _NUMBERS[name], op)
            else:
                _check_name(value, name, op)
            # first_index is no such choice: it says where x stands, which is true of any rounding.
            if name in ("seed", "stochastic_bits") and not self.in_order:
                raise ValueError(
                    f"[{op}] got {name}, which is for stochastic rounding; "
                    "leave it out or say rounding='stochastic'"
                )
        return chosen

    @property
    def in_order(self) -> bool:
        """Whether it matters which element comes first: draws are counted in row-major order."""
        return self.rounding == "stochastic"

    @property
    def is_default(self) -> bool:
        return self == _NOTHING_CHOSEN


_NOTHING_CHOSEN: Final = Policy()


def encode_array(
    source: Array,
    kind: Kind,
    format: Format,
    policy: Policy,
    op: str,
    *,
    out: Any = None,
    packed: bool = False,
    raw: bool = False,
    counts: bool = False,
    threads: int = 0,
    owner: Array | None = None,
) -> tuple[Any, Counts | None]:
    """Values or codes to codes. The result is of the owner's library, else of the source's."""
    arguments, in_order = policy.arguments(op), policy.in_order
    threads = integer(threads, "threads", MOST_THREADS, op)
    owner, shape = owner or source, source.logical_shape()
    out_shape, cols = shape, None
    if packed:
        check_packable(shape, format, op)
        cols = shape[-1]
        out_shape = shape[:-1] + (row_bytes(cols, format),)
    like = None if packed or in_order or owner.shape != out_shape else owner
    target = make_target(format, out_shape, owner, out, op, like, cols, raw)
    from_view, to_view = _views(source, kind, source.cols, target, format, cols, in_order)
    found = _octavo.encode(
        from_view, to_view, threads=threads, count=counts, stream=source.stream, **arguments
    )
    return written(target, out), None if found is None else Counts(*found)


def decode_array(
    source: Array,
    format: Format,
    value: str | None,
    op: str,
    *,
    out: Any = None,
    packed: bool | None = None,
    cols: int | None = None,
    threads: int = 0,
) -> Any:
    """Codes to values. Without a value type it is that of out, else float32."""
    if packed is None:
        packed = source.cols is not None
    if source.cols is not None and not packed:
        raise ValueError(
            f"[{op}] got packed=False, but the dtype of the codes is a packed one; leave packed out"
        )
    shape = source.shape
    if packed:
        check_packable(shape, format, op)
        check_packed_rows(source, op)
        cols = source.cols if cols is None else integer(cols, "cols", _MOST_COLS, op)
        cols = 8 * shape[-1] // format.bits if cols is None else cols
        if row_bytes(cols, format) != shape[-1]:
            raise ValueError(
                f"[{op}] got cols = {cols}, but {cols} codes of {format.name} take "
                f"{row_bytes(cols, format)} bytes and the rows have {shape[-1]}"
            )
        shape = shape[:-1] + (cols,)
    elif cols is not None:
        raise ValueError(
            f"[{op}] got cols, which is for packed codes; say packed=True or leave cols out"
        )
    if value is None:
        value = (
            "float32" if out is None else value_type(describe_out(out, source.family, op).kind, op)
        )
    target = make_target(value, shape, source, out, op, None if packed else source)
    from_view, to_view = _views(source, format, cols, target, value, None, False)
    threads = integer(threads, "threads", MOST_THREADS, op)
    _octavo.decode(from_view, to_view, threads=threads, stream=source.stream)
    return written(target, out)


def cast_values(
    source: Array,
    kind: Kind,
    value: str,
    op: str,
    *,
    out: Any = None,
    threads: int = 0,
    owner: Array | None = None,
) -> Any:
    """Values to values of another type: the nearest one, Inf beyond the range."""
    narrow, wide = code_format(value), code_format(kind)
    if narrow is not None:
        # Straight to 16 bits, so that float64 is rounded once.
        policy = Policy(overflow="ieee")
        return encode_array(
            source, kind, narrow, policy, op, out=out, threads=threads, owner=owner
        )[0]
    if wide is not None:
        return decode_array(source, wide, value, op, out=out, threads=threads)
    owner = owner or source
    target = make_target(value, owner.shape, owner, out, op, owner)
    with np.errstate(over="ignore"):
        np.copyto(target.numpy(), source.numpy(), casting="same_kind")
    return written(target, out)


def as_float64(source: Array, kind: Kind) -> np.ndarray[Any, np.dtype[np.float64]]:
    """All elements, exactly, in new memory."""
    wide = np.empty(source.logical_shape(), np.float64)
    format = code_format(kind)
    if format is None:
        np.copyto(wide, source.numpy())
    else:
        target = View(wide.ctypes.data, "float64", wide.shape, wide.strides)
        _octavo.decode(source.view(format, source.cols), target)
    return wide


def make_target(
    kind: Kind,
    shape: tuple[int, ...],
    owner: Array,
    out: Any,
    op: str,
    like: Array | None = None,
    cols: int | None = None,
    raw: bool = False,
) -> Array:
    """The caller's out, checked, or a new array of the owner's library, as Family.new has it."""
    if out is None:
        return owner.family.new(kind, shape, owner, op, like, cols, raw)
    return checked_out(kind, shape, owner.family, out, op, cols is not None)


def checked_out(
    kind: Kind, shape: tuple[int, ...], family: Family, out: Any, op: str, packed: bool = False
) -> Array:
    """The caller's out: of this library, kind and shape."""
    array = describe_out(out, family, op)
    if isinstance(kind, Format):
        typed = code_format(array.kind) == kind and (array.cols is not None) == packed
        integers = _INTEGERS[kind.itemsize]
        if not typed and array.kind == kind:
            raise TypeError(
                f"[{op}] out is of a dtype for {'unpacked' if packed else 'packed'} codes of "
                f"{kind.name}, but the codes will be {'packed' if packed else 'unpacked'}; "
                f"say packed={not packed}, or give an out of {integers[0]}"
            )
        if not typed and array.kind not in integers:
            raise TypeError(
                f"[{op}] out is of dtype {kind_name(array.kind)}; "
                f"expected {', '.join(integers)} or a dtype of {kind.name}"
            )
        if packed:
            check_packed_rows(array, op)
    elif array.kind != kind:
        raise TypeError(f"[{op}] out is of dtype {kind_name(array.kind)}; expected {kind}")
    if array.shape != shape:
        raise ValueError(f"[{op}] out has shape {array.shape}; expected {shape}")
    return array


def written(target: Array, out: Any) -> Any:
    """The caller's object, once the array that make_target gave has been written."""
    return target.family.finish(target) if out is None else target.family.wrote(target)


def source_kind(array: Array, source_format: Any, op: str) -> Kind:
    """What the elements to convert are: values of a type, or codes of a format."""
    kind = array.kind
    if source_format is not None:
        return source_code_format(array, source_format, op, "source_format")
    if isinstance(kind, Format) or kind in VALUES:
        return kind
    fix = f"convert first: {array.family.float_fix}"
    if kind in _ANY_INTEGER:
        raise TypeError(
            f"[{op}] got {kind}, which may be numbers or codes; if they are numbers, {fix}; "
            "if they are codes, say of which format: source_format='e4m3fn'"
        )
    raise TypeError(
        f"[{op}] got {kind}; expected float64, float32, float16, bfloat16 or a float8 dtype; {fix}"
    )


def source_code_format(array: Array, format: Any, op: str, argument: str = "format") -> Format:
    """The format of an array of codes, from its dtype or as the caller says."""
    own, kind = code_format(array.kind), array.kind
    if format is None:
        if own is not None:
            return own
        if kind in _ANY_INTEGER:
            raise TypeError(
                f"[{op}] got {kind} codes without a format; say which: {argument}='e4m3fn'"
            )
        raise TypeError(
            f"[{op}] got {kind}; expected codes: a float8 dtype, or uint8 or uint16 with a format"
        )
    given = as_format(format, op)
    if given == own or (own is None and kind in _INTEGERS[given.itemsize]):
        return given
    integers = " or ".join(_INTEGERS[given.itemsize])
    if own is not None:
        raise TypeError(
            f"[{op}] got {argument} = {given.name}, but the array is of dtype {kind_name(kind)}; "
            f"leave {argument} out, or pass its bits as {integers}"
        )
    raise TypeError(
        f"[{op}] got {argument} = {given.name}, whose codes of {given.bits} bits are {integers}, "
        f"but the array is of dtype {kind}"
    )


def value_type(spec: Any, op: str) -> str:
    """The value type that a dtype or its name says."""
    value = as_value(spec)
    if value is None:
        raise TypeError(f"[{op}] got dtype {spec}; expected float64, float32, float16 or bfloat16")
    return value


def check_packable(shape: tuple[int, ...], format: Format, op: str) -> None:
    if format.bits >= 8:
        raise ValueError(
            f"[{op}] got packed codes of {format.name}, which has {format.bits} bits, and only "
            "codes of fewer than 8 can be packed; leave packed out"
        )
    if not shape:
        raise ValueError(
            f"[{op}] a scalar cannot be packed; give an array of at least one dimension"
        )


def row_bytes(cols: int, format: Format) -> int:
    """Bytes of a packed row."""
    return (cols * format.bits + 7) // 8


def integer(value: Any, name: str, most: int, op: str) -> int:
    """An argument that is an integer from 0 to most."""
    if type(value) is int and 0 <= value <= most:  # nearly always
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"[{op}] got {name} of type {type(value).__name__}; expected an integer"
        ) from None
    if not 0 <= number <= most:
        raise ValueError(f"[{op}] got {name} = {number}; expected 0 to {_limit(most)}")
    return number


def integers(given: Any, name: str, most: int, op: str) -> list[int]:
    """A list of those, or an array."""
    listed = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(listed, Sequence) or isinstance(listed, (str, bytes, bytearray)):
        raise TypeError(
            f"[{op}] got {name} of type {type(given).__name__}; expected a list of integers"
        )
    for i, value in enumerate(listed):
        if isinstance(value, bool):
            raise TypeError(f"[{op}] got {name}[{i}] of type bool; expected an integer")
    return [integer(value, f"{name}[{i}]", most, op) for i, value in enumerate(listed)]


def _limit(most: int) -> str:
    """A bound in readable form: 2**62, 2**64 - 1, or the number."""
    if most <= MOST_THREADS:
        return str(most)
    for less in (0, 1):
        if (most + less).bit_count() == 1:
            return f"2**{(most + less).bit_length() - 1}" + (" - 1" if less else "")
    return str(most)


def _check_name(choice: object, name: str, op: str) -> None:
    if not isinstance(choice, str):
        raise TypeError(f"[{op}] got {name} of type {type(choice).__name__}; expected a name")
    try:
        choice.encode()
    except UnicodeEncodeError:
        raise ValueError(f"[{op}] got {name} = {choice!r}, which is no text") from None


def check_packed_rows(array: Array, op: str) -> None:
    if array.shape[-1] > 1 and array.strides[-1] != 1:
        raise ValueError(
            f"[{op}] got packed rows with a stride of {array.strides[-1]} bytes; "
            "expected them contiguous"
        )


def _views(
    source: Array,
    kind: Kind,
    source_cols: int | None,
    target: Array,
    target_kind: Kind,
    target_cols: int | None,
    in_order: bool,
) -> tuple[View, View]:
    # Where elements are independent, both are walked in the order in which the target lies in
    # memory: results in Fortran order cost no more than others.
    packed = source_cols is not None or target_cols is not None
    order = None if packed or in_order else target.order()
    return source.view(kind, source_cols, order), target.view(target_kind, target_cols, order)
