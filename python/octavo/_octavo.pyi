"""
The doors from Python into the octavo library. Use the octavo package, not this module.
"""

from collections.abc import Sequence

import numpy

class Format:
    """
    What the bits of a code mean. Formats are immutable, hashable and compare equal when every code means the same.

        >>> octavo.Format('e4m3fn').max
        448.0
    """

    def __init__(self, name: str) -> None:
        """
        A format by name: e<E>m<M>, then optionally b<bias>, then nothing (IEEE 754 rules), fn, fnuz or fnu; or mxint8.
        """

    @property
    def name(self) -> str:
        """The canonical name; Format(f.name) == f."""

    @property
    def note(self) -> str:
        """
        One line on who uses it; empty for formats that are not in octavo.formats().
        """

    @property
    def bits(self) -> int:
        """Bits of one code, sign included."""

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent field."""

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa field; the leading one is not stored."""

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent field."""

    @property
    def max(self) -> float:
        """The largest finite value."""

    @property
    def min(self) -> float:
        """
        The lowest finite value (negative in signed formats), as in numpy.finfo.
        """

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with full precision."""

    @property
    def tiny(self) -> float:
        """The same as smallest_normal, as in numpy.finfo."""

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive value."""

    @property
    def eps(self) -> float:
        """The distance from 1.0 to the next larger value of this precision."""

    @property
    def is_signed(self) -> bool: ...
    @property
    def has_inf(self) -> bool: ...
    @property
    def has_nan(self) -> bool: ...
    @property
    def has_zero(self) -> bool: ...
    @property
    def has_subnormals(self) -> bool: ...
    @property
    def has_negative_zero(self) -> bool: ...
    @property
    def itemsize(self) -> int:
        """Bytes of one code that is not packed: 1 or 2."""

    @property
    def code_dtype(self) -> str:
        """The integer dtype that holds one code."""

    @property
    def numpy_dtype(self) -> numpy.dtype | None:
        """
        The dtype NumPy (with ml_dtypes, if it is installed) has for this format, or None.
        """

    @property
    def torch_dtype(self) -> object | None:
        """The dtype PyTorch has for this format, or None. Imports torch."""

    def codes(self) -> numpy.ndarray:
        """Every code, in order: 0, 1, ..., 2**bits - 1."""

    def values(self) -> numpy.ndarray:
        """The value of every code, in order, as float64; all exact."""

    def __repr__(self) -> str: ...
    def __str__(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Format], tuple[str]]: ...

def formats() -> list[Format]:
    """The formats known by a name of their own."""

def array_memory(array_struct: object) -> tuple[int, bool]:
    """
    The address of a NumPy array and whether it may be written, from its __array_struct__.
    """

class View:
    """Somebody's memory, as the library sees it. Owns nothing."""

    def __init__(
        self,
        address: int,
        kind: Format | str,
        shape: Sequence[int],
        strides: Sequence[int],
        packed: bool = False,
        read_only: bool = False,
    ) -> None:
        """
        kind: a Format, or a value type by name. Strides are in bytes, one per dimension.
        """

class Tensor:
    """Memory that the library owns, or that came as a DLPack capsule."""

    @staticmethod
    def empty(kind: Format | str, shape: Sequence[int], packed: bool = False) -> Tensor:
        """New memory, not initialised. kind: a Format, or a value type by name."""

    @staticmethod
    def from_dlpack(capsule: object) -> Tensor:
        """Takes the array in a capsule over."""

    @property
    def address(self) -> int: ...
    @property
    def kind(self) -> Format | str:
        """A Format, or a dtype by name."""

    @property
    def shape(self) -> list[int]:
        """In elements."""

    @property
    def strides(self) -> list[int]:
        """In bytes."""

    @property
    def packed(self) -> bool: ...
    @property
    def read_only(self) -> bool: ...
    def as_bytes(self) -> Tensor:
        """The same memory; __dlpack__ calls codes plain integers."""

    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: object | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def encode(
    source: View,
    target: View,
    *,
    rounding: str | None = None,
    overflow: str | None = None,
    nan: str | None = None,
    profile: str | None = None,
    seed: int = 0,
    first_index: int = 0,
    stochastic_bits: int = 16,
    threads: int = 0,
    count: bool = False,
) -> tuple[int, int, int] | None:
    """
    Values, or codes of another format, to codes. With count: (saturated, flushed, nan).
    """

def decode(source: View, target: View, *, threads: int = 0) -> None:
    """Codes to values."""

def roundings() -> list[str]:
    """The names that rounding= takes."""

def overflows() -> list[str]:
    """The names that overflow= takes."""

def nan_inputs() -> list[str]:
    """The names that nan= takes."""

def profiles() -> list[str]:
    """The names that profile= takes."""

def version() -> str:
    """The version of the library."""

def backends() -> list[tuple[str, bool, str, str]]:
    """Every backend, fastest first: (name, usable, reason, description)."""

def chosen_backend() -> str:
    """The backend that runs CPU work now."""

def cpu_name() -> str:
    """The CPU, for people."""

def cpu_features() -> list[str]:
    """The CPU features octavo knows and this CPU reports."""

def available_threads() -> int:
    """Threads a call uses when it does not say."""

def max_threads() -> int:
    """The most threads that a call may ask for."""
