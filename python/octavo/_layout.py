"""Scale layouts of other kernels: swizzled, transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, overload

from octavo import _octavo
from octavo._arguments import wrong_type
from octavo._arrays import Array, describe
from octavo._dtypes import VALUES, Kind, kind_name
from octavo._octavo import Format, Tensor
from octavo._operation import integer

if TYPE_CHECKING:
    from octavo._typing import ArrayT

# Plain bytes are moved like any scale of one byte.
_BYTE: Final = Format("e8m0fnu")
_MOST: Final = 2**31 - 1


@overload
def to_layout(scales: ArrayT, layout: str, *, pad: int = 0) -> ArrayT: ...
@overload
def to_layout(scales: Any, layout: str, *, pad: int = 0) -> Any: ...
def to_layout(scales: Any, layout: str, *, pad: int = 0) -> Any:
    """A grid of scales, as quantize makes it, in another order; a stack of grids one by one.

    scales: [..., R, C], of any strides: of float32, bfloat16 or float16, a float8 dtype or uint8.
    layout: "swizzled_128x4" (tiles of 128 x 4 stored as 32 x 16, for Blackwell's tensor cores;
        scales of one byte), "transposed" ([..., C, R]) or "row_major".
    pad: the dimension that is contiguous in the result is filled up with zeros to a multiple of
        this many; 0 is the layout's own choice: 4 for transposed, 1 for row-major.
    """
    op = "to_layout"
    _check_layout(layout, op)
    array, kind, raw = _scales(scales, op)
    tensor = Tensor.borrow(array.view(kind), array.obj)
    made = _octavo.to_layout(tensor, layout, integer(pad, "pad", _MOST, op))
    return array.family.for_results(array).take(made, raw)


@overload
def from_layout(scales: ArrayT, layout: str, grid: Sequence[int]) -> ArrayT: ...
@overload
def from_layout(scales: Any, layout: str, grid: Sequence[int]) -> Any: ...
def from_layout(scales: Any, layout: str, grid: Sequence[int]) -> Any:
    """Scales in another order as the row-major grid that they were, of this shape: the inverse of
    to_layout. Swizzled ones may have any shape of the right size."""
    op = "from_layout"
    _check_layout(layout, op)
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        raise wrong_type(op, "grid", grid, "the shape of the grid of scales, such as (256, 16)")
    array, kind, raw = _scales(scales, op)
    shape = [integer(size, "a size", 2**60, op) for size in grid]
    made = _octavo.from_layout(Tensor.borrow(array.view(kind), array.obj), layout, shape)
    return array.family.for_results(array).take(made, raw)


def _check_layout(layout: Any, op: str) -> None:
    """The order of arguments is that of both functions: scales, layout, and then the rest."""
    if not isinstance(layout, str):
        raise wrong_type(op, "layout", layout, "its name: row_major, swizzled_128x4 or transposed")


def _scales(scales: Any, op: str) -> tuple[Array, Kind, bool]:
    array = describe(scales, op, codes=True)
    if array.kind in ("uint8", "int8"):
        return array, _BYTE, True
    if array.cols is None and (isinstance(array.kind, Format) or array.kind in VALUES):
        return array, array.kind, False
    raise TypeError(
        f"[{op}] got scales of dtype {kind_name(array.kind)}; expected float32, bfloat16, float16, "
        "a float8 dtype or uint8"
    )
