"""OCP Microscaling Formats (MX) 1.0, clause by clause, of any implementation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from octavo import _octavo

_OP = "conform"


class Conformance:
    """What conform found: findings, a dict for each with clause, check, format, verdict
    ("conforms", "deviates", "chooses" or "not offered"), cases, deviations and what; conforms,
    False where anything deviates. str() has a line for each."""

    def __init__(self, handle: Any):
        self._handle = handle
        self._data: dict[str, Any] = json.loads(handle.json())
        self.findings: list[dict[str, Any]] = self._data["findings"]
        self.conforms: bool = self._data["conforms"]

    def deviations(self) -> list[dict[str, Any]]:
        return [one for one in self.findings if one["verdict"] == "deviates"]

    def json(self) -> str:
        return self._handle.json()

    def __str__(self) -> str:
        return self._handle.text()

    def __repr__(self) -> str:
        return f"Conformance({len(self.findings)} findings, {len(self.deviations())} deviate)"


def conform(
    convert: Callable[[np.ndarray, str], Any] | None = None,
    dequantize: Callable[[np.ndarray, np.ndarray, str], Any] | None = None,
    dot: Callable[..., Any] | None = None,
) -> Conformance:
    """Tests an implementation of MX against the standard. Without one: octavo's own.

        >>> octavo.conform(convert=my_quantizer).deviations()

    convert(values, format): of float32 [blocks, 32] to (scales, codes): E8M0 bytes [blocks], and
        codes [blocks, 32], one in a byte.
    dequantize(scales, codes, format): to float32 [blocks, 32].
    dot(scales_a, codes_a, format_a, scales_b, codes_b, format_b): the product of two vectors, a
        number.

    format is "e4m3fn", "e5m2", "e3m2fn", "e2m3fn", "e2m1fn" or "mxint8". Arguments are NumPy
    arrays; results may be of any library with __dlpack__ or __array__, of types of one byte (codes
    of torch's float8 dtypes too). NotImplementedError says that something is not offered.
    `octavo conform --exec` does the same with a program. docs/numerics/mx-conformance.md has the
    clauses.
    """
    if convert is None and dequantize is None and dot is None:
        return Conformance(_octavo.octavo_conforms())
    for name, one in (("convert", convert), ("dequantize", dequantize), ("dot", dot)):
        if one is not None and not callable(one):
            raise TypeError(f"[{_OP}] got {name}={one!r}; expected a callable")

    def answer(
        kind: str,
        format: str,
        values: bytes,
        scales: bytes,
        codes: bytes,
        other_format: str,
        other_scales: bytes,
        other_codes: bytes,
    ) -> Any:
        callables: dict[str, Callable[..., Any] | None] = {
            "convert": convert,
            "dequantize": dequantize,
            "dot": dot,
        }
        asked = callables[kind]
        if asked is None:
            return "no callable was given"
        grid, other = _bytes(codes), _bytes(other_codes)
        try:
            if kind == "convert":
                given = asked(np.frombuffer(values, np.float32).reshape(-1, 32), format)
                if not isinstance(given, tuple | list) or len(given) != 2:
                    raise TypeError(f"[{_OP}] got {given!r:.60} of convert; expected two arrays")
                return _encoded(given[0], "scales"), _encoded(given[1], "codes")
            if kind == "dequantize":
                return _values(asked(_flat(scales), grid, format))
            return _values(
                asked(_flat(scales), grid, format, _flat(other_scales), other, other_format)
            )
        except NotImplementedError as error:
            return str(error) or "it is not implemented"

    return Conformance(_octavo.conform(answer))


def _flat(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def _bytes(data: bytes) -> np.ndarray:
    return _flat(data).reshape(-1, 32)


def _array(given: Any) -> np.ndarray:
    """An array of any library as NumPy's; torch's types of a byte as bytes."""
    module = type(given).__module__.partition(".")[0]
    if module == "torch":
        given = given.detach().cpu().contiguous()
        if given.dtype.itemsize == 1:
            given = given.view(__import__("torch").uint8)
        return given.numpy()
    if isinstance(given, np.ndarray) or not hasattr(given, "__dlpack__"):
        return np.asarray(given)
    return np.from_dlpack(given)


def _encoded(given: Any, name: str) -> bytes:
    array = _array(given)
    if array.dtype.itemsize == 1:
        return np.ascontiguousarray(array).tobytes()
    if array.dtype.kind not in "iu" or (array.size and not (0 <= array.min() <= array.max() < 256)):
        raise TypeError(f"[{_OP}] got {name} of {array.dtype}; expected bytes")
    return array.astype(np.uint8).tobytes()


def _values(given: Any) -> bytes:
    return np.asarray(_array(given), dtype=np.float32).tobytes()
