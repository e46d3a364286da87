"""y = x w^T + b under a recipe: octavo's Linear with torch's parameters and autograd."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

import octavo
from octavo import _octavo
from octavo._arrays_torch import TORCH
from octavo._quantize import value_kind
from octavo.torch._saving import PARTS, load_weight, weight_parts
from octavo.torch._scopes import init_recipe
from octavo.torch._state import KEYS, STATE_NAMES, ModuleState, shared
from octavo.torch.quantizers import Quantizer, class_of
from octavo.torch.tensors import QuantizedTensor, _Content, moved_content

__all__ = ["Linear"]

_OP = "Linear"
_VALUES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class _LinearFunction(torch.autograd.Function):
    """One forward and one backward of the library's."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        state: ModuleState,
        is_first_microbatch: bool | None,
        trains: bool,
    ) -> torch.Tensor:
        needs = ctx.needs_input_grad[:3] if trains else (False, False, False)
        is_codes = isinstance(weight, QuantizedTensor)
        y, saved = _forward(
            x, weight, bias, state, needs, trains, is_first_microbatch, state.cache
        )
        # What lies in a saved tensor goes when torch lets that go: after a backward, unless the
        # graph is retained. Hooks put other tensors in its place.
        token, hooked = x.new_empty(0), _saved_tensors_are_hooked()
        ctx.forward_arguments, ctx.again = None, None
        if saved.keeps_values:
            # Codes are only ever replaced: an alias with content of its own keeps these.
            codes = type(weight)(copy.copy(weight._content)) if is_codes else None
            ctx.forward_arguments = (codes, bias, state, needs)
            ctx.pointers = None if hooked else _pointers(x, weight)
            ctx.save_for_backward(token, x, *(() if is_codes else (weight,)))
        else:
            # With nothing of torch's saved, torch would not see that a graph is used twice.
            ctx.again = saved if hooked else None
            ctx.save_for_backward(token)
        if not hooked:
            token._octavo_saved = saved  # type: ignore[attr-defined]
        result: torch.Tensor = TORCH.take(y)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        token, *values = ctx.saved_tensors  # raises where they are gone or changed
        saved = ctx.again or getattr(token, "_octavo_saved", None)
        if ctx.forward_arguments is not None:
            codes, *others = ctx.forward_arguments
            x, weight = values[0], values[1] if codes is None else codes
            if saved is None or ctx.pointers != _pointers(x, weight):
                saved = _saved_of(x, weight, *others)
        elif saved is None:
            raise RuntimeError(
                f"[{_OP}] a hook put another tensor in the place of what forward saved; have hooks "
                "there before forward, with torch.autograd.graph.saved_tensors_hooks"
            )
        found = _octavo.linear_backward(shared(dy.contiguous(), _OP), saved)
        gradients = [None if gradient is None else TORCH.take(gradient) for gradient in found]
        return (*gradients, None, None, None)


def _saved_tensors_are_hooked() -> bool:
    """True also where torch does not say: that is right for both, and keeps or does more."""
    try:
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    except (AttributeError, TypeError):
        return True


def _pointers(x: torch.Tensor, weight: torch.Tensor) -> tuple[int, ...]:
    is_codes = isinstance(weight, QuantizedTensor)
    return (x.data_ptr(),) if is_codes else (x.data_ptr(), weight.data_ptr())


def _saved_of(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: ModuleState,
    needs: tuple[bool, bool, bool],
) -> _octavo.LinearSaved:
    """What a forward of values keeps, of values that lie elsewhere by now: packed and unpacked by
    hooks, or in a storage that was let go in between. A backward of values does not depend on the
    recipe, so there is none here."""
    for tensor in (x, weight):
        if not isinstance(tensor, QuantizedTensor) and tensor.numel() and not tensor.data_ptr():
            raise RuntimeError(
                f"[{_OP}] backward needs a tensor of shape {tuple(tensor.shape)} whose storage "
                "was resized to nothing since forward; give it its values again before"
            )
    if isinstance(weight, QuantizedTensor):
        weight = octavo.dequantize(weight.quantized, weight.dtype)
    enabled, calibrating, recipe = _octavo.current_autocast()
    inner = _octavo.Autocast(recipe, False, False, None) if enabled or calibrating else None
    try:
        return _forward(x, weight, bias, state, needs, True, None, _octavo.WeightCache())[1]
    finally:
        if inner is not None:
            inner.leave(False)


def _forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    state: ModuleState,
    needs: tuple[bool, bool, bool],
    training: bool,
    is_first_microbatch: bool | None,
    cache: _octavo.WeightCache,
) -> tuple[_octavo.Tensor, _octavo.LinearSaved]:
    source = TORCH.describe(x, _OP)
    is_codes = isinstance(weight, QuantizedTensor)
    return _octavo.linear_forward(
        _octavo.Tensor.borrow(source.view(value_kind(source, _OP)), x),
        weight.quantized._handle if is_codes else shared(weight, _OP),
        weight._content.made_with if is_codes else None,
        None if bias is None else shared(bias, _OP),
        needs=(needs[0], needs[1], needs[2] and bias is not None),
        training=training,
        is_first_microbatch=is_first_microbatch,
        quantizers=state.handle,
        cache=cache,
        allocate=TORCH.allocator(source.cuda),
        stream=source.stream,
    )


class Linear(torch.nn.Module):
    """A linear layer that multiplies as the recipe of te.autocast says; outside of one it
    multiplies values. Inside te.quantized_model_init its weight is codes.

    init_method: fills the weight; the default draws from a normal distribution of deviation 0.023.
    return_bias: forward leaves the bias out and returns (y, bias).
    params_dtype: of weight and bias; torch's default dtype if not given.
    device: a CUDA device where octavo and torch have one, else the CPU, if not given.
    name: in messages, and mixed into the draws of stochastic rounding.

    Arguments for several devices are refused where they ask for anything.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        sequence_parallel: bool = False,
        fuse_wgrad_accumulation: bool = False,
        tp_group: Any = None,
        tp_size: int = 1,
        get_rng_state_tracker: Callable[..., Any] | None = None,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        parameters_split: Any = None,
        device: torch.device | str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        _refuse(
            sequence_parallel=sequence_parallel,
            fuse_wgrad_accumulation=fuse_wgrad_accumulation,
            tp_group=tp_group,
            tp_size=tp_size != 1,
            get_rng_state_tracker=get_rng_state_tracker,
            parallel_mode=parallel_mode,
            parameters_split=parameters_split,
        )
        for count in (in_features, out_features):
            if not isinstance(count, int) or isinstance(count, bool):
                raise TypeError(
                    f"[{_OP}] got features of type {type(count).__name__}, wanted integers"
                )
        if min(in_features, out_features) < 1:
            raise ValueError(
                f"[{_OP}] got in_features = {in_features} and out_features = {out_features}, "
                "wanted both at least 1"
            )
        self.in_features, self.out_features = in_features, out_features
        self.use_bias, self.return_bias = bool(bias), bool(return_bias)
        place = torch.device(_default_device() if device is None else device)
        dtype = torch.get_default_dtype() if params_dtype is None else params_dtype
        if dtype not in _VALUES:
            raise TypeError(
                f"[{_OP}] got params_dtype = {dtype}, wanted float64, float32, float16 or "
                "bfloat16; for codes make the layer inside quantized_model_init"
            )
        weight = torch.empty(out_features, in_features, dtype=dtype, device=place)
        with torch.no_grad():
            (init_method or _default_init)(weight)
        seed = int(torch.empty((), dtype=torch.int64).random_())
        self._state = ModuleState(type(self).__name__, name or "", weight.device, seed)
        self.weight = torch.nn.Parameter(self._first_weight(weight))
        self.bias = torch.nn.Parameter(weight.new_zeros(out_features)) if bias else None

    def forward(
        self,
        inp: torch.Tensor,
        is_first_microbatch: bool | None = None,
        fp8_output: bool = False,
        fp8_grad: bool = False,
    ) -> Any:
        """is_first_microbatch: True quantizes the weight and keeps the codes, False uses them
        again, also where the weight has changed since; None quantizes it each time."""
        _refuse(fp8_output=fp8_output, fp8_grad=fp8_grad)
        if not isinstance(inp, torch.Tensor):
            raise TypeError(f"[{_OP}] got {type(inp).__name__}, wanted a torch tensor")
        if is_first_microbatch is not None and not isinstance(is_first_microbatch, bool):
            raise TypeError(
                f"[{_OP}] got is_first_microbatch = {is_first_microbatch!r}, wanted True, False "
                "or None"
            )
        if isinstance(inp, QuantizedTensor):
            inp = inp.dequantize()
        if inp.device.type in ("cpu", "cuda") and torch.is_autocast_enabled(inp.device.type):
            inp = inp.to(torch.get_autocast_dtype(inp.device.type))
        if inp.dim() > 2 and not inp.is_contiguous():
            inp = inp.contiguous()  # rows must lie at equal distances
        y = _untraced(self._product)(inp, is_first_microbatch)
        return (y, self.bias) if self.return_bias else y

    def _product(self, x: torch.Tensor, is_first_microbatch: bool | None) -> torch.Tensor:
        bias = None if self.return_bias else self.bias
        self._state.prepare()
        y: torch.Tensor = _LinearFunction.apply(
            x, self.weight, bias, self._state, is_first_microbatch, torch.is_grad_enabled()
        )
        return y

    @property
    def quantizers(self) -> dict[str, list[Quantizer]]:
        """By "scaling_fwd": of input, weight and output; by "scaling_bwd": of grad_output and
        grad_input. Empty before the first forward under a recipe."""
        return {key: self._state.quantizers(key) for key in KEYS}

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.use_bias}"
        )

    def _first_weight(self, values: torch.Tensor) -> torch.Tensor:
        enabled, preserve, recipe = _octavo.current_model_init()
        if not enabled:
            return values
        source = TORCH.describe(values, _OP)
        handle = self._state.handle.first_weight(
            recipe,
            source.view(value_kind(source, _OP)),
            source.stream,
            TORCH.allocator(source.cuda),
        )
        made = self._state.quantizers("scaling_fwd")[1]._handle.name
        content = _Content(
            octavo.QuantizedTensor(handle, TORCH, source.stream),
            self._requantizer(),
            init_recipe(),
            values.cpu() if preserve else None,
        )
        return class_of(handle, made)(content)

    def _requantizer(self) -> Callable[[torch.Tensor], octavo.QuantizedTensor]:
        state = self._state

        def requantize(values: torch.Tensor) -> octavo.QuantizedTensor:
            source = TORCH.describe(values.detach(), _OP)
            view, pool = source.view(value_kind(source, _OP)), TORCH.allocator(source.cuda)
            handle = state.handle.next_weight(view, source.stream, pool)
            return octavo.QuantizedTensor(handle, TORCH, source.stream)

        return requantize

    def _replace_state(self, state: ModuleState) -> None:
        self._state = state
        if isinstance(self.weight, QuantizedTensor):
            made_with = self.weight._content.made_with
            if made_with is not None:
                state.use(made_with)
            self.weight._content.requantize = self._requantizer()

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Codes move to another device; they have no other dtype to be converted to."""
        weight = self.weight
        if not isinstance(weight, QuantizedTensor):
            super()._apply(fn, recurse)
        else:
            target = fn(torch.empty(0, dtype=weight.dtype, device=weight.device)).device
            if target != weight.device:
                moved = type(weight)(moved_content(weight, target))
                weight = torch.nn.Parameter(moved, weight.requires_grad)
            gradient = self.weight.grad
            weight.grad = None if gradient is None else fn(gradient)
            self._parameters["weight"] = None
            try:
                super()._apply(fn, recurse)
            finally:
                self._parameters["weight"] = weight
        if self.weight.device != self._state.device:
            self._replace_state(self._state.moved(self.weight.device))
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Linear:
        """Also of a class that torch derived from this one, which copies fields alone."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        fields = {key: value for key, value in self.__dict__.items() if key != "_state"}
        made.__dict__.update(copy.deepcopy(fields, memo))
        made._replace_state(self._state.moved(self._state.device))
        return made

    def __getstate__(self) -> dict[str, Any]:
        """For copy and pickle: the library's objects stay behind, their state comes along."""
        made, kept = self._state, dict(self.__dict__)
        identity = (made.module_type, made.name, made.device, made.seed)
        tensors = {key: tensor.clone() for key, tensor in made.state().items()}
        kept["_state"] = (identity, tensors)
        return kept

    def __setstate__(self, kept: dict[str, Any]) -> None:
        identity, tensors = kept["_state"]
        super().__setstate__({key: value for key, value in kept.items() if key != "_state"})
        state = ModuleState(*identity)
        state.load(tensors)
        self._replace_state(state)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if isinstance(self.weight, QuantizedTensor):
            del destination[prefix + "weight"]
            for part, tensor in weight_parts(self.weight).items():
                destination[f"{prefix}weight.{part}"] = tensor
        for key, tensor in self._state.state().items():
            destination[prefix + key] = tensor.clone()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Quantizer state may be there or not: recipes without state save none."""
        state = _taken(state_dict, prefix, STATE_NAMES)
        if isinstance(self.weight, QuantizedTensor):
            parts = _taken(state_dict, prefix + "weight.", PARTS)
            if parts:
                load_weight(self.weight, parts)
                state_dict[prefix + "weight"] = self.weight
        super()._load_from_state_dict(state_dict, prefix, *args)
        if state:
            self._state.load(state)


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which torch.compile does not look into. Importing the compiler takes seconds: where
    nobody has, there is nothing to hide from."""
    compiler = sys.modules.get("torch._dynamo")
    return function if compiler is None else compiler.disable(function)


def _taken(state_dict: Any, prefix: str, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """What is there of these names; torch does not see it any more."""
    return {name: state_dict.pop(prefix + name) for name in names if prefix + name in state_dict}


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise ValueError(f"[{_OP}] {name} is not offered; leave it out")


def _default_init(weight: torch.Tensor) -> None:
    torch.nn.init.normal_(weight, mean=0.0, std=0.023)


def _default_device() -> str:
    usable = any(entry.name == "cuda" and entry.usable for entry in octavo.backends())
    return "cuda" if usable and torch.cuda.is_available() else "cpu"
