"""y = x w^T + b under a recipe: octavo's Linear with torch's parameters and autograd."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any, cast

import torch

import octavo
from octavo import _octavo
from octavo._arguments import flags, function_or_none, text_or_none, whole
from octavo._arrays.torch_arrays import TORCH
from octavo._quantize import value_kind
from octavo._recipe_fields import check_accumulator
from octavo.recipe import Recipe
from octavo.torch._available import place_of
from octavo.torch._dtype import VALUES, under_autocast
from octavo.torch._linear_function import untraced_product
from octavo.torch._module import QuantizingModule, taken
from octavo.torch._offered import differs, refuse
from octavo.torch._quantized_tensor import QuantizedTensor, _Content, converted_content
from octavo.torch._saving import PARTS, load_weight, weight_parts
from octavo.torch._scopes import checked_recipe, init_recipe
from octavo.torch._sharding import refuse_removal, refuse_renaming, refuse_shards
from octavo.torch._state import ModuleState
from octavo.torch._weight_quantizer import WeightQuantizer

__all__ = ["Linear"]

_OP = "Linear"


class Linear(QuantizingModule):
    """A linear layer that multiplies as the recipe of te.autocast says; outside of one it
    multiplies values. Inside te.quantized_model_init its weight is codes.

    init_method: fills the weight; the default draws from a normal distribution of deviation 0.023.
    return_bias: forward leaves the bias out and returns (y, bias).
    params_dtype: of weight and bias; torch's default dtype if not given.
    device: if not given, torch's default device where one is set (with torch.device("meta"): ...),
        else a CUDA device where octavo and torch have one, else the CPU. On meta, weights come
        later: by to_empty(device=...) and reset_parameters(), or by load_state_dict(assign=True).
    name: in messages, and mixed into the draws of stochastic rounding.
    accumulator: not Transformer Engine's. Of products of codes: "native" leaves it to the recipe;
        "float32"; "float16", fast on CPUs with half precision and less exact; "hopper_fp8", what
        training on an H100 would give, bit for bit and slowly, where use_split_accumulator of the
        recipe applies.

    quantizers has by "scaling_fwd" those of input, weight and output, and by "scaling_bwd" those of
    grad_output and grad_input; none before the first forward under a recipe.

    Under DelayedScaling a layer records amaxes and updates its scales in training only: with
    gradients enabled and not after eval(). Arguments for several devices, and others that octavo
    does not do, are refused (RuntimeError) where they ask for anything.
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
        rng_tracker_name: str | None = None,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        bias: bool = True,
        return_bias: bool = False,
        params_dtype: torch.dtype | None = None,
        parallel_mode: str | None = None,
        parameters_split: Any = None,
        device: torch.device | str | None = None,
        ub_overlap_ag: bool = False,
        ub_overlap_rs: bool = False,
        ub_overlap_rs_dgrad: bool = False,
        ub_bulk_dgrad: bool = False,
        ub_bulk_wgrad: bool = False,
        ub_name: str | None = None,
        delay_wgrad_compute: bool = False,
        symmetric_ar_type: str | None = None,
        save_original_input: bool = False,
        name: str | None = None,
        *,
        accumulator: str = "native",
    ) -> None:
        super().__init__()
        refuse(
            _OP,
            sequence_parallel=sequence_parallel,
            fuse_wgrad_accumulation=fuse_wgrad_accumulation,
            tp_group=tp_group,
            tp_size=differs(tp_size, 1),
            get_rng_state_tracker=get_rng_state_tracker,
            rng_tracker_name=rng_tracker_name,
            parallel_mode=parallel_mode,
            parameters_split=parameters_split,
            ub_overlap_ag=ub_overlap_ag,
            ub_overlap_rs=ub_overlap_rs,
            ub_overlap_rs_dgrad=ub_overlap_rs_dgrad,
            ub_bulk_dgrad=ub_bulk_dgrad,
            ub_bulk_wgrad=ub_bulk_wgrad,
            ub_name=ub_name,
            delay_wgrad_compute=delay_wgrad_compute,
            symmetric_ar_type=symmetric_ar_type,
            save_original_input=save_original_input,
        )
        check_accumulator(accumulator, _OP)
        in_features = whole(in_features, "in_features", _OP)
        out_features = whole(out_features, "out_features", _OP)
        flags(_OP, bias=bias, return_bias=return_bias)
        init = function_or_none(init_method, "init_method", _OP) or _default_init
        own_name = text_or_none(name, "name", _OP) or ""
        if min(in_features, out_features) < 1:
            raise ValueError(
                f"[{_OP}] got in_features = {in_features} and out_features = {out_features}; "
                "expected both at least 1"
            )
        self.in_features, self.out_features = in_features, out_features
        self.use_bias, self.return_bias = bool(bias), bool(return_bias)
        place = place_of(device, _OP)
        dtype = torch.get_default_dtype() if params_dtype is None else params_dtype
        if dtype not in VALUES:
            raise TypeError(
                f"[{_OP}] got params_dtype = {dtype}; expected float64, float32, float16 or "
                "bfloat16; for codes make the layer inside quantized_model_init"
            )
        weight = torch.empty(out_features, in_features, dtype=dtype, device=place)
        self._init_method: Callable[[torch.Tensor], Any] | None = init
        if not weight.is_meta:
            with torch.no_grad():
                init(weight)
        seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        self._state = ModuleState(type(self).__name__, own_name, weight.device, seed, accumulator)
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
        refuse(_OP, fp8_output=fp8_output, fp8_grad=fp8_grad)
        if not isinstance(inp, torch.Tensor):
            raise TypeError(f"[{_OP}] got {type(inp).__name__}; expected a torch tensor")
        if is_first_microbatch is not None and not isinstance(is_first_microbatch, bool):
            raise TypeError(
                f"[{_OP}] got is_first_microbatch = {is_first_microbatch!r}; expected True, False "
                "or None"
            )
        if isinstance(inp, QuantizedTensor):
            inp = inp.dequantize()
        inp = under_autocast(inp)
        if inp.dim() > 2 and not inp.is_contiguous():
            inp = inp.contiguous()  # rows must lie at equal distances
        y = untraced_product()(self, inp, is_first_microbatch)
        return (y, self.bias) if self.return_bias else y

    def reset_parameters(self) -> None:
        """Weight and bias as the constructor fills them. For a layer that was made on the device
        meta: after to_empty(device=...), which gives it memory."""
        weight, init = self.weight, getattr(self, "_init_method", None)
        if weight.is_meta:
            raise RuntimeError(
                f"[{_OP}] got reset_parameters on the device meta, which has no memory to fill; "
                "call to_empty(device=...) first"
            )
        if init is None:
            raise RuntimeError(
                f"[{_OP}] got reset_parameters after a copy or a pickle, which have no "
                "init_method; fill weight and bias yourself"
            )
        with torch.no_grad():
            if isinstance(weight, QuantizedTensor):
                values = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
                init(values)
                with self._fitting_anew():
                    weight.copy_(values)
            else:
                init(weight)
            if self.bias is not None:
                self.bias.zero_()

    def requantize_weight(self, recipe: Recipe) -> None:
        """A weight that is codes (quantized_model_init) becomes codes for another recipe, in place:
        the parameter stays the object that optimizers hold. Its values are rounded once more. A
        weight that is values stays as it is, because each forward quantizes it."""
        wanted, weight = checked_recipe(recipe, _OP), self.weight
        if not isinstance(weight, QuantizedTensor):
            return
        native, cuda = wanted._native(), weight.quantized._handle.cuda
        stream = TORCH.stream(cuda)
        handle = self._state.handle.switched_weight(
            native,
            weight.quantized._handle,
            str(weight.dtype).removeprefix("torch."),
            stream,
            TORCH.allocator(cuda, stream),
        )
        self._state.cache = _octavo.WeightCache()
        content, requantizer = weight._content, WeightQuantizer(self._state, native)
        weight._replace_codes(octavo.QuantizedTensor(handle, TORCH, stream))
        content.requantizer, content.recipe = requantizer, copy.copy(wanted)
        cast(Any, weight).__class__ = requantizer.quantizer.makes

    def __getstate__(self) -> dict[str, Any]:
        """A function of the user's may be one that cannot be pickled."""
        kept = super().__getstate__()
        if self._init_method is not _default_init:
            kept["_init_method"] = None
        return kept

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            refuse_shards(self.__dict__.get("_parameters", {}).get(name), value, _OP)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name == "weight":
            refuse_removal(self._parameters.get(name), _OP)
        super().__delattr__(name)

    def register_parameter(self, name: str, param: torch.nn.Parameter | None) -> None:
        if name == "weight":
            refuse_shards(self._parameters.get(name), param, _OP)
        else:
            refuse_renaming(self, name, param, _OP)
        super().register_parameter(name, param)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.use_bias}"
        )

    def _first_weight(self, values: torch.Tensor) -> torch.Tensor:
        enabled, preserve, recipe = _octavo.current_model_init()
        if not enabled or recipe is None:
            return values
        if values.is_meta:
            raise RuntimeError(
                f"[{_OP}] got the device meta inside quantized_model_init, where a weight is the "
                "codes of its first values, which meta has none of; make the layer on another "
                "device, or outside of quantized_model_init"
            )
        source = TORCH.describe(values, _OP)
        handle = self._state.handle.first_weight(
            recipe,
            source.view(value_kind(source, _OP)),
            source.stream,
            TORCH.allocator(source.cuda),
        )
        requantizer = WeightQuantizer(self._state, recipe)
        content = _Content(
            octavo.QuantizedTensor(handle, TORCH, source.stream),
            requantizer,
            init_recipe(),
            values.cpu() if preserve else None,
        )
        return requantizer.quantizer.makes(content)

    def _replace_state(self, state: ModuleState) -> None:
        super()._replace_state(state)
        if isinstance(self.weight, QuantizedTensor):
            made_with = self.weight._content.made_with
            if made_with is not None:
                state.use(made_with)
            self.weight._content.requantizer = WeightQuantizer(state, made_with)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Codes move to another device. Converted to another dtype, as by half(), they stay as they
        are and are codes of values of that dtype: what dequantize() gives and gradients have."""
        weight = self.weight
        if not isinstance(weight, QuantizedTensor):
            super()._apply(fn, recurse)
        else:
            target = fn(torch.empty(1, dtype=weight.dtype, device=weight.device))
            if target.device.type == "cpu" and target.is_shared():
                raise RuntimeError(
                    f"[{_OP}] got share_memory for a quantized weight, whose codes cannot be "
                    "shared between processes; make the layer without quantized_model_init"
                )
            if target.dtype not in VALUES:
                raise TypeError(
                    f"[{_OP}] got {target.dtype} for a quantized weight; expected float64, "
                    "float32, float16 or bfloat16"
                )
            if (target.device, target.dtype) != (weight.device, weight.dtype):
                content = converted_content(weight, target.device, target.dtype)
                kind = cast("type[QuantizedTensor]", type(weight))
                weight = torch.nn.Parameter(kind(content), weight.requires_grad)
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

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if isinstance(self.weight, QuantizedTensor):
            del destination[prefix + "weight"]
            for part, tensor in weight_parts(self.weight).items():
                destination[f"{prefix}weight.{part}"] = tensor

    def _fitting_anew(self) -> contextlib.AbstractContextManager[None]:
        """For values of a quantized weight that are no step of training."""
        requantizer = getattr(getattr(self.weight, "_content", None), "requantizer", None)
        if isinstance(requantizer, WeightQuantizer):
            return requantizer.fitting_anew()
        return contextlib.nullcontext()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        if isinstance(self.weight, QuantizedTensor):
            parts = taken(state_dict, prefix + "weight.", PARTS)
            if parts:
                load_weight(self.weight, parts)
                state_dict[prefix + "weight"] = self.weight
        with self._fitting_anew():
            super()._load_from_state_dict(state_dict, prefix, *args)
        if self.weight.device != self._state.device:  # assigned
            self._replace_state(self._state.moved(self.weight.device))


def _default_init(weight: torch.Tensor) -> None:
    torch.nn.init.normal_(weight, mean=0.0, std=0.023)
