"""Quantized tensors as torch knows tensors: they have a shape, a dtype and gradients, and hold
codes and scales. Every operation that is not named here sees their values; one that writes
quantizes them again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

import octavo
from octavo import _octavo
from octavo._arrays_torch import TORCH
from octavo._dtypes import torch_dtype
from octavo._quantized import _PARTS
from octavo.recipe import Recipe
from octavo.torch._values_view import as_views, makes_views, plain_values, refuse_writes, written

__all__ = [
    "Float8BlockwiseQTensor",
    "Float8Tensor",
    "MXFP8Tensor",
    "NVFP4Tensor",
    "QuantizedTensor",
]

_aten = torch.ops.aten


class _Content:
    """What a tensor and its aliases share. Codes are never written in place, only replaced: a
    backward to come may hold those there were."""

    def __init__(
        self,
        codes: octavo.QuantizedTensor,
        requantize: Callable[[torch.Tensor], octavo.QuantizedTensor] | None,
        recipe: Recipe | None = None,
        values: torch.Tensor | None = None,
    ) -> None:
        self.codes, self.requantize = codes, requantize
        self.recipe, self.first_values = recipe, values

    @property
    def made_with(self) -> _octavo.Recipe | None:
        """The library's recipe that a weight was made for."""
        return None if self.recipe is None else self.recipe._native()


class QuantizedTensor(torch.Tensor):
    """What all of them do. Made by a quantizer, or by a layer inside quantized_model_init."""

    _content: _Content

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: Any, content: _Content, requires_grad: bool = False) -> Any:
        codes = content.codes
        self = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            codes.shape,
            dtype=torch_dtype(codes._handle.source),
            device=codes.device,
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
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        if not isinstance(values, torch.Tensor) or values.shape != self.shape:
            got = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise ValueError(
                f"[{type(self).__name__}] got {got} for .data, wanted a tensor of shape "
                f"{tuple(self.shape)}; a weight of another shape needs a layer of its own"
            )
        self.quantize_(values)

    @property
    def quantized(self) -> octavo.QuantizedTensor:
        """The codes and scales, as octavo.quantize gives them."""
        return self._content.codes

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Of codes and scales, all copies together."""
        return self._content.codes.nbytes

    def dequantize(self, *, dtype: torch.dtype | None = None) -> torch.Tensor:  # type: ignore[override]
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
        """Which copies are kept. One that is not there is made of the other where that is a
        matter of turning it: a tile is as high as it is wide, or the whole tensor."""
        handle = self._content.codes._handle
        there = (handle.codes is not None, handle.columnwise_codes is not None)
        wanted = [
            has if usage is None else bool(usage)
            for has, usage in zip(there, (rowwise_usage, columnwise_usage), strict=True)
        ]
        if not any(wanted):
            raise ValueError(f"[{type(self).__name__}] one copy must remain")
        for has, want, name in zip(there, wanted, ("rowwise", "columnwise"), strict=True):
            if want and not has:
                both = _with_both(self._content.codes)
                if both is None:
                    raise RuntimeError(
                        f"[{type(self).__name__}] there is no {name} copy, and with these tiles "
                        "it is not the other one turned; quantize the values again with a "
                        "quantizer that makes both"
                    )
                self._content.codes, there = both, (True, True)
        if tuple(wanted) != there:
            codes = self._content.codes
            self._content.codes = _with_handle(codes, codes._handle.with_usage(*wanted))

    def get_high_precision_init_val(self) -> torch.Tensor | None:
        """What a weight was made from, where quantized_model_init was told to keep it."""
        return self._content.first_values

    def clear_high_precision_init_val(self) -> None:
        """Lets it go."""
        self._content.first_values = None

    @property
    def _rowwise_data(self) -> torch.Tensor | None:
        return _bytes(self._content.codes.codes)

    @property
    def _rowwise_scale_inv(self) -> torch.Tensor | None:
        return _scales(self._content.codes.scales)

    @property
    def _columnwise_data(self) -> torch.Tensor | None:
        return _bytes(self._content.codes.columnwise_codes)

    @property
    def _columnwise_scale_inv(self) -> torch.Tensor | None:
        return _scales(self._content.codes.columnwise_scales)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"{type(self).__name__}({self._content.codes!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedTensor:
        made = type(self)(copy.copy(self._content), self.requires_grad)
        _keep_parameter(self, made)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        content = self._content
        kept = (content.codes, content.recipe, content.first_values)
        return _restored, (type(self), kept, self.requires_grad, is_parameter(self))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, QuantizedTensor):
            if func in (_aten.detach.default, _aten.alias.default):
                return type(first)(first._content)
            if func is _aten.clone.default:
                return type(first)(copy.copy(first._content))
            if func is _aten._to_copy.default and _only_moves(first, kwargs):
                return type(first)(moved_content(first, torch.device(kwargs["device"])))
            if func is _aten.copy_.default:
                _write(first, args[1])
                return first
        return _with_values(func, args, kwargs)


class Float8Tensor(QuantizedTensor):
    """One scale."""

    @property
    def _data(self) -> torch.Tensor | None:
        return self._rowwise_data

    @property
    def _transpose(self) -> torch.Tensor | None:
        return self._columnwise_data

    @property
    def _scale_inv(self) -> torch.Tensor:
        codes = self._content.codes
        return (codes.scales if codes.scales is not None else codes.columnwise_scales).reshape(1)


class Float8BlockwiseQTensor(QuantizedTensor):
    """float32 scales of tiles of 128."""


class MXFP8Tensor(QuantizedTensor):
    """e8m0 scales of tiles of 32. As in Transformer Engine, columnwise fields have the order of the
    tensor, not of its transpose."""

    @property
    def _columnwise_data(self) -> torch.Tensor | None:
        data = super()._columnwise_data
        return None if data is None else data.t().reshape(self.shape)

    @property
    def _columnwise_scale_inv(self) -> torch.Tensor | None:
        scales = super()._columnwise_scale_inv
        return None if scales is None else scales.t()


class NVFP4Tensor(QuantizedTensor):
    """e4m3 scales of tiles of 16, and one float32."""


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether it is what a module lists."""
    return bool(getattr(tensor, "_is_param", False))


def _keep_parameter(of: torch.Tensor, to: torch.Tensor) -> None:
    if is_parameter(of):
        to._is_param = True  # type: ignore[attr-defined]


def _restored(cls: Any, kept: Any, requires_grad: bool, parameter: bool) -> QuantizedTensor:
    """From a pickle, without a quantizer: a layer gives its own."""
    codes, recipe, values = kept
    made: QuantizedTensor = cls(_Content(codes, None, recipe, values), requires_grad)
    if parameter:
        made._is_param = True  # type: ignore[attr-defined]
    return made


def _values(x: Any) -> Any:
    """What every other operation sees."""
    return octavo.dequantize(x.quantized, x.dtype) if isinstance(x, QuantizedTensor) else x


def _with_values(func: Any, args: Any, kwargs: Any) -> Any:
    """Runs func on values. What it writes to, also in lists or by keyword, is quantized again."""
    refuse_writes(func, args, kwargs)
    targets = [x for x in written(func, args, kwargs) if isinstance(x, QuantizedTensor)]
    for to in targets:
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


def _requantizer_of(to: QuantizedTensor) -> Callable[[torch.Tensor], octavo.QuantizedTensor]:
    if to._content.requantize is None:
        raise RuntimeError(
            f"[{type(to).__name__}] has no quantizer for new values; make it with a quantizer"
        )
    return to._content.requantize


def _write(to: QuantizedTensor, source: torch.Tensor) -> None:
    if isinstance(source, QuantizedTensor) and _has_content_for(source, to):
        to._content.codes = source.quantized
        return
    requantize = _requantizer_of(to)
    values = plain_values(_values(source)).to(device=to.device, dtype=to.dtype)
    if values.shape != to.shape:
        try:
            values = values.expand(to.shape)
        except RuntimeError:
            raise ValueError(
                f"[{type(to).__name__}] got values of shape {tuple(source.shape)}, wanted "
                f"{tuple(to.shape)} or a shape that broadcasts to it"
            ) from None
    to._content.codes = requantize(values)


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


def moved_content(tensor: QuantizedTensor, device: torch.device) -> _Content:
    """The same codes and scales on another device."""
    content = copy.copy(tensor._content)
    content.codes = empty_like(tensor.quantized, device)
    for to, source in zip(
        parts_of(content.codes).values(), parts_of(tensor.quantized).values(), strict=True
    ):
        to.copy_(source)
    return content


def empty_like(codes: octavo.QuantizedTensor, device: torch.device) -> octavo.QuantizedTensor:
    """Memory for a quantization of the same kind."""
    return _empty(codes, codes.scaling, device)


def _empty(
    codes: octavo.QuantizedTensor, scaling: octavo.Scaling, device: torch.device
) -> octavo.QuantizedTensor:
    if device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"[quantized] codes cannot be on {device}, wanted the CPU or CUDA")
    old, cuda = codes._handle, -1
    if device.type == "cuda":
        cuda = torch.cuda.current_device() if device.index is None else device.index
    handle = _octavo.QuantizedTensor.empty(
        old.shape, old.source, scaling, TORCH.allocator(cuda), cuda
    )
    return octavo.QuantizedTensor(handle, TORCH, TORCH.stream(cuda))


def parts_of(codes: octavo.QuantizedTensor) -> dict[str, torch.Tensor]:
    """Codes as bytes and scales, by their names in octavo.QuantizedTensor: all that there are."""
    found = {part: getattr(codes._handle, part) for part in _PARTS}
    return {
        part: TORCH.take(tensor, raw=True) for part, tensor in found.items() if tensor is not None
    }


def _with_both(codes: octavo.QuantizedTensor) -> octavo.QuantizedTensor | None:
    """With the copy that is not there, made by turning the other; None where it is not that."""
    rows, cols = codes.tile
    scaling = codes.scaling
    turns = rows == cols and (rows == 0 or codes.ndim == 2) and codes.ndim >= 2
    if not turns or codes.tensor_scale is not None or scaling.hadamard != "none":
        return None
    made = _empty(
        codes, scaling.replace(rowwise=True, columnwise=True), torch.device(codes.device)
    )
    to, there = parts_of(made), parts_of(codes)
    for part, other in (("codes", "columnwise_codes"), ("scales", "columnwise_scales")):
        if part in there:
            to[part].copy_(there[part])
            to[other].copy_(_turned(there[part]).reshape(to[other].shape))
        else:
            to[other].copy_(there[other])
            to[part].copy_(_turned(there[other]).reshape(to[part].shape))
    return made


def _turned(part: torch.Tensor) -> torch.Tensor:
    return part if part.dim() < 2 else part.reshape(-1, part.shape[-1]).t()


def _with_handle(
    codes: octavo.QuantizedTensor, handle: _octavo.QuantizedTensor
) -> octavo.QuantizedTensor:
    return octavo.QuantizedTensor(handle, codes._family, codes._stream)


def _bytes(codes: torch.Tensor | None) -> torch.Tensor | None:
    return None if codes is None else codes.view(torch.uint8)


def _scales(scales: torch.Tensor | None) -> torch.Tensor | None:
    """float32 as they are, codes as bytes."""
    return scales if scales is None or scales.dtype == torch.float32 else scales.view(torch.uint8)
