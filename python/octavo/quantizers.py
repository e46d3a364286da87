"""Transformer Engine's quantizers, one object per tensor, by its names and with its arithmetic; and
delayed scaling. NaN stays visible: FP8 has a code for it, and in FP4, which has none, it makes the
scale of its tile NaN, as Inf does there. In FP8 Inf saturates.

    >>> quantizer = octavo.quantizers.MXFP8Quantizer(columnwise=False)
    >>> q = quantizer(x)                    # the same as octavo.quantize(x, quantizer.scaling)
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from octavo import _octavo
from octavo._arguments import flags, function_or_none, real, returned_number
from octavo._arrays import Array, describe, describe_out
from octavo._delayed import reset_delayed, update_delayed
from octavo._dtypes import as_format
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, Counts, integer, value_type
from octavo._quantize import check_family, new_quantized, value_kind
from octavo._quantized import QuantizedTensor

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from octavo._typing import RunOptions

__all__ = [
    "Float8BlockQuantizer",
    "Float8CurrentScalingQuantizer",
    "Float8Quantizer",
    "MXFP8Quantizer",
    "NVFP4Quantizer",
    "Quantizer",
    "reset_delayed",
    "update_delayed",
]


# By the library's object, which lives as long as its quantizer does.
_known: weakref.WeakValueDictionary[int, Quantizer] = weakref.WeakValueDictionary()


def of_handle(handle: _octavo.Quantizer) -> Quantizer | None:
    """The Python quantizer of the library's object, if there is one."""
    known = _known.get(id(handle))
    return known if known is not None and known._handle is handle else None


class Quantizer:
    """Base class of all quantizers."""

    def __init__(self, handle: _octavo.Quantizer) -> None:
        self._handle = handle
        _known[id(handle)] = self

    @property
    def scaling(self) -> Scaling:
        """How it quantizes now."""
        return self._handle.scaling

    def set_usage(self, *, rowwise: bool | None = None, columnwise: bool | None = None) -> None:
        """Which copies (rowwise, columnwise) later calls make; arguments that are not given
        stay."""
        self._handle.set_usage(rowwise, columnwise)

    @overload
    def quantize(
        self,
        x: Any,
        *,
        out: QuantizedTensor | None = None,
        counts: Literal[False] = False,
        **run: Unpack[RunOptions],
    ) -> QuantizedTensor: ...
    @overload
    def quantize(
        self,
        x: Any,
        *,
        out: QuantizedTensor | None = None,
        counts: Literal[True],
        **run: Unpack[RunOptions],
    ) -> tuple[QuantizedTensor, Counts]: ...
    @overload
    def quantize(
        self,
        x: Any,
        *,
        out: QuantizedTensor | None = None,
        counts: bool,
        **run: Unpack[RunOptions],
    ) -> QuantizedTensor | tuple[QuantizedTensor, Counts]: ...
    def quantize(
        self,
        x: Any,
        *,
        out: QuantizedTensor | None = None,
        counts: bool = False,
        threads: int = 0,
        stream: Any = None,
    ) -> QuantizedTensor | tuple[QuantizedTensor, Counts]:
        """As octavo.quantize; out may be what an earlier call returned. Float8Quantizer records the
        amax."""
        op = type(self).__name__
        source = describe(x, op, stream=stream)
        kind = value_kind(source, op)
        if out is None:
            out = new_quantized(source, kind, self.scaling)
        else:
            check_family(out, source, op)
        found = self._handle.quantize_into(
            source.view(kind),
            out._handle,
            threads=integer(threads, "threads", MOST_THREADS, op),
            count=bool(counts),
            stream=source.stream,
        )
        self._wrote()
        return out if found is None else (out, Counts(*found))

    __call__ = quantize

    def _wrote(self) -> None:
        """After values were quantized: arrays of the caller's that changed."""

    def __copy__(self) -> Self:
        """Configured the same way and from then on by itself; arrays of the caller's are shared."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        Quantizer.__init__(made, self._handle.copy())
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """With arrays of its own, too."""
        made = copy.copy(self)
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:
        return f"<octavo.quantizers.{type(self).__name__}: {self.scaling}>"


class Float8Quantizer(Quantizer):
    """Delayed scaling. Values are multiplied by the one float32 in `inv_scale` (which others call
    "scale"), and the one in `amax` becomes the maximum of itself and their largest magnitude.

    Both are the caller's arrays, used without a copy, on the device of the values: `amax` is
    often an element of row 0 of the history that update_delayed turns into the next inv_scale.
    """

    def __init__(
        self,
        inv_scale: Any,
        amax: Any,
        *,
        format: Any = "e4m3fn",
        rowwise: bool = True,
        columnwise: bool = True,
    ) -> None:
        op = type(self).__name__
        flags(op, rowwise=rowwise, columnwise=columnwise)
        read = describe(inv_scale, op)
        self._amax: Array = describe_out(amax, read.family, op)
        self._inv_scale: Array = read  # both keep the memory alive
        scale_view, amax_view = (
            array.view(value_type(array.kind, op)) for array in (read, self._amax)
        )
        made = _octavo.Float8Quantizer(
            scale_view, amax_view, as_format(format, op), rowwise, columnwise
        )
        super().__init__(made)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = object.__new__(type(self))
        memo[id(self)] = made
        scaling = self.scaling
        Float8Quantizer.__init__(
            made,
            copy.deepcopy(self.inv_scale, memo),
            copy.deepcopy(self.amax, memo),
            format=scaling.format,
            rowwise=scaling.rowwise,
            columnwise=scaling.columnwise,
        )
        return made

    @property
    def inv_scale(self) -> Any:
        """The caller's array."""
        return self._inv_scale.obj

    @property
    def amax(self) -> Any:
        """The caller's array."""
        return self._amax.obj

    def _wrote(self) -> None:
        self._amax.family.wrote(self._amax)


class Float8CurrentScalingQuantizer(Quantizer):
    """One scale, from the tensor itself. reduce_amax, if given, turns this process's amax into that
    of all that share the tensor; min_amax: a smaller amax counts as this."""

    def __init__(
        self,
        *,
        format: Any = "e4m3fn",
        rowwise: bool = True,
        columnwise: bool = True,
        power_of_two: bool = False,
        min_amax: float = 0.0,
        reduce_amax: Callable[[float], float] | None = None,
    ) -> None:
        op = type(self).__name__
        flags(op, rowwise=rowwise, columnwise=columnwise, power_of_two=power_of_two)
        own = function_or_none(reduce_amax, "reduce_amax", op)
        super().__init__(
            _octavo.Float8CurrentScalingQuantizer(
                as_format(format, op),
                rowwise,
                columnwise,
                power_of_two,
                real(min_amax, "min_amax", op),
                None if own is None else lambda amax: returned_number(own(amax), "reduce_amax", op),
            )
        )


class Float8BlockQuantizer(Quantizer):
    """float32 scales of tiles of 1 x 128 (block_dims=1) or 128 x 128 (2)."""

    def __init__(
        self,
        *,
        format: Any = "e4m3fn",
        rowwise: bool = True,
        columnwise: bool = True,
        power_of_two: bool = True,
        min_amax: float = 0.0,
        block_dims: int = 2,
    ) -> None:
        op = type(self).__name__
        flags(op, rowwise=rowwise, columnwise=columnwise, power_of_two=power_of_two)
        super().__init__(
            _octavo.Float8BlockQuantizer(
                as_format(format, op),
                rowwise,
                columnwise,
                power_of_two,
                real(min_amax, "min_amax", op),
                integer(block_dims, "block_dims", 2, op),
            )
        )


class MXFP8Quantizer(Quantizer):
    """e8m0 scales of tiles of 1 x 32, or of 32 x 32 (two_dimensional)."""

    def __init__(
        self,
        *,
        format: Any = "e4m3fn",
        rowwise: bool = True,
        columnwise: bool = True,
        two_dimensional: bool = False,
    ) -> None:
        op = type(self).__name__
        flags(op, rowwise=rowwise, columnwise=columnwise, two_dimensional=two_dimensional)
        element = as_format(format, op)
        super().__init__(_octavo.MXFP8Quantizer(element, rowwise, columnwise, two_dimensional))


class NVFP4Quantizer(Quantizer):
    """e4m3 scales of tiles of 1 x 16, or of 16 x 16 (two_dimensional), and one float32. with_rht:
    the columnwise copy is Hadamard-transformed and rounded to bfloat16, and its amaxes are of that;
    rht_signs are Transformer Engine's if not given."""

    _handle: _octavo.NVFP4Quantizer

    def __init__(
        self,
        *,
        rowwise: bool = True,
        columnwise: bool = True,
        with_rht: bool = False,
        rht_signs: int | None = None,
        two_dimensional: bool = False,
        stochastic_rounding: bool = False,
        seed: int = 0,
    ) -> None:
        op = type(self).__name__
        flags(op, rowwise=rowwise, columnwise=columnwise, with_rht=with_rht)
        flags(op, two_dimensional=two_dimensional, stochastic_rounding=stochastic_rounding)
        seed = integer(seed, "seed", 2**64 - 1, op)
        signs = _octavo.te_hadamard_signs()
        if rht_signs is not None:
            signs = integer(rht_signs, "rht_signs", 2**16 - 1, op)
        super().__init__(
            _octavo.NVFP4Quantizer(
                rowwise, columnwise, with_rht, signs, two_dimensional, stochastic_rounding, seed
            )
        )

    def set_seed(self, seed: int) -> None:
        """A seed always gives the same draws: training takes a new one for each step and tensor."""
        if self.scaling.rounding != "stochastic":
            raise ValueError(
                "[NVFP4Quantizer] got a seed, which is for stochastic rounding; "
                "say stochastic_rounding=True"
            )
        self._handle.set_seed(integer(seed, "seed", 2**64 - 1, "NVFP4Quantizer"))
