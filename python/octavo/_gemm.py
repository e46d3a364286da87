"""GEMM and grouped GEMM of quantized tensors and of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from octavo import _octavo
from octavo._arguments import flags
from octavo._arrays import Array, Family, describe, describe_out
from octavo._dtypes import VALUES, as_value, dtype_name, kind_name
from octavo._octavo import Format, PackedWeights, Scaling, View
from octavo._operation import MOST_THREADS, checked_out, integer, integers, value_type
from octavo._produce import _vector
from octavo._quantize import preset_names, quantize, value_kind
from octavo._quantized import QuantizedTensor

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from octavo._typing import ArrayT, GemmOptions, ProductOptions

_MOST_PRODUCTS: Final = 2**62


@dataclass(slots=True)
class Operand:
    """One operand as the bindings take it, with the array library, device and stream of the
    results."""

    handle: View | _octavo.QuantizedTensor
    family: Family
    cuda: int
    stream: int
    owner: Array | QuantizedTensor  # keeps memory alive


@overload
def gemm(
    a: ArrayT,
    b: Any,
    bias: Any = None,
    *,
    out: Literal["float32", "float16", "bfloat16", "float64"] = "float32",
    return_aligned: Literal[False] = False,
    **options: Unpack[GemmOptions],
) -> ArrayT: ...
@overload
def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    out: Scaling,
    return_aligned: Literal[False] = False,
    **options: Unpack[GemmOptions],
) -> QuantizedTensor: ...
@overload
def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    out: Scaling,
    return_aligned: Literal[True],
    **options: Unpack[GemmOptions],
) -> tuple[QuantizedTensor, int]: ...
@overload
def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    out: Any = "float32",
    return_aligned: Literal[False] = False,
    **options: Unpack[GemmOptions],
) -> Any: ...
@overload
def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    out: Any = "float32",
    return_aligned: Literal[True],
    **options: Unpack[GemmOptions],
) -> tuple[Any, int]: ...
def gemm(
    a: Any,
    b: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    quantize_a: str | Scaling | None = None,
    out: Any = "float32",
    accumulator: str = "native",
    promote_every: int = 128,
    oblivious: bool = False,
    threads: int = 0,
    stream: Any = None,
    return_aligned: bool = False,
) -> Any:
    """activation(a b^T + bias) + residual, computed in that order and rounded once at the end.

        >>> octavo.gemm(octavo.quantize(x, "mxfp8"), octavo.quantize(w, "mxfp8"))

    a, b: [..., M, K] and [..., N, K], as activations and weights lie in memory: QuantizedTensors
        of any scaling along K, or arrays of float64, float32, float16 or bfloat16 of any library
        and strides. Leading dimensions are a batch: the same in both, or in one of them only.
        b may be the result of pack.
    bias: [N], of any of these types.
    activation: "gelu", "gelu_tanh", "relu" or "silu".
    residual: of the shape of the result.
    quantize_a: a preset or Scaling that the values a are quantized with first, in this call:
        "int8-channel" beside weights of INT8 (W8A8), "fp8-channel" beside FP8, "mxfp8" ...
    out: "float32", "float16" or "bfloat16" ("float64" with that accumulator), or such a dtype of
        any library; a contiguous array to write into; or the name of a preset or a Scaling: the
        float32 results are quantized on the way.
    accumulator: what sums are kept in. "native": float32 on a CPU, and what the FP8 tensor cores
        of a Hopper GPU keep where they multiply, promoted to float32 every 128 products; results
        of 16 bits may have cuBLASLt's order of sums there. "float32"; "float16": runs of 128
        products, for CPUs that are faster so; "float64": nearly exact, slow; "hopper_fp8": what
        those tensor cores keep, bit for bit, slow on a CPU; a GPU has it without MX operands;
        "amx_bf16": what AMX's bf16 tiles keep, bit for bit, slow, on a CPU.
    promote_every: of hopper_fp8: so many products are summed before the sum goes to a float32 one,
        a multiple of 32; 0 is never. A GPU has 128 alone.
    threads: maximum number of threads, up to 1024; 0 means all cores. Results do not depend on it.
    stream: of a CUDA device, as quantize has it.
    oblivious: data-oblivious: no branch and no address depends on the numbers of a, b, bias and
        residual, only on shapes and formats. On a CPU, with the accumulator native or float32.
    return_aligned: also return the number of elements of MX operands whose value changed in the
        product, because a GPU aligned block exponents, per row or per 128 columns. 0: it is the
        product of a and b as they are. It is 0, too, where alignment would lose most of a block:
        such operands are multiplied unaligned, with float32 sums, slower. Synchronizes with the
        device.

    Returns an array of a's library, out, or a QuantizedTensor; and that number, if asked for.
    """
    op = "gemm"
    if quantize_a is not None:
        if isinstance(a, QuantizedTensor):
            raise TypeError(
                f"[{op}] got quantize_a for codes; expected an array for a, or no quantize_a"
            )
        a = quantize(a, quantize_a, threads=threads, stream=stream)
    return product(
        _operand(a, op, "a", stream),
        b if isinstance(b, PackedWeights) else _operand(b, op, "b", stream),
        op,
        bias=bias,
        activation=activation,
        residual=residual,
        out=out,
        accumulator=accumulator,
        promote_every=promote_every,
        oblivious=oblivious,
        threads=threads,
        stream=stream,
        return_aligned=return_aligned,
    )


def product(
    a: Operand,
    b: Operand | PackedWeights,
    op: str,
    *,
    out: Any,
    bias: Any = None,
    activation: str | None = None,
    residual: Any = None,
    accumulator: str = "native",
    promote_every: int = 128,
    oblivious: bool = False,
    threads: int = 0,
    stream: Any = None,
    return_aligned: bool = False,
) -> Any:
    """gemm of checked operands."""
    flags(op, return_aligned=return_aligned, oblivious=oblivious)
    arguments, how, kept = _around(
        a, op, bias, activation, residual, accumulator, promote_every, threads, stream
    )
    how["oblivious"] = oblivious
    wanted = _wanted("float32" if out is None else out, op)
    right = b if isinstance(b, PackedWeights) else b.handle
    shape = tuple(_octavo.gemm_shape(a.handle, right))
    if isinstance(wanted, Scaling):
        made = _octavo.QuantizedTensor.empty(
            shape, "float32", wanted, a.family.allocator(a.cuda, a.stream), a.cuda
        )
        aligned = _octavo.gemm_quantized_into(
            a.handle, right, made, *arguments, count_aligned=return_aligned, **how
        )
        del kept
        quantized = QuantizedTensor(made, a.family, a.stream)
        return (quantized, aligned) if return_aligned else quantized
    target = _target(a, wanted, shape, out, op)
    view = target.view(target.kind)
    aligned = _octavo.gemm(a.handle, right, view, *arguments, count_aligned=return_aligned, **how)
    del kept
    result = target.family.wrote(target) if wanted is None else target.family.finish(target)
    return (result, aligned) if return_aligned else result


@overload
def gemm_grouped(
    a: ArrayT,
    b: Any,
    rows: Any,
    bias: Any = None,
    *,
    out: Any = "float32",
    return_aligned: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> ArrayT: ...
@overload
def gemm_grouped(
    a: Any,
    b: Any,
    rows: Any,
    bias: Any = None,
    *,
    out: Any = "float32",
    return_aligned: Literal[False] = False,
    **options: Unpack[ProductOptions],
) -> Any: ...
@overload
def gemm_grouped(
    a: Any,
    b: Any,
    rows: Any,
    bias: Any = None,
    *,
    out: Any = "float32",
    return_aligned: Literal[True],
    **options: Unpack[ProductOptions],
) -> tuple[Any, int]: ...
def gemm_grouped(
    a: Any,
    b: Any,
    rows: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
    out: Any = "float32",
    accumulator: str = "native",
    promote_every: int = 128,
    threads: int = 0,
    stream: Any = None,
    return_aligned: bool = False,
) -> Any:
    """Grouped GEMM: rows of a times the matrix of their group in b (tokens times the weights of
    their expert).

        >>> octavo.gemm_grouped(tokens, experts, [3, 0, 5])  # [8, K] by [3, N, K] is [8, N]

    a: [rows, K], with the rows of a group one after the other, groups in order.
    b: [groups, N, K]. Both are what gemm takes; rows of a that share scales belong to one group.
    rows: of each group, integers; together all rows of a. A group may be empty.
    bias: [N], the same for all groups. The rest is as gemm has it; on a CUDA device all groups are
        done in one launch.

    Returns an array [rows, N] of a's library, or out; with return_aligned also the count, as in
    gemm.
    """
    op = "gemm_grouped"
    flags(op, return_aligned=return_aligned)
    left, right = _operand(a, op, "a", stream), _operand(b, op, "b", stream)
    counts = integers(rows, "rows", _MOST_PRODUCTS, op)
    arguments, how, kept = _around(
        left, op, bias, activation, residual, accumulator, promote_every, threads, stream
    )
    wanted = _wanted("float32" if out is None else out, op)
    if isinstance(wanted, Scaling):
        raise TypeError(
            f"[{op}] got out = a scaling; expected a type of values or an array; "
            "quantize the result"
        )
    sizes = [tuple(side.owner.shape) for side in (left, right)]
    if len(sizes[0]) != 2 or len(sizes[1]) != 3:
        raise ValueError(
            f"[{op}] a has shape {sizes[0]} and b has shape {sizes[1]}; expected [rows, K] and "
            "[groups, N, K]"
        )
    target = _target(left, wanted, (sizes[0][0], sizes[1][1]), out, op)
    view = target.view(target.kind)
    aligned = _octavo.gemm_grouped(
        left.handle, right.handle, counts, view, *arguments, count_aligned=return_aligned, **how
    )
    del kept
    result = target.family.wrote(target) if wanted is None else target.family.finish(target)
    return (result, aligned) if return_aligned else result


def pack(weights: Any, *, threads: int = 0) -> PackedWeights:
    """Weights packed once for this CPU's matrix instructions (AMX, BFMMLA, SMMLA), for gemm.

        >>> w = octavo.pack(octavo.quantize(weights, "mxfp8"))
        >>> octavo.gemm(x, w)  # with any number of rows

    Codes stay codes, a byte each or two of four bits in one, in the order in which the CPU
    multiplies them. That pays where x has a few to 32 rows; one row is about as fast either way.
    It is for x that those instructions multiply: bfloat16, or quantized. With float32 and float16
    it is slower than without packing. Results are within gemm's bounds, and above 32 rows have
    the bits of the same product without packing.

    weights: [N, K], a QuantizedTensor or an array, in memory of the CPU. It is copied.
    threads: as gemm has it.

    Returns a PackedWeights with shape, scaling, backend, in_panels and nbytes. gemm multiplies it
    with sums in float32, on the backend it was packed for.
    """
    op = "pack"
    operand = _operand(weights, op, "weights", None)
    return _octavo.pack(operand.handle, threads=integer(threads, "threads", MOST_THREADS, op))


def _around(
    a: Operand,
    op: str,
    bias: Any,
    activation: str | None,
    residual: Any,
    accumulator: str,
    promote_every: int,
    threads: int,
    stream: Any,
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
    """The library's arguments other than operands; and the objects to keep alive during the
    call."""
    for name, given in (("activation", activation), ("accumulator", accumulator)):
        if not isinstance(given, str) and not (name == "activation" and given is None):
            raise TypeError(f"[{op}] got {name} of type {type(given).__name__}; expected a name")
    bias_array, bias_view = _vector(bias, op, "bias", stream)
    residual_array, residual_view = _vector(residual, op, "residual", stream)
    arguments = (
        bias_view,
        activation,
        residual_view,
        accumulator,
        integer(promote_every, "promote_every", _MOST_PRODUCTS, op),
    )
    how = {"threads": integer(threads, "threads", MOST_THREADS, op), "stream": a.stream}
    return arguments, how, (bias_array, residual_array)


def _target(a: Operand, wanted: str | None, shape: tuple[int, ...], out: Any, op: str) -> Array:
    if wanted is None:
        value = value_type(describe_out(out, a.family, op).kind, op)
        return checked_out(value, shape, a.family, out, op)
    a.family.check_value(wanted, op)
    return a.family.empty(wanted, shape, a.cuda, a.stream)


def quantized_operand(q: QuantizedTensor, stream: Any = None) -> Operand:
    cuda = q._handle.cuda
    return Operand(q._handle, q._family, cuda, q._family.stream(cuda, stream), q)


def _operand(x: Any, op: str, name: str, stream: Any) -> Operand:
    if isinstance(x, QuantizedTensor):
        return quantized_operand(x, stream)
    if isinstance(x, PackedWeights):
        raise TypeError(
            f"[{op}] {name} is packed weights, which are the right operand of gemm alone; give "
            "the weights as they were before pack"
        )
    array = describe(x, f"{op}: {name}", stream=stream)
    if isinstance(array.kind, Format):
        raise TypeError(
            f"[{op}] {name} is {kind_name(array.kind)}, codes without scales; put both together "
            "with quantized(codes, scales, scaling), or use scaled_mm"
        )
    view = array.view(value_kind(array, f"{op}: {name}"))
    return Operand(view, array.family.for_results(array), array.cuda, array.stream, array)


def _wanted(out: Any, op: str) -> str | Scaling | None:
    """A type of values, a scaling, or None where out is an array to write into."""
    if isinstance(out, Scaling):
        return out
    if isinstance(out, QuantizedTensor):
        raise TypeError(
            f"[{op}] out is a QuantizedTensor; expected how to quantize: give out.scaling"
        )
    if not isinstance(out, str) and dtype_name(out) is None:
        return None
    value = as_value(out)
    if value is not None:
        return value
    if isinstance(out, str) and out.partition(":")[0] in preset_names():
        return _octavo.preset(out)
    name = out if isinstance(out, str) else dtype_name(out)
    raise (ValueError if isinstance(out, str) else TypeError)(
        f"[{op}] got out = {name!r}; expected {', '.join(VALUES)}, an array, an octavo.Scaling or "
        f"the name of a preset ({', '.join(preset_names())}): codes need scales"
    )
