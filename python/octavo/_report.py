"""Error metrics: of quantized tensors against their values, and of products."""

from __future__ import annotations

from typing import Any, NamedTuple

from octavo import _octavo
from octavo._arrays import NUMPY, Array, describe
from octavo._dtypes import loaded_torch
from octavo._gemm import Operand, _operand, product
from octavo._html import table
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import _checked, value_kind
from octavo._quantized import QuantizedTensor


class ProductDistance(NamedTuple):
    """Distance between an exact product x and its replacement y."""

    relative_l2: float
    """||y - x|| / ||x||."""
    max_abs: float
    """The largest |y - x|."""
    cosine: float


class GemmError(NamedTuple):
    """The error of a product against that of the unquantized values."""

    elements: int
    not_finite: int
    """In one of the three products; left out of all else."""
    quantization: ProductDistance
    """From the product of the values to that of the operands as they were multiplied."""
    accumulation: ProductDistance
    """From there to what was computed."""
    total: ProductDistance
    """From the product of the values to what was computed."""

    def _repr_html_(self) -> str:
        steps = {name: getattr(self, name) for name in ("quantization", "accumulation", "total")}
        rows = [(name, *(f"{number:.4g}" for number in one)) for name, one in steps.items()]
        title = f"GemmError of {self.elements:,} elements, {self.not_finite:,} not finite"
        return table(title, rows, ("", *ProductDistance._fields))


def error(
    x: Any,
    q: Any,
    *,
    rows: bool = False,
    tiles: bool = False,
    histograms: bool = False,
    columnwise: bool = False,
    threads: int = 0,
) -> dict[str, Any]:
    """Error metrics of a quantized tensor against its values, in one pass and little memory; or of
    any array against another.

        >>> octavo.error(x, octavo.quantize(x, "mxfp8"))["relative_l2"]
        0.0265
        >>> octavo.error(x, x.astype(np.float16))["sqnr"]
        73.8

    q: a QuantizedTensor; or an array of x's shape, of any type of values, library and strides,
        which has no rows, tiles, histograms and columnwise.
    x: the values, of q's shape. Errors are measured on the CPU: what is on a CUDA device is copied
        there first, which synchronizes and costs a transfer.
    rows, tiles: also "rows" and "tiles", with lists of count, mse, relative_l2, sqnr and max_abs
        for every row (all dimensions but the last) or tile.
    histograms: also "value_histogram" (first exponent, counts by power of two), "value_zeros" and
        "code_histogram".
    columnwise: measure the columnwise copy.
    threads: maximum number of threads, up to 1024; 0 means all cores. Results do not depend on it.

    Returns a dict with mse, relative_l2, sqnr (decibels), effective_bits, cosine, max_abs,
    max_relative, amax, saturated, flushed, their shares, counts of NaN and Inf, the range of scales
    and bits_per_value. docs/numerics/metrics.md defines them. Of two arrays what is known of them:
    nothing about saturation, scales and bits.
    """
    op = "error"
    threads = integer(threads, "threads", MOST_THREADS, op)
    source = _on_cpu(x, op)
    if not isinstance(q, QuantizedTensor):
        asked = {"rows": rows, "tiles": tiles, "histograms": histograms, "columnwise": columnwise}
        for name, given in asked.items():
            if given:
                raise ValueError(f"[{op}] got {name} with two arrays; expected a QuantizedTensor")
        other = _on_cpu(q, op)
        return _octavo.array_error(
            source.view(value_kind(source, op)), other.view(value_kind(other, op))
        )
    return _octavo.error(
        source.view(value_kind(source, op)),
        _checked(q, op)._on_host(),
        rows=bool(rows),
        tiles=bool(tiles),
        histograms=bool(histograms),
        columnwise=bool(columnwise),
        threads=threads,
    )


def gemm_error(
    a: Any,
    b: Any,
    a_used: Any,
    b_used: Any,
    result: Any = None,
    *,
    accumulator: str = "native",
    promote_every: int = 128,
    threads: int = 0,
) -> GemmError:
    """The error of a product against that of the values, split into quantization and accumulation.

        >>> octavo.gemm_error(x, w, octavo.quantize(x, "mxfp8"), octavo.quantize(w, "mxfp8"))

    a, b: the values as they were, [M, K] and [N, K].
    a_used, b_used: what was multiplied: QuantizedTensors or values.
    result: their product, [M, N], before bias, activation and residual. If not given, it is
        gemm(a_used, b_used) with this accumulator and promote_every.
    threads: maximum number of threads, up to 1024; 0 means all cores. Results do not depend on it.

    Exact products are those of float64 sums, on the CPU: what is on a CUDA device is copied there.
    docs/numerics/metrics.md defines the numbers.
    """
    op = "gemm_error"
    count = integer(threads, "threads", MOST_THREADS, op)
    left, right = _on_cpu(a, op), _on_cpu(b, op)
    used = [_used(a_used, op, "a_used"), _used(b_used, op, "b_used")]
    if result is None:
        result = product(
            used[0],
            used[1],
            op,
            out="float32",
            accumulator=accumulator,
            promote_every=promote_every,
            threads=threads,
        )
    made = _on_cpu(result, op)
    elements, not_finite, *distances = _octavo.gemm_error(
        left.view(value_kind(left, op)),
        right.view(value_kind(right, op)),
        used[0].handle,
        used[1].handle,
        made.view(value_kind(made, op)),
        threads=count,
    )
    return GemmError(elements, not_finite, *(ProductDistance(*one) for one in distances))


def _used(x: Any, op: str, name: str) -> Operand:
    if isinstance(x, QuantizedTensor):
        return Operand(x._on_host(), NUMPY, -1, 0, x)
    return _operand(_host(x), op, name, None)


def _on_cpu(x: Any, op: str) -> Array:
    return describe(_host(x), op)


def _host(x: Any) -> Any:
    """What can be measured: on the CPU, and without a graph, which a number does not belong to."""
    torch = loaded_torch()
    if torch is None or not isinstance(x, torch.Tensor) or not (x.is_cuda or x.requires_grad):
        return x
    return x.detach().cpu()
