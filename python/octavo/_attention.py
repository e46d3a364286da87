"""Scaled dot-product attention with an error bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from octavo import _octavo
from octavo._arguments import flag, flags
from octavo._attention_arguments import (
    _bias,
    _dropout,
    _factor,
    _integers,
    _is_bottom_right,
    _lengths,
    _name,
    _sinks,
    _soft_cap,
    _target,
    _tolerance,
    _window,
)
from octavo._attention_report import AttentionAmax, AttentionChoice, AttentionReport
from octavo._gemm import _operand, _wanted
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import quantize

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, AttentionOptions


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
