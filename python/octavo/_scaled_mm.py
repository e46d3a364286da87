"""Products of codes with torch's arguments: matrices as [M, K] and [K, N], scales beside them.

Codes are used without a copy: a column-major [K, N], which w.t() is, is a row-major [N, K].
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from octavo._arrays import Array, describe
from octavo._arrays.torch_scales import Matrix, by_shape, torch_device, with_recipe
from octavo._dtypes import as_format, as_value, kind_name
from octavo._gemm import product, quantized_operand
from octavo._octavo import Format
from octavo._operation import Policy, encode_array
from octavo._quantized import QuantizedTensor


def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any = None,
    scale_b: Any = None,
    scale_recipe_b: Any = None,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = "bfloat16",
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
    *,
    threads: int = 0,
) -> Any:
    """mat_a @ mat_b with scales: the arguments of torch.nn.functional.scaled_mm, on any CPU, and on
    a Hopper GPU for arrays that are there.

        >>> octavo.scaled_mm(a_q, b_q, scale_a=a_scale, scale_b=b_scale, output_dtype=torch.float32)

    mat_a, mat_b: [M, K] and [K, N], of float8_e4m3fn, float8_e5m2 and any other float8 dtype, or of
        float4_e2m1fn_x2 (two codes to an element, so [M, K / 2] and a column-major [K / 2, N]).
        Never copied; mat_b is usually column-major, w.t() of weights [N, K].
    scale_a, scale_b: what codes are multiplied by; a list of two for two levels of scales.
    scale_recipe_a, scale_recipe_b: members of torch's ScalingType or their names: TensorWise,
        RowWise, BlockWise1x128, BlockWise128x128 (float32), BlockWise1x32 (float8_e8m0fnu),
        BlockWise1x16 (float8_e4m3fn, and with [BlockWise1x16, TensorWise] one float32 more). None:
        as the dtype and shape of the scale say, by the rules of torch._scaled_mm.
    swizzle_a, swizzle_b: SWIZZLE_32_4_4 for scales of 1x32 and 1x16 in tiles of 128 x 4, NO_SWIZZLE
        or None for a grid. SwizzleType of torch, or names.
    bias: [N].
    output_dtype: bfloat16, float16, float32, or a float8 dtype; None is that of mat_a.
    contraction_dim: () or (1, 0), which is the same.
    use_fast_accum: changes nothing. A CPU sums in float32; the FP8 tensor cores of a GPU keep fewer
        bits, and their sums go to float32 every 128 products in either case.
    threads: maximum number of threads, up to 1024; 0 means all cores.

    The guide has the shapes of scales. Each operand may have a recipe of its own. Negative scales
    are an error on a CPU. On a GPU scales are not checked, and the call does not synchronize.
    Returns [M, N], an array of mat_a's library.
    """
    op = "scaled_mm"
    if scale_b is None:
        raise TypeError(f"[{op}] got no scale_b; expected the scale of mat_b")
    _check_contraction(contraction_dim, op)
    a, b = _matrices(mat_a, mat_b, op)
    operands = [
        with_recipe(matrix, scale, recipe, swizzle, op)
        if recipe is not None
        else by_shape(matrix, scale, swizzle, op)
        for matrix, scale, recipe, swizzle in (
            (a, scale_a, scale_recipe_a, swizzle_a),
            (b, scale_b, scale_recipe_b, swizzle_b),
        )
    ]
    return _product(operands, a, bias, output_dtype, None, threads, op)


def _scaled_mm(
    input: Any,
    mat2: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """torch._scaled_mm, argument for argument, for all of its scalings on any CPU or a Hopper GPU.

    The scaling of each matrix follows from the dtype and shape of its scale: one float32; (M, 1)
    and (1, N); grids of 1x128 or 128x128 tiles that lie as the matrices do; swizzled float8_e8m0fnu
    or float8_e4m3fn. out_dtype None is the dtype of input; float8 results are divided by
    scale_result, as torch does on the CPU. New code is better served by octavo.scaled_mm.
    """
    op = "_scaled_mm"
    a, b = _matrices(input, mat2, op)
    operands = [by_shape(a, scale_a, None, op), by_shape(b, scale_b, None, op)]
    return _product(operands, a, bias, out_dtype, scale_result, 0, op)


def _matrices(mat_a: Any, mat_b: Any, op: str) -> tuple[Matrix, Matrix]:
    a, b = _matrix(mat_a, "a", op), _matrix(mat_b, "b", op)
    if a.depth != b.depth:
        raise ValueError(
            f"[{op}] mat_a has shape {a.array.shape} and mat_b has shape {b.array.shape[::-1]}: K "
            f"is {a.depth} in mat_a and {b.depth} in mat_b; expected [M, K] and [K, N]"
        )
    return a, b


def _matrix(mat: Any, name: str, op: str) -> Matrix:
    if isinstance(mat, QuantizedTensor):
        raise TypeError(f"[{op}] mat_{name} is a QuantizedTensor; use gemm, which knows its scales")
    array = describe(mat, f"{op}: mat_{name}")
    format = array.kind
    if not isinstance(format, Format):
        raise TypeError(
            f"[{op}] mat_{name} is {format}; "
            "expected codes: a float8 dtype or float4_e2m1fn_x2; "
            + (
                "say which with mat.view(dtype)"
                if format in ("uint8", "int8")
                else "quantize it first, or use gemm for values"
            )
        )
    if len(array.shape) != 2:
        raise ValueError(f"[{op}] mat_{name} has shape {array.shape}; expected two dimensions")
    if name == "b":
        # Its transpose: what is packed is K, whatever the dtype makes of the last dimension.
        cols = None if array.cols is None else 2 * array.shape[0]
        array = replace(array, shape=array.shape[::-1], strides=array.strides[::-1], cols=cols)
    rows, depth = array.logical_shape()
    if array.cols is not None and array.shape[1] > 1 and array.strides[1] != 1:
        raise ValueError(
            f"[{op}] mat_{name} has two codes to an element along {'K' if name == 'a' else 'N'}, "
            + ("expected rows that are contiguous" if name == "a" else "expected them along K")
            + ("" if name == "a" else ": pass w.t() of weights [N, K / 2]")
        )
    return Matrix(name, array, format, rows, depth)


def _product(
    operands: list[QuantizedTensor],
    a: Matrix,
    bias: Any,
    dtype: Any,
    scale_result: Any,
    threads: int,
    op: str,
) -> Any:
    value = None if dtype is None else as_value(dtype)
    format = None
    if value is None:
        format = a.format if dtype is None else as_format(dtype, op)
        if format.bits != 8:
            raise TypeError(
                f"[{op}] got {'mat_a' if dtype is None else 'output dtype'} of {kind_name(format)}"
                "; expected an output of bfloat16, float16, float32 or a float8 dtype; say which"
            )
    divisor = None
    if format is not None and scale_result is not None:
        divisor = _divisor(scale_result, a, op)
    left, right = (quantized_operand(side) for side in operands)
    made = product(left, right, op, out=value or "float32", bias=bias, threads=threads)
    if format is None:
        return made
    result = describe(made, op)
    if divisor is not None and result.cuda >= 0:
        _on_device(divisor, op).divide(result, divisor)
    elif divisor is not None:
        values = result.numpy()
        np.multiply(values, np.float32(1) / divisor.numpy().reshape(()), out=values)
    return encode_array(result, "float32", format, Policy(profile="torch"), op, threads=threads)[0]


def _divisor(given: Any, a: Matrix, op: str) -> Array:
    """The divisor of results, checked before the product."""
    scale = describe(given, f"{op}: scale_result")
    if scale.kind != "float32" or any(size != 1 for size in scale.shape):
        raise ValueError(
            f"[{op}] scale_result is {kind_name(scale.kind)} of shape {scale.shape}; expected one "
            "float32"
        )
    if scale.cuda != a.array.cuda:
        places = ["cpu" if cuda < 0 else f"cuda:{cuda}" for cuda in (scale.cuda, a.array.cuda)]
        raise ValueError(
            f"[{op}] scale_result is on {places[0]} and mat_a on {places[1]}; copy it there"
        )
    if scale.cuda >= 0:
        for array in (a.array, scale):
            _on_device(array, op)
    return scale


def _on_device(array: Array, op: str) -> ModuleType:
    return torch_device(array, "scale_result", "divide a float32 result, and encode that", op)


def _check_contraction(given: Any, op: str) -> None:
    dims = tuple(given) if isinstance(given, (tuple, list)) else given
    if dims not in ((), (1, 0), (1, -2), (-1, 0), (-1, -2)):
        raise ValueError(
            f"[{op}] got contraction_dim = {dims}; expected () or (1, 0): columns of mat_a with "
            "rows of mat_b; transpose what lies otherwise"
        )
