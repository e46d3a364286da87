"""A quantized tensor as torch knows tensors: it has a shape, a dtype and gradients, and holds codes
and scales. Operations that are not handled here see its dequantized values; one that writes
quantizes them again."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_map

import octavo
from octavo import _octavo
from octavo._arrays.torch_arrays import note_change
from octavo._arrays.torch_tracing import refuse_tracing
from octavo._dtypes import torch_dtype
from octavo._quantized import _PARTS as PARTS
from octavo.recipe import Recipe
from octavo.torch._codes import (
    as_bytes,
    as_scales,
    moved_codes,
    parts_of,
    with_both,
    with_dtype,
    with_handle,
)
from octavo.torch._dtype import DType, dtype_of
from octavo.torch._values_view import as_views, makes_views, plain_values, refuse_writes, written

_aten = torch.ops.aten


class Requantizer(Protocol):
    """Quantizes new values of a tensor: a quantizer, or the layer whose weight it is."""

    @property
    def quantizer(self) -> Any: ...

    def codes_of(self, values: torch.Tensor) -> octavo.QuantizedTensor: ...


class _Content:
    """What a tensor and its aliases share. Codes are never written in place, only replaced: a
    backward to come may hold those there were."""

    def __init__(
        self,
        codes: octavo.QuantizedTensor,
        requantizer: Requantizer | None,
        recipe: Recipe | None = None,
        values: torch.Tensor | None = None,
    ) -> None:
        self.codes, self.requantizer = codes, requantizer
        self.recipe, self.first_values = recipe, values

    def copied(self) -> _Content:
        """For an independent tensor. The requantizer of a layer's weight uses the layer's state."""
        made = copy.copy(self)
        requantizer = self.requantizer
        if requantizer is not None and hasattr(requantizer, "copied"):
            made.requantizer = requantizer.copied()
        return made

    @property
    def made_with(self) -> _octavo.Recipe | None:
        """The library's recipe that a weight was made for."""
        return None if self.recipe is None else self.recipe._native()


class QuantizedTensor(torch.Tensor):
    """Base class of quantized tensors. Made by a quantizer, or by a layer inside
    quantized_model_init."""

    _content: _Content

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # torch's own idiom

    @staticmethod
    def __new__(cls: Any, content: _Content, requires_grad: bool = False) -> Any:
        codes = content.codes
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            codes.shape,
            dtype=torch_dtype(codes._handle.source),
            device=torch.device(codes.device),
            requires_grad=requires_grad,
        )
        self._content = content
        return self

    def __init__(self, content: _Content, requires_grad: bool = False) -> None:
        super().__init__()

    @property
    def data(self) -> QuantizedTensor:
        """The same codes without gradients. New values that are assigned are quantized; they are
        copied, not shared."""
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]  # a C descriptor

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        if not isinstance(values, torch.Tensor) or values.shape != self.shape:
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ValueError(
                f"[{type(self).__name__}] got {got} for .data; expected a tensor of shape "
                f"{tuple(self.shape)}; a weight of another shape needs a layer of its own"
            )
        self.quantize_(values)

    @property
    def quantized(self) -> octavo.QuantizedTensor:
        """The codes and scales, as octavo.quantize gives them."""
        return self._content.codes

    def _replace_codes(self, codes: octavo.QuantizedTensor) -> None:
        """Other values, also for aliases. A graph that saved this tensor notices."""
        self._content.codes = codes
        note_change(self)

    @property
    def nbytes(self) -> int:  # type: ignore[override]  # torch: an attribute
        """Of codes and scales, all copies together."""
        return self._content.codes.nbytes

    def dequantize(self, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The values; gradients flow through."""
        return _aten._to_copy.default(self, dtype=dtype or self.dtype)

    def quantize_(self, values: torch.Tensor) -> QuantizedTensor:
        """New values, quantized as the ones there are."""
        with torch.no_grad():
            self.copy_(values)
        return self

    def update_usage(
        self, rowwise_usage: bool | None = None, columnwise_usage: bool | None = None
    ) -> None:
        """Which copies are kept. A missing copy is made by transposing the other where that is
        exact: a tile is square, or the whole tensor."""
        there = tuple(self.get_usages().values())
        wanted = [
            has if usage is None else bool(usage)
            for has, usage in zip(there, (rowwise_usage, columnwise_usage), strict=True)
        ]
        if not any(wanted):
            raise ValueError(f"[{type(self).__name__}] one copy must remain")
        for has, want, name in zip(there, wanted, ("rowwise", "columnwise"), strict=True):
            if want and not has:
                both = with_both(self._content.codes)
                if both is None:
                    raise RuntimeError(
                        f"[{type(self).__name__}] there is no {name} copy, and with these tiles "
                        "it is not the transpose of the other one; quantize the values again with "
                        "a quantizer that makes both"
                    )
                self._content.codes, there = both, (True, True)
        if tuple(wanted) != there:
            codes = self._content.codes
            self._content.codes = with_handle(codes, codes._handle.with_usage(*wanted))

    def get_usages(self) -> dict[str, bool]:
        """Which copies there are, by "rowwise" and "columnwise"."""
        handle = self._content.codes._handle
        return {
            "rowwise": handle.codes is not None,
            "columnwise": handle.columnwise_codes is not None,
        }

    @property
    def _quantizer(self) -> Any:
        """The quantizer of new values: a te.Quantizer, or None after a pickle."""
        requantizer = self._content.requantizer
        return None if requantizer is None else requantizer.quantizer

    @property
    def _recipe_type(self) -> type[Recipe] | None:
        """The class of the recipe that a layer's weight was made for; None of other tensors."""
        recipe = self._content.recipe
        return None if recipe is None else type(recipe)

    @property
    def _fp8_dtype(self) -> DType:
        return dtype_of(self._content.codes.scaling.format)

    def get_high_precision_init_val(self) -> torch.Tensor | None:
        """What a weight was made from, where quantized_model_init was told to keep it."""
        return self._content.first_values

    def clear_high_precision_init_val(self) -> None:
        """Frees it."""
        self._content.first_values = None

    @property
    def _rowwise_data(self) -> torch.Tensor | None:
        return as_bytes(self._content.codes.codes)

    @property
    def _rowwise_scale_inv(self) -> torch.Tensor | None:
        return as_scales(self._content.codes.scales)

    @property
    def _columnwise_data(self) -> torch.Tensor | None:
        return as_bytes(self._content.codes.columnwise_codes)

    @property
    def _columnwise_scale_inv(self) -> torch.Tensor | None:
        return as_scales(self._content.codes.columnwise_scales)

    def __getattr__(self, name: str) -> torch.Tensor:
        """Parts of a saved weight, by the names that state_dict has: weight.codes and so on."""
        if name in PARTS:
            found = parts_of(self._content.codes).get(name)
            if found is not None:
                return found
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    # Torch would hand out, or fill, the memory of values that is not there.

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        raise self._no_memory("__dlpack__")

    def __dlpack_device__(self) -> Any:
        raise self._no_memory("__dlpack__")

    def share_memory_(self) -> Any:
        raise self._no_memory("share_memory_")

    def apply_(self, function: Any) -> Any:
        raise self._no_memory("apply_")

    def map_(self, *args: Any) -> Any:
        raise self._no_memory("map_")

    def _no_memory(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"[{type(self).__name__}] {what} wants the memory of values, and this tensor holds "
            "codes; use dequantize()"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # mypy drops names
        return f"{type(self).__name__}({self._content.codes!r})"

    def _repr_html_(self) -> str:
        return self._content.codes._repr_html_()

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedTensor:
        made = type(self)(self._content.copied(), self.requires_grad)
        _keep_parameter(self, made)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        content = self._content
        kept = (content.codes, content.recipe, content.first_values)
        return _restored, (type(self), kept, self.requires_grad, is_parameter(self))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch passes cls
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        refuse_tracing(cls.__name__)
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, QuantizedTensor):
            if func in (_aten.detach.default, _aten.alias.default):
                return type(first)(first._content)
            if func is _aten.clone.default:
                return type(first)(first._content.copied())
            if func is _aten._to_copy.default and _only_moves(first, kwargs):
                device = torch.device(kwargs["device"])
                return type(first)(converted_content(first, device, first.dtype))
            if func is _aten.copy_.default:
                _write(first, args[1])
                return first
        return _with_values(func, args, kwargs)


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is what a module lists."""
    return bool(getattr(tensor, "_is_param", False))


def _keep_parameter(of: torch.Tensor, to: torch.Tensor) -> None:
    if is_parameter(of):
        to._is_param = True


def _restored(cls: Any, kept: Any, requires_grad: bool, parameter: bool) -> QuantizedTensor:
    """From a pickle, without a quantizer: a layer gives its own."""
    codes, recipe, values = kept
    made: QuantizedTensor = cls(_Content(codes, None, recipe, values), requires_grad)
    if parameter:
        made._is_param = True
    return made


def _values(x: Any) -> Any:
    """What every other operation sees."""
    return octavo.dequantize(x.quantized, x.dtype) if isinstance(x, QuantizedTensor) else x


def _with_values(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs func on values. What it writes to, also in lists or by keyword, is quantized again."""
    refuse_writes(func, args, kwargs)
    targets = [x for x in written(func, args, kwargs) if isinstance(x, QuantizedTensor)]
    for to in targets:
        _refuse_reshaping(func, to)
        _requantizer_of(to)
    # Aliases share their values, so that they are one tensor for func as well.
    values: dict[int, torch.Tensor] = {}

    def read(x: Any) -> Any:
        if isinstance(x, QuantizedTensor):
            if id(x._content) not in values:
                values[id(x._content)] = _values(x)
            return values[id(x._content)]
        return plain_values(x)

    plain = tree_map(read, (args, kwargs))
    result = func(*plain[0], **plain[1])
    for to in targets:
        _write(to, values[id(to._content)])
    if targets:
        own = {id(values[id(to._content)]): to for to in targets}
        return tree_map(lambda x: own.get(id(x), x), result)
    return as_views(result) if makes_views(func) else result


def _refuse_reshaping(func: Any, to: QuantizedTensor) -> None:
    """Raises where func (t_, transpose_, as_strided_, resize_) changes how its tensor lies: that
    would write values of another order to all that shares the codes."""
    if torch.Tag.inplace_view in func.tags or func is _aten.as_strided_.default:
        name = func._schema.name.removeprefix("aten::")
        raise RuntimeError(
            f"[{type(to).__name__}] {name} changes the shape or the strides of a tensor in place, "
            f"and codes lie as they were made; use {name.removesuffix('_')}, which gives values"
        )


def _requantizer_of(to: QuantizedTensor) -> Requantizer:
    if to._content.requantizer is None:
        raise RuntimeError(
            f"[{type(to).__name__}] has no quantizer for new values; make it with a quantizer"
        )
    return to._content.requantizer


def _write(to: QuantizedTensor, source: torch.Tensor) -> None:
    if isinstance(source, QuantizedTensor) and _has_content_for(source, to):
        to._content.codes = source.quantized
        return
    requantizer = _requantizer_of(to)
    values = plain_values(_values(source)).to(device=to.device, dtype=to.dtype)
    if values.shape != to.shape:
        try:
            values = values.expand(to.shape)
        except RuntimeError:
            raise ValueError(
                f"[{type(to).__name__}] got values of shape {tuple(source.shape)}; expected "
                f"{tuple(to.shape)} or a shape that broadcasts to it"
            ) from None
    # A quantizer's usage may have changed since; the weight of a layer always has both copies.
    keeping = getattr(requantizer, "_with_copies_of", None)
    to._content.codes = (requantizer if keeping is None else keeping(to)).codes_of(values)


def _has_content_for(source: QuantizedTensor, to: QuantizedTensor) -> bool:
    """Whether its codes can be taken over as they are."""
    got, want = source.quantized, to.quantized
    return (
        type(source) is type(to)
        and (got.scaling, got._handle.source) == (want.scaling, want._handle.source)
        and (source.shape, source.device) == (to.shape, to.device)
    )


def _only_moves(tensor: QuantizedTensor, kwargs: dict[str, Any]) -> bool:
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    if device is None or dtype not in (None, tensor.dtype):
        return False
    return torch.device(device) != tensor.device


def converted_content(
    tensor: QuantizedTensor, device: torch.device, dtype: torch.dtype
) -> _Content:
    """The same codes on another device, for values of another type: none of them changes."""
    content = copy.copy(tensor._content)
    if device != tensor.device:
        content.codes = moved_codes(content.codes, device)
    if dtype != tensor.dtype:
        content.codes = with_dtype(content.codes, dtype)
    return content
