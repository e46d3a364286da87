"""KVCache: keys and values as codes with scales."""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from octavo import _octavo
from octavo._arguments import flag, shown
from octavo._arrays import NUMPY, Family, describe
from octavo._attention_arguments import (
    _MOST_TOKENS,
    _factor,
    _lengths,
    _name,
    _sinks,
    _soft_cap,
    _target,
    _tolerance,
    _window,
)
from octavo._gemm import _operand
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import as_scaling, value_kind
from octavo._quantized import QuantizedTensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, AttendOptions


class KVCache:
    """The keys and values of sequences that grow, as codes with scales.

        >>> cache = octavo.KVCache(batches=1, kv_heads=8, head_size=128)
        >>> cache.append(k, v)              # [1, 8, tokens, 128]
        >>> cache.attend(q)                 # [1, 32, 1, 128]: the last token's query

    scaling: the name of a preset, or a Scaling, whose tiles are within a token: "fp8-channel" (one
        float32 scale per token and head), "mxfp8".
    capacity: tokens there is memory for at first; it doubles when it is full.
    device: where the cache lives, "cuda" or "cuda:1"; by default the CPU. On a device its lengths
        do, too: append and attend do not wait, and each run of a graph that captured them appends
        behind the run before, as far as reserve made room. Growing moves the memory: a graph that
        was captured before it must not run again.
    page_tokens: if given, tokens lie in pages of this size, which batches take from a common pool
        as they grow.

    keys() and values() read it out, copies (copy.copy, copy.deepcopy) are independent, and pickles
    hold the tokens there are, bit for bit.
    """

    def __init__(
        self,
        batches: int,
        kv_heads: int,
        head_size: int,
        value_size: int | None = None,
        *,
        scaling: str | Scaling = "fp8-channel",
        capacity: int = 256,
        device: Any = None,
        page_tokens: int | None = None,
    ) -> None:
        op = "KVCache"
        how = as_scaling(scaling, op)
        sizes = (batches, kv_heads, head_size, head_size if value_size is None else value_size)
        batch_count, head_count, k_size, v_size = (
            integer(size, "a size", _MOST_TOKENS, op) for size in sizes
        )
        room = integer(capacity, "capacity", _MOST_TOKENS, op)
        pages = 0 if page_tokens is None else integer(page_tokens, "page_tokens", _MOST_TOKENS, op)
        self._cuda = _cuda_index(device, op)
        self._handle = _octavo.KvCache(
            batch_count, head_count, k_size, v_size, how, how, room, self._cuda, pages
        )
        self._sizes, self._scaling, self._page_tokens = sizes, how, pages
        self._family: Family = NUMPY  # of what was appended last
        self._stream = 0  # and of a device, in whose order

    def __repr__(self) -> str:
        names = ("batches", "kv_heads", "head_size", "value_size")
        sizes = ", ".join(f"{name}={size}" for name, size in zip(names, self._sizes, strict=True))
        lengths = reprlib.repr(self.lengths)  # of many batches the first few
        return (
            f"KVCache({sizes}, scaling={str(self._scaling)!r}, lengths={lengths}, "
            f"capacity={self.capacity})"
        )

    def append(self, k: Any, v: Any, counts: Sequence[int] | None = None) -> None:
        """The next tokens of every batch, or with counts the first so many of them of each."""
        op = "KVCache.append"
        arrays = [describe(k, f"{op}: k"), describe(v, f"{op}: v")]
        k_view, v_view = (array.view(value_kind(array, op)) for array in arrays)
        self._handle.append(k_view, v_view, _lengths(counts, "counts", op), arrays[0].stream)
        self._family = arrays[0].family.for_results(arrays[0])
        self._stream = arrays[0].stream

    def reserve(self, tokens: int) -> None:
        """Make room for this number of tokens of every batch; truncate and clear leave it."""
        room = integer(tokens, "tokens", _MOST_TOKENS, "KVCache.reserve")
        self._handle.reserve(room, self._stream)

    def keys(self) -> QuantizedTensor:
        """A copy of the keys there are, [batches, kv_heads, tokens, size]: codes and scales, and by
        dequantize() the values. Zeros beyond the length of a batch."""
        return QuantizedTensor(self._handle.keys(), self._family)

    def values(self) -> QuantizedTensor:
        """The same of the values that go with them."""
        return QuantizedTensor(self._handle.values(), self._family)

    @overload
    def attend(self, q: ArrayT, **options: Unpack[AttendOptions]) -> ArrayT: ...
    @overload
    def attend(self, q: Any, **options: Unpack[AttendOptions]) -> Any: ...
    def attend(
        self,
        q: Any,
        *,
        precision: str = "bf16",
        rtol: float = 5e-3,
        atol: float = 5e-3,
        window: int | None = None,
        softmax_scale: float | None = None,
        soft_cap: float | None = None,
        sinks: Any = None,
        oblivious: bool = False,
        out: Any = None,
        threads: int = 0,
    ) -> Any:
        """Attention of the last tokens' queries, each seeing what came before it and itself.

        There are no more of them than the longest sequence has tokens; in a shorter one, rows
        before its first token are zeros. soft_cap, sinks and oblivious are those of
        octavo.attention.
        """
        op = "KVCache.attend"
        sink_array = None if sinks is None else _sinks(sinks, op)
        side = _operand(q, op, "q", None)
        shape = tuple(side.owner.shape)[:-1] + (self._handle.value_size,)
        target, is_callers = _target(side, shape, out, op)
        self._handle.attend(
            side.handle,
            target.view(target.kind),
            _name(precision, "precision", op),
            _tolerance(rtol, "rtol", op),
            _tolerance(atol, "atol", op),
            _window((window, None), op)[0],
            _factor(softmax_scale, op),
            soft_cap=_soft_cap(soft_cap, op),
            sinks=None if sink_array is None else sink_array.view("float32"),
            oblivious=flag(oblivious, "oblivious", op),
            threads=integer(threads, "threads", MOST_THREADS, op),
            stream=side.stream,
        )
        return target.family.wrote(target) if is_callers else target.family.finish(target)

    def clear(self) -> None:
        """Drop all tokens."""
        self._handle.clear(self._stream)

    def truncate(self, batch: int, length: int) -> None:
        """Drop the last tokens of a batch."""
        op = "KVCache.truncate"
        self._handle.truncate(
            integer(batch, "batch", _MOST_TOKENS, op),
            integer(length, "length", _MOST_TOKENS, op),
            self._stream,
        )

    @property
    def lengths(self) -> list[int]:
        return list(self._handle.lengths)

    @property
    def capacity(self) -> int:
        return int(self._handle.capacity)

    @property
    def nbytes(self) -> int:
        return int(self._handle.nbytes)

    def __copy__(self) -> KVCache:
        made = KVCache.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._handle = self._handle.copy()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> KVCache:
        made = memo[id(self)] = copy.copy(self)
        return made

    def __reduce__(self) -> Any:
        if self._cuda >= 0:
            raise TypeError("[KVCache] a cache on a device cannot be pickled; its tokens can")
        tokens = (self.keys(), self.values(), self.lengths)
        room = max(1, *self.lengths) if self._page_tokens else self.capacity
        options = (self._scaling, room, self._page_tokens)
        return _restored, (type(self), self._sizes, options, tokens)


def _cuda_index(device: Any, op: str) -> int:
    """-1 for the CPU."""
    name = "cpu" if device is None else str(device)
    if name == "cpu":
        return -1
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index.isdecimal() or (not index and name == "cuda")):
        raise ValueError(f"[{op}] got device = {shown(device)}; expected 'cpu', 'cuda' or 'cuda:1'")
    return int(index or 0)


def _restored(
    cls: type[KVCache],
    sizes: tuple[int, int, int, int],
    options: tuple[Scaling, int, int],
    tokens: tuple[QuantizedTensor, QuantizedTensor, list[int]],
) -> KVCache:
    """From a pickle."""
    scaling, capacity, page_tokens = options
    made = cls(*sizes, scaling=scaling, capacity=capacity, page_tokens=page_tokens)
    keys, values, lengths = tokens
    made._handle.append_codes(keys._handle, values._handle, lengths)
    made._family = keys._family
    return made
