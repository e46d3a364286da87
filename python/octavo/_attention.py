"""Scaled dot-product attention with an error bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, overload

from octavo import _octavo
from octavo._arguments import flag, flags, real, shown
from octavo._arrays import describe, describe_out
from octavo._attention_report import AttentionAmax, AttentionChoice, AttentionReport
from octavo._dtypes import dtype_name
from octavo._gemm import Operand, _operand, _wanted
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, checked_out, integer, value_type
from octavo._quantize import quantize

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, AttentionOptions

_MOST_TOKENS: Final = 2**60
_LARGEST_SEED: Final = 2**64 - 1
_ALIGNMENTS: Final = ("top_left", "bottom_right")


@overload
def attention(
    q: ArrayT,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[False] = False,
    return_report: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> ArrayT: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[False] = False,
    return_report: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> Any: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[True],
    return_report: Literal[False] = False,
    **options: Unpack[AttentionOptions],
) -> tuple[Any, Any]: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[False] = False,
    return_report: Literal[True],
    **options: Unpack[AttentionOptions],
) -> tuple[Any, AttentionReport]: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: Literal[True],
    return_report: Literal[True],
    **options: Unpack[AttentionOptions],
) -> tuple[Any, Any, AttentionReport]: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool,
    return_report: bool,
    **options: Unpack[AttentionOptions],
) -> Any: ...
@overload
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_report: bool = False,
    return_bound: bool = False,
    return_probabilistic_bound: bool = False,
    return_amax: bool = False,
    **options: Unpack[AttentionOptions],
) -> Any: ...
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    align: str = "top_left",
    window: tuple[int | None, int | None] | None = None,
    softmax_scale: float | None = None,
    soft_cap: float | None = None,
    sinks: Any = None,
    dropout_p: float = 0.0,
    seed: int | None = None,
    query_lengths: Sequence[int] | None = None,
    key_lengths: Any = None,
    bias: Any = None,
    block_table: Any = None,
    precision: str = "auto",
    rtol: float = 5e-3,
    atol: float = 5e-3,
    certified: bool = False,
    oblivious: bool = False,
    out: Any = None,
    return_lse: bool = False,
    return_report: bool = False,
    return_bound: bool = False,
    return_probabilistic_bound: bool = False,
    return_amax: bool = False,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """softmax(softmax_scale q k^T) v of every head.

        >>> octavo.attention(q, k, v, causal=True)                 # within 5e-3 + 5e-3 |exact|
        >>> octavo.attention(q, k, v, precision="strict")          # FP8, exact for its inputs

    q, k, v: [batch, heads, tokens, size], or without batch, or without both; arrays of float64,
        float32, float16 or bfloat16 of any library and strides, or QuantizedTensors with scales
        per tensor, head, token, channel, block of tokens, or MX. k and v may have fewer heads
        than q, which then share them.
    causal: a row sees the keys up to its own position.
    align: "top_left": row i stands at key i, as in torch. "bottom_right": the last row stands at
        the last key.
    window: (left, right), how many keys before and after its own position a row sees; None is no
        limit.
    softmax_scale: by default 1 / sqrt(size).
    soft_cap: scores x = softmax_scale q k become soft_cap * tanh(x / soft_cap), before the bias and
        the mask, as Gemma 2's attn_logit_softcapping; None is no cap.
    sinks: float32 [heads], a logit for each head of q that takes part in the softmax and has no
        value, as in gpt-oss; -inf is none. The log-sum-exp has it too. With a soft cap or sinks
        "fast" and "balanced" do not smooth K.
    dropout_p, seed: weights are dropped with this probability and the others divided by
        1 - dropout_p: a function of the seed, batch, head, row and key alone, the same on every
        backend. The log-sum-exp has all weights. "auto" is "f32" then.
    query_lengths, key_lengths: for each batch, the actual numbers of queries and keys (the rest is
        padding).
    bias: float32 numbers that are added to the scores, softmax_scale q k; -inf masks a key. [batch,
        heads, queries, keys], where any may be 1, or that without leading ones.
    block_table: k and v are pages of a pool then, [pages, heads, page tokens, size] of any strides,
        and token j of batch b is token j % page tokens of page block_table[b, j // page tokens]:
        int32 [batch, most pages], where k is. On a device for "exact", "f32" and "bf16", for
        "f16" where k and v are float16 or codes, and for "strict" and "fast" where they are codes.
        key_lengths may be an int64 tensor on the device then, which a captured graph reads anew in
        every run.
    precision: "auto": per head and range of rows the cheapest whose modelled error is within atol
        of the exact result. "exact": float64. "f32". "bf16". "f16": float16 with sums in
        float32; numbers beyond 65504 become Inf. "strict": FP8 inputs, weights as two
        FP8 terms. "balanced": INT8 scores of smoothed keys, 16-bit values. "fast": FP8 everywhere.
        "naive": FP8 without scales, to see what that loses.
    certified: for "auto": the cheapest precision whose certified bound is within atol, for each
        range of rows, from norms of the inputs alone: no row is computed twice. Where none is,
        "f32", and the report says so.
    oblivious: data-oblivious: no branch and no address depends on the numbers of q, k and v, only
        on shapes, masks, lengths, the bias and sinks. Of a named precision, on a CPU; slower.
    out: a contiguous array of q's library to write into, or a type of values; by default q's type.
        A Scaling or the name of a preset quantizes the result, with scales of its own.
    return_lse: also the log-sum-exp of every row, float32.
    return_report: also an AttentionReport.
    return_bound: also a bound of the error of every row, float32: the largest error of its
        elements against exact attention of the inputs as they are given. It holds whatever they
        are; infinite where nothing can be said (NaN, Inf). On a CPU, without dropout.
    return_probabilistic_bound: also a smaller bound, which a row exceeds with a probability of at
        most 1e-6 if roundings are independent and values are of keys.
    return_amax: also an AttentionAmax: the largest magnitudes of S (softmax_scale q k, capped, of
        keys that rows see), of P and of the result. On a CPU; costs another product of q and k.
    threads: maximum number of threads, up to 1024; 0 means all cores. Results do not depend on it.

    Returns an array of q's library, or a QuantizedTensor; or a tuple with what else was asked for,
    in this order.
    """
    op = "attention"
    flags(op, causal=causal, return_lse=return_lse, return_report=return_report)
    flags(op, return_bound=return_bound, return_probabilistic_bound=return_probabilistic_bound)
    flags(op, return_amax=return_amax)
    scaling = None
    if out is not None and isinstance(asked := _wanted(out, op), Scaling):
        scaling, out = asked, "float32"
    factor = _factor(softmax_scale, op)
    operands = [_operand(x, op, name, stream) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
    q_handle, k_handle, v_handle = (side.handle for side in operands)
    first = operands[0]
    table = None
    if block_table is not None:
        table = _integers(block_table, "block_table", 2, "<i4", first, op)
    device_lengths = None
    if hasattr(key_lengths, "__cuda_array_interface__"):
        device_lengths = _integers(key_lengths, "key_lengths", 1, "<i8", first, op)
        if device_lengths.shape != (operands[0].owner.shape[0],):
            raise ValueError(
                f"[{op}] got key_lengths of shape {device_lengths.shape}; expected one for each of "
                f"{operands[0].owner.shape[0]} batches"
            )
        key_lengths = None
    if table is None:
        shape = tuple(_octavo.attention_shape(q_handle, k_handle, v_handle))
    else:
        shape = (*tuple(first.owner.shape)[:-1], tuple(operands[2].owner.shape)[-1])
    target, is_callers = _target(first, shape, out, op)
    wanted = {
        "log_sum_exp": return_lse,
        "bound": return_bound,
        "probabilistic_bound": return_probabilistic_bound,
    }
    numbers = {
        name: first.family.empty("float32", shape[:-1], first.cuda, first.stream)
        for name, is_wanted in wanted.items()
        if is_wanted
    }
    views = {name: array.view("float32") for name, array in numbers.items()}
    left, right = _window(window, op)
    added = None if bias is None else _bias(bias, op)
    sink_array = None if sinks is None else _sinks(sinks, op)
    rate, draws = _dropout(dropout_p, seed, op)
    found = _octavo.attention(
        q_handle,
        k_handle,
        v_handle,
        target.view(target.kind),
        _name(precision, "precision", op),
        _tolerance(rtol, "rtol", op),
        _tolerance(atol, "atol", op),
        flag(causal, "causal", op),
        _is_bottom_right(align, op),
        left,
        right,
        _lengths(query_lengths, "query_lengths", op),
        _lengths(key_lengths, "key_lengths", op),
        factor,
        views.get("log_sum_exp"),
        None if added is None else added.view("float32"),
        soft_cap=_soft_cap(soft_cap, op),
        sinks=None if sink_array is None else sink_array.view("float32"),
        threads=integer(threads, "threads", MOST_THREADS, op),
        stream=first.stream,
        dropout=rate,
        seed=draws,
        block_table=None if table is None else table.of_rows(),
        device_key_lengths=0 if device_lengths is None else device_lengths.address,
        certified=flag(certified, "certified", op),
        oblivious=flag(oblivious, "oblivious", op),
        bound=views.get("bound"),
        probabilistic_bound=views.get("probabilistic_bound"),
        find_amaxes=return_amax,
    )
    result = target.family.wrote(target) if is_callers else target.family.finish(target)
    if scaling is not None:
        result = quantize(result, scaling, threads=threads, stream=stream)
    extra: dict[str, Any] = {name: array.family.finish(array) for name, array in numbers.items()}
    if return_report:
        extra["report"] = AttentionReport(
            [AttentionChoice(*choice) for choice in found[0]], found[1]
        )
    if return_amax:
        extra["amax"] = AttentionAmax(*found[2])
    order = ("log_sum_exp", "report", "bound", "probabilistic_bound", "amax")
    more = tuple(extra[name] for name in order if name in extra)
    return (result, *more) if more else result


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
