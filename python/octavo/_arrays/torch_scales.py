"""Scales in torch's layouts (scaled_mm recipes), combined with their codes.

What torch calls a recipe is a tile and a type of scales. torch.nn.functional.scaled_mm names it and
torch._scaled_mm takes it from the shape of the scale; the two want some grids to lie differently.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np

from octavo import _octavo
from octavo._arrays import Array, describe
from octavo._dtypes import kind_name
from octavo._octavo import Format, Scaling, Tensor
from octavo._quantized import QuantizedTensor
from octavo._quantized_from import _SCALE_KINDS, _borrow, _kind_as


class Recipe(NamedTuple):
    """What shares a scale, and what scales are."""

    name: str  # as torch has it
    tile: tuple[int, int]
    scale: str


_RECIPES: Final = {
    "tensorwise": Recipe("TensorWise", (0, 0), "f32"),
    "rowwise": Recipe("RowWise", (1, 0), "f32"),
    "1x16": Recipe("BlockWise1x16", (1, 16), "e4m3+f32"),
    "1x32": Recipe("BlockWise1x32", (1, 32), "e8m0"),
    "1x128": Recipe("BlockWise1x128", (1, 128), "f32"),
    "128x128": Recipe("BlockWise128x128", (128, 128), "f32"),
}
_SWIZZLES: Final = ("NO_SWIZZLE", "SWIZZLE_32_4_4")


@dataclass(slots=True)
class Matrix:
    """Codes as [rows, K], whichever of the two matrices they are of."""

    name: str  # "a" or "b"
    array: Array
    format: Format
    rows: int
    depth: int

    def grid(self, recipe: Recipe) -> tuple[int, int]:
        """Scales of this recipe along rows and along K."""
        rows, cols = recipe.tile
        return _tiles(self.rows, rows), _tiles(self.depth, cols)


def with_recipe(matrix: Matrix, scale: Any, recipe: Any, swizzle: Any, op: str) -> QuantizedTensor:
    """Codes with scales that lie as torch.nn.functional.scaled_mm wants them to."""
    recipe, scale, second, swizzle = _lists(scale, recipe, swizzle, matrix, op)
    what, array = f"scale_{matrix.name}", _scale_array(scale, matrix, op)
    _kind_as(array, _SCALE_KINDS[recipe.scale], f"elements of {what} ({recipe.name})", op)
    rows, depth = matrix.grid(recipe)
    if swizzle != "NO_SWIZZLE":
        return _quantized(matrix, recipe, _unswizzled(array, recipe, matrix, op), second, op)
    if recipe.name == "TensorWise":
        wanted = [(1,), ()]
        fits = all(size == 1 for size in array.shape)
    elif recipe.name == "RowWise":
        wanted = [(rows, 1) if matrix.name == "a" else (1, rows)]
        fits = tuple(size for size in array.shape if size != 1) == ((rows,) if rows != 1 else ())
        array = _column(array, rows, depth) if fits else array
    elif recipe.name == "BlockWise128x128":
        # K comes first, and may be filled up to a multiple of four.
        wanted = [(depth, rows), (-(-depth // 4) * 4, rows)]
        fits = array.shape in wanted
        array = _transposed(array, rows, depth) if fits else array
    else:
        wanted = [(rows, depth)]
        fits = array.shape == wanted[0]
    if not fits:
        raise ValueError(
            f"[{op}] {what} has shape {array.shape}; expected {' or '.join(map(str, wanted))} for "
            f"{recipe.name} of mat_{matrix.name}, which is {matrix.rows} x {matrix.depth} "
            f"({'M' if matrix.name == 'a' else 'N'} x K)"
        )
    return _quantized(matrix, recipe, array, second, op)


def by_shape(matrix: Matrix, scale: Any, swizzle: Any, op: str) -> QuantizedTensor:
    """Codes with scales that lie as torch._scaled_mm wants them to: as the matrix, or swizzled."""
    what = f"scale_{matrix.name}"
    if swizzle is not None:
        raise ValueError(
            f"[{op}] got swizzle_{matrix.name} without scale_recipe_{matrix.name}; say the recipe"
        )
    if isinstance(scale, (list, tuple)):
        raise TypeError(
            f"[{op}] got a list for {what} without scale_recipe_{matrix.name}; say the recipes"
        )
    array = _scale_array(scale, matrix, op)
    for name in ("1x32", "1x16"):
        if array.kind == _SCALE_KINDS[_RECIPES[name].scale]:
            recipe = _RECIPES[name]
            return _quantized(matrix, recipe, _unswizzled(array, recipe, matrix, op), None, op)
    if array.kind != "float32":
        raise TypeError(
            f"[{op}] {what} is {kind_name(array.kind)}; expected float32, float8_e8m0fnu (1x32) or "
            "float8_e4m3fn (1x16)"
        )
    turn = matrix.name == "b"
    shapes = []
    for name in ("tensorwise", "rowwise", "128x128", "1x128"):
        recipe = _RECIPES[name]
        rows, depth = matrix.grid(recipe)
        shapes.append(((depth, rows) if turn else (rows, depth), recipe.name))
        if name == "tensorwise" and all(size == 1 for size in array.shape):
            return _quantized(matrix, recipe, array, None, op)
        if array.shape == shapes[-1][0]:
            grid = _transposed(array, rows, depth) if turn else array
            return _quantized(matrix, recipe, grid, None, op)
    listed = ", ".join(f"{shape} ({name})" for shape, name in shapes)
    raise ValueError(
        f"[{op}] {what} has shape {array.shape}; expected {listed} for mat_{matrix.name}"
    )


def _lists(
    scale: Any, recipe: Any, swizzle: Any, matrix: Matrix, op: str
) -> tuple[Recipe, Any, Any, str]:
    """A recipe, its scales, those of the second level or None, and their swizzle."""
    scales, recipes, swizzles = (
        list(given) if isinstance(given, (list, tuple)) else [given]
        for given in (scale, recipe, swizzle)
    )
    found = [_recipe(given, matrix.name, op) for given in recipes]
    orders = [_swizzle(given, matrix.name, op) for given in swizzles]
    if len(scales) != len(found):
        raise ValueError(
            f"[{op}] got {len(scales)} scales and {len(found)} recipes for mat_{matrix.name}; "
            "expected one recipe for each"
        )
    if not orders or not found:
        what = "swizzles" if not orders else "recipes"
        raise ValueError(f"[{op}] got no {what} for mat_{matrix.name}; expected one or None")
    names = [one.name for one in found]
    if len(found) != 1 and names != ["BlockWise1x16", "TensorWise"]:
        raise ValueError(
            f"[{op}] got recipes {names} for mat_{matrix.name}; two levels are only for "
            "[BlockWise1x16, TensorWise]"
        )
    return found[0], scales[0], scales[1] if len(scales) == 2 else None, orders[0]


def _recipe(given: Any, name: str, op: str) -> Recipe:
    text = getattr(given, "name", given)
    key = text.lower().removeprefix("blockwise") if isinstance(text, str) else ""
    if key not in _RECIPES:
        raise ValueError(
            f"[{op}] got scale_recipe_{name} = {text!r}; expected a ScalingType of torch or its "
            f"name: {', '.join(recipe.name for recipe in _RECIPES.values())}"
        )
    return _RECIPES[key]


def _swizzle(given: Any, name: str, op: str) -> str:
    text = "NO_SWIZZLE" if given is None else getattr(given, "name", given)
    if text not in _SWIZZLES:
        raise ValueError(
            f"[{op}] got swizzle_{name} = {text!r}; expected {' or '.join(_SWIZZLES)} "
            "(a SwizzleType of torch, or its name)"
        )
    return str(text)


def _scale_array(scale: Any, matrix: Matrix, op: str) -> Array:
    return describe(scale, f"{op}: scale_{matrix.name}")


def _transposed(array: Array, rows: int, depth: int) -> Array:
    """[K, rows] as [rows, K], without what K was filled up with."""
    return replace(array, shape=(rows, depth), strides=array.strides[::-1])


def _column(array: Array, rows: int, depth: int) -> Array:
    """A vector along either dimension as [rows, 1]; as [rows, 0] where K is 0."""
    pairs = zip(array.shape, array.strides, strict=True)
    step = next((stride for size, stride in pairs if size != 1), 4)
    return replace(array, shape=(rows, depth), strides=(step, step))


def _unswizzled(array: Array, recipe: Recipe, matrix: Matrix, op: str) -> Array:
    """Tiles of 128 x 4 as the grid they are of; bytes, so that no library's dtype is in the way."""
    what = f"scale_{matrix.name}"
    if recipe.scale == "f32":
        raise ValueError(
            f"[{op}] got swizzle_{matrix.name} = SWIZZLE_32_4_4 for {recipe.name}, whose scales "
            "are a grid; swizzled are those of BlockWise1x32 and BlockWise1x16"
        )
    rows, depth = matrix.grid(recipe)
    held, wanted = int(np.prod(array.shape)), -(-rows // 128) * 128 * (-(-depth // 4) * 4)
    if held != wanted:
        raise ValueError(
            f"[{op}] {what} has {held} elements; expected {wanted} for {recipe.name} of "
            f"mat_{matrix.name}: a grid of {rows} x {depth}, swizzled in tiles of 128 x 4 "
            '(octavo.to_layout(scales, "swizzled_128x4"))'
        )
    kind = _SCALE_KINDS[recipe.scale]
    if array.cuda >= 0:
        fix = "give a grid with NO_SWIZZLE and its recipe"
        torch_ops = torch_device(array, f"swizzled {what}", fix, op)
        done: Array = torch_ops.unswizzled(array, rows, depth)
        return replace(done, kind=kind)
    tensor = _borrow(array, kind, None, op)
    grid = _octavo.from_layout(tensor, "swizzled_128x4", [rows, depth])
    return replace(
        array,
        obj=grid,
        kind=kind,
        address=grid.address,
        shape=tuple(grid.shape),
        strides=tuple(grid.strides),
    )


def torch_device(array: Array, what: str, fix: str, op: str) -> ModuleType:
    """torch's own operations, for what octavo has no kernels for on a device."""
    if array.family.name != "torch tensor":
        raise RuntimeError(
            f"[{op}] {what} on cuda:{array.cuda} is for torch tensors only, got a "
            f"{array.family.name}; {fix}"
        )
    from octavo._arrays import torch_device as device_operations

    return device_operations


@functools.cache
def _scaling(format: Format, recipe: Recipe) -> Scaling:
    return Scaling(format=format, tile=recipe.tile, scale=recipe.scale)


def _quantized(
    matrix: Matrix, recipe: Recipe, grid: Array, second: Any, op: str
) -> QuantizedTensor:
    array, kind = matrix.array, _SCALE_KINDS[recipe.scale]
    what = f"{op}: scale_{matrix.name}"
    scales = _borrow(grid, kind, None, what, scalar=recipe.tile == (0, 0), transposed=True)
    level = None
    if recipe.name == "BlockWise1x16":
        one = _one(matrix, op) if second is None else describe(second, what)
        _kind_as(one, "float32", f"elements of the second scale_{matrix.name}", op)
        level = _borrow(one, "float32", None, what, scalar=True)
    codes = Tensor.borrow(array.view(matrix.format, array.cols), array.obj)
    handle = _octavo.QuantizedTensor.of(
        (matrix.rows, matrix.depth),
        _scaling(matrix.format, recipe),
        codes,
        scales,
        level,
        array.stream,
        validate=array.cuda < 0,  # validation on a device would synchronize
    )
    return QuantizedTensor(handle, array.family.for_results(array))


def _one(matrix: Matrix, op: str) -> Array:
    """The second level of scales that have one level."""
    array = matrix.array
    if array.cuda < 0:
        return describe(np.float32(1), op)
    what = f"BlockWise1x16 without a second scale_{matrix.name}"
    fix = "give two scales, with [BlockWise1x16, TensorWise]"
    made: Array = torch_device(array, what, fix, op).one(array.cuda)
    return made


def _tiles(size: int, tile: int) -> int:
    return min(size, 1) if tile == 0 else -(-size // tile)
