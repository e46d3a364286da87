"""What quantization cost: the error of codes and scales beside the values they stand for."""

from __future__ import annotations

from typing import Any

from octavo import _octavo
from octavo._arrays import describe
from octavo._dtypes import loaded_torch
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import _checked, value_kind
from octavo._quantized import QuantizedTensor


def error(
    x: Any,
    q: QuantizedTensor,
    *,
    rows: bool = False,
    tiles: bool = False,
    histograms: bool = False,
    columnwise: bool = False,
    threads: int = 0,
) -> dict[str, Any]:
    """How far a quantized tensor is from its values, in one pass and little memory.

        >>> octavo.error(x, octavo.quantize(x, "mxfp8"))["relative_l2"]
        0.0265

    x: the values, of q's shape. Errors are measured on the CPU: what is on a CUDA device is copied
        there first, which waits and costs a pass over the bus.
    rows, tiles: also "rows" and "tiles", with lists of count, mse, relative_l2, sqnr and max_abs
        for every row (all dimensions but the last) or tile.
    histograms: also "value_histogram" (first exponent, counts by power of two), "value_zeros" and
        "code_histogram".
    columnwise: measure the columnwise copy.
    threads: at most so many, up to 1024; 0 means all cores. Results do not depend on it.

    Returns a dict with mse, relative_l2, sqnr (decibels), effective_bits, cosine, max_abs,
    max_relative, amax, saturated, flushed, their shares, counts of NaN and Inf, the range of scales
    and bits_per_value. docs/numerics/metrics.md defines them.
    """
    op = "error"
    if loaded_torch() is not None and getattr(x, "is_cuda", False):
        x = x.detach().cpu()
    source = describe(x, op)
    return _octavo.error(
        source.view(value_kind(source, op)),
        _checked(q, op)._on_host(),
        rows=bool(rows),
        tiles=bool(tiles),
        histograms=bool(histograms),
        columnwise=bool(columnwise),
        threads=integer(threads, "threads", MOST_THREADS, op),
    )
