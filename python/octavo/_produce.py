"""Norms and activations: to values, or fused with quantize.

Everything is computed in float64 or to within a derived bound of it, and rounded to float32 once;
docs/numerics/producers.md has the formulas. A quantization sees that float32, never a copy rounded
to 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from octavo import _octavo
from octavo._arrays import Array, describe
from octavo._octavo import Produced, Scaling, View
from octavo._operation import MOST_THREADS, integer, make_target, value_type
from octavo._quantize import as_scaling, new_quantized, value_kind
from octavo._quantized import QuantizedTensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, ProduceOptions


@overload
def layer_norm(
    x: ArrayT,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> ArrayT: ...
@overload
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> Any: ...
@overload
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: str | Scaling,
    **options: Unpack[ProduceOptions],
) -> QuantizedTensor: ...
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last dimension.

    x: an array of float64, float32, float16 or bfloat16 of NumPy, ml_dtypes, torch (CPU or CUDA)
        or any library with __dlpack__; or Python numbers. Any strides; never copied.
    weight, bias: as long as the last dimension, of any of these types; or left out.
    zero_centred: what is multiplied by is 1 + weight (Transformer Engine's zero_centered_gamma).
    quantize: the name of a preset or a Scaling: codes with scales come out, made from the float32
        results without another rounding.
    dtype: of plain results: "float32", "float16" or "bfloat16"; by default that of x, and float32
        for float64.
    out: a contiguous array of x's library for plain results; must not overlap x.
    threads: maximum number of threads, up to 1024; 0 means all cores this process may use.
    stream: of a CUDA device, as quantize has it. weight and bias are on the device of x.

    Returns an array of x's library, or a QuantizedTensor where quantize is given.
    """
    op = "layer_norm"
    source = describe(x, op, stream=stream)
    # Names keep their memory alive until the work is done.
    weight_array, weight_view = _vector(weight, op, "weight", stream)
    bias_array, bias_view = _vector(bias, op, "bias", stream)
    produced = _octavo.layer_norm(
        source.view(value_kind(source, op)),
        weight_view,
        bias_view,
        _number(eps, op),
        bool(zero_centred),
    )
    return _finish(produced, source, op, quantize, dtype, out, threads)


@overload
def rms_norm(
    x: ArrayT,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> ArrayT: ...
@overload
def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> Any: ...
@overload
def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: str | Scaling,
    **options: Unpack[ProduceOptions],
) -> QuantizedTensor: ...
def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    zero_centred: bool = False,
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """x / sqrt(mean of squares + eps) * weight, over the last dimension.

    Arguments and result are those of layer_norm.
    """
    op = "rms_norm"
    source = describe(x, op, stream=stream)
    keep = _vector(weight, op, "weight", stream)
    produced = _octavo.rms_norm(
        source.view(value_kind(source, op)), keep[1], _number(eps, op), bool(zero_centred)
    )
    return _finish(produced, source, op, quantize, dtype, out, threads)


@overload
def gelu(
    x: ArrayT,
    *,
    approximate: str = "none",
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> ArrayT: ...
@overload
def gelu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> Any: ...
@overload
def gelu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: str | Scaling,
    **options: Unpack[ProduceOptions],
) -> QuantizedTensor: ...
def gelu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """x times the probability that a normal variable is below x.

    approximate: "none", or "tanh" for the form that Transformer Engine calls GELU.
    The other arguments and the result are those of layer_norm.
    """
    name = _gelu_name(approximate, "gelu")
    return _activation(x, name, False, "gelu", quantize, dtype, out, threads, stream)


@overload
def relu(x: ArrayT, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> ArrayT: ...
@overload
def relu(x: Any, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> Any: ...
@overload
def relu(
    x: Any, *, quantize: str | Scaling, **options: Unpack[ProduceOptions]
) -> QuantizedTensor: ...
def relu(
    x: Any,
    *,
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """x, and 0 for all that is not above 0; NaN stays. Other arguments are those of layer_norm."""
    return _activation(x, "relu", False, "relu", quantize, dtype, out, threads, stream)


@overload
def silu(x: ArrayT, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> ArrayT: ...
@overload
def silu(x: Any, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> Any: ...
@overload
def silu(
    x: Any, *, quantize: str | Scaling, **options: Unpack[ProduceOptions]
) -> QuantizedTensor: ...
def silu(
    x: Any,
    *,
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """x / (1 + exp(-x)). Other arguments are those of layer_norm."""
    return _activation(x, "silu", False, "silu", quantize, dtype, out, threads, stream)


@overload
def swiglu(x: ArrayT, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> ArrayT: ...
@overload
def swiglu(x: Any, *, quantize: None = None, **options: Unpack[ProduceOptions]) -> Any: ...
@overload
def swiglu(
    x: Any, *, quantize: str | Scaling, **options: Unpack[ProduceOptions]
) -> QuantizedTensor: ...
def swiglu(
    x: Any,
    *,
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """silu of the first half of the last dimension, times the second half.

        >>> octavo.swiglu([[0.0, 100.0, 3.0, 2.0]])
        array([[  0., 200.]], dtype=float32)

    Other arguments are those of layer_norm.
    """
    return _activation(x, "silu", True, "swiglu", quantize, dtype, out, threads, stream)


@overload
def geglu(
    x: ArrayT,
    *,
    approximate: str = "none",
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> ArrayT: ...
@overload
def geglu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: None = None,
    **options: Unpack[ProduceOptions],
) -> Any: ...
@overload
def geglu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: str | Scaling,
    **options: Unpack[ProduceOptions],
) -> QuantizedTensor: ...
def geglu(
    x: Any,
    *,
    approximate: str = "none",
    quantize: str | Scaling | None = None,
    dtype: Any = None,
    out: Any = None,
    threads: int = 0,
    stream: Any = None,
) -> Any:
    """gelu of the first half of the last dimension, times the second half.

    approximate: "none", or "tanh" for the form that Transformer Engine means.
    The other arguments and the result are those of layer_norm.
    """
    name = _gelu_name(approximate, "geglu")
    return _activation(x, name, True, "geglu", quantize, dtype, out, threads, stream)


def _activation(
    x: Any,
    name: str,
    gated: bool,
    op: str,
    quantize: Any,
    dtype: Any,
    out: Any,
    threads: int,
    stream: Any,
) -> Any:
    source = describe(x, op, stream=stream)
    produced = _octavo.activation(source.view(value_kind(source, op)), name, gated)
    return _finish(produced, source, op, quantize, dtype, out, threads)


def _finish(
    produced: Produced,
    source: Array,
    op: str,
    quantize: str | Scaling | None,
    dtype: Any,
    out: Any,
    threads: int,
) -> Any:
    """Computes a Produced, quantized or as plain values."""
    threads = integer(threads, "threads", MOST_THREADS, op)
    if quantize is not None:
        if dtype is not None or out is not None:
            raise ValueError(
                f"[{op}] got quantize and {'out' if dtype is None else 'dtype'}, which is for "
                "plain values; leave out one"
            )
        made = new_quantized(source, "float32", as_scaling(quantize, op), tuple(produced.shape))
        _octavo.quantize_produced_into(
            produced, made._handle, threads=threads, stream=source.stream
        )
        return made
    target = make_target(
        _result_type(source, dtype, out, op), tuple(produced.shape), source, out, op
    )
    _octavo.produce(produced, target.view(target.kind), threads=threads, stream=source.stream)
    family = target.family
    return family.finish(target) if out is None else family.wrote(target)


def _result_type(source: Array, dtype: Any, out: Any, op: str) -> str:
    if dtype is None and out is not None:
        dtype = describe(out, op).kind
    if dtype is None:
        kind = str(source.kind)
        return "float32" if kind == "float64" else kind
    value = value_type(dtype, op)
    if value == "float64":
        raise TypeError(
            f"[{op}] got dtype float64; expected float32, float16 or bfloat16: what is produced is "
            "rounded to float32 first"
        )
    return value


def _vector(x: Any, op: str, what: str, stream: Any) -> tuple[Array | None, View | None]:
    """An argument that may be left out, and a view of it."""
    if x is None:
        return None, None
    array = describe(x, f"{op}: {what}", stream=stream)
    return array, array.view(value_kind(array, f"{op}: {what}"))


def _number(eps: Any, op: str) -> float:
    try:
        return float(eps)
    except (TypeError, ValueError):
        raise TypeError(f"[{op}] got eps of type {type(eps).__name__}; expected a number") from None


def _gelu_name(approximate: str, op: str) -> str:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"[{op}] got approximate = {approximate!r}; expected 'none' or 'tanh'")
    return "gelu" if approximate == "none" else "gelu_tanh"
