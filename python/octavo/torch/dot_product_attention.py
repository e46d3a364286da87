"""softmax(scale Q K^T) V under a recipe: Transformer Engine's DotProductAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from octavo._arguments import flags, real, shown, text_or_none, whole, wrong_type
from octavo.torch._attention_function import Attend, How
from octavo.torch._attention_mask import mask_of, mask_type_of, window_of
from octavo.torch._checkpoint import checkpoint, is_second_forward
from octavo.torch._dtype import VALUES, check_same_dtype, under_autocast
from octavo.torch._module import QuantizingModule
from octavo.torch._offered import differs, refuse
from octavo.torch._quantized_tensor import QuantizedTensor
from octavo.torch._state import ModuleState
from octavo.torch.attention import seed_of_torch

__all__ = ["DotProductAttention"]

_OP = "DotProductAttention"
_FORMATS = ("sbhd", "bshd")
_PRECISIONS = ("fast", "strict")
# Of octavo.attention, without a recipe that asks for FP8. bfloat16 cannot hold float16's values.
_PLAIN = {
    torch.float64: "exact",
    torch.float32: "f32",
    torch.float16: "f32",
    torch.bfloat16: "bf16",
}


class DotProductAttention(QuantizingModule):
    """Attention of all heads; in FP8 inside an autocast whose recipe has fp8_dpa, or fp8_mha.

    fp8_dpa: Q, K and V are quantized by the recipe's quantizers and P is rounded to E4M3. The
        output is of the type of Q. Gradients are those of exact attention at the quantized inputs,
        in float32.
    fp8_mha: the output, too, is FP8: a te tensor of codes, whose values other layers see.

    Without them, or outside of a scope, values are multiplied: float32 (and float16) in float32,
    bfloat16 in bfloat16. NVFP4BlockScaling has no FP8 attention, which is an error.

    kv_channels: the size of a head, or (of keys, of values).
    qkv_format: "sbhd": tensors are [tokens, batch, heads, size]; "bshd": [batch, tokens, ...].
    attn_mask_type: see forward.
    attention_dropout: in training mode weights are dropped with this probability; torch's generator
        for the CPU gives the seed.
    precision: not Transformer Engine's. "fast", or "strict", which rounds P to two FP8 terms
        (docs/numerics/attention.md).
    name: in messages.

    quantizers has by "scaling_fwd" those of query, key, value, softmax (P) and output; none before
    the first forward in FP8. Arguments for several devices, and others that octavo does not do,
    are refused (RuntimeError) where they ask for anything.
    """

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker: Callable[..., Any] | None = None,
        tp_group: Any = None,
        layer_number: int | None = None,
        attention_type: str = "self",
        cp_group: Any = None,
        cp_global_ranks: Any = None,
        cp_stream: Any = None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
        softmax_type: str = "vanilla",
        return_max_logit: bool = False,
        *,
        precision: str = "fast",
        name: str | None = None,
    ) -> None:
        super().__init__()
        refuse(
            _OP,
            sequence_parallel=sequence_parallel,
            tp_size=differs(tp_size, 1),
            get_rng_state_tracker=get_rng_state_tracker,
            tp_group=tp_group,
            cp_group=cp_group,
            cp_global_ranks=cp_global_ranks,
            cp_stream=cp_stream,
            cp_comm_type=differs(cp_comm_type, "p2p"),
            softmax_type=differs(softmax_type, "vanilla"),
            return_max_logit=return_max_logit,
        )
        self.num_attention_heads = whole(num_attention_heads, "num_attention_heads", _OP)
        groups = self.num_attention_heads
        if num_gqa_groups is not None:
            groups = whole(num_gqa_groups, "num_gqa_groups", _OP)
        self.num_gqa_groups = groups
        pair = kv_channels if isinstance(kv_channels, tuple | list) else (kv_channels, kv_channels)
        if len(pair) != 2:
            raise wrong_type(_OP, "kv_channels", kv_channels, "an integer, or two")
        self.head_sizes = tuple(whole(size, "kv_channels", _OP) for size in pair)
        if min(self.num_attention_heads, groups, *self.head_sizes) < 1:
            raise ValueError(
                f"[{_OP}] got num_attention_heads = {self.num_attention_heads}, num_gqa_groups = "
                f"{groups} and kv_channels = {kv_channels}; expected all at least 1"
            )
        if self.num_attention_heads % groups:
            raise ValueError(
                f"[{_OP}] got num_attention_heads = {self.num_attention_heads}; expected a "
                f"multiple of num_gqa_groups = {groups}"
            )
        if layer_number is not None:
            whole(layer_number, "layer_number", _OP)
        self.qkv_format = _choice(qkv_format, "qkv_format", _FORMATS)
        self.attn_mask_type = mask_type_of(attn_mask_type, _OP)
        self.window_size = window_of(window_size, _OP)
        self.attention_type = _choice(attention_type, "attention_type", ("self", "cross"))
        self.layer_number, self.softmax_scale = layer_number, softmax_scale
        if softmax_scale is not None:
            self.softmax_scale = real(softmax_scale, "softmax_scale", _OP)
        self.precision = _choice(precision, "precision", _PRECISIONS)
        self.attention_dropout = real(attention_dropout, "attention_dropout", _OP)
        if not 0.0 <= self.attention_dropout < 1.0:
            raise ValueError(
                f"[{_OP}] got attention_dropout = {attention_dropout}; expected 0 to less than 1"
            )
        own_name = text_or_none(name, "name", _OP) or ""
        self._state = ModuleState(_OP, own_name, torch.device("cpu"), 0, attends=True)

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: Any = None,
        qkv_format: str | None = None,
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        cu_seqlens_q_padded: torch.Tensor | None = None,
        cu_seqlens_kv_padded: torch.Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
        attn_mask_type: str | None = None,
        window_size: tuple[int, int] | None = None,
        checkpoint_core_attention: bool = False,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: torch.Tensor | None = None,
        alibi_slopes: torch.Tensor | None = None,
        fast_zero_fill: bool = True,
        inference_params: Any = None,
        pad_between_seqs: bool | None = None,
        fp8_output: bool = False,
        num_splits: int | None = 1,
    ) -> torch.Tensor:
        """The output, [tokens, batch, heads * size] or [batch, tokens, heads * size].

        attn_mask_type: "no_mask"; "causal": row i sees keys up to i; "causal_bottom_right": the
            last row sees the last key; "padding", "padding_causal" and
            "padding_causal_bottom_right": of each sequence only so many tokens are there, which
            attention_mask says ([batch, 1, 1, tokens], True: padding, which comes last; or one for
            queries and one for keys), or cu_seqlens_q and cu_seqlens_kv; "arbitrary":
            attention_mask ([batch, heads, queries, keys], any of them 1) is True where a row does
            not see a key.
        window_size: (left, right), how many keys before and after its own position a row sees; -1
            is no limit.
        checkpoint_core_attention: keeps the inputs only, and recomputes attention in backward.
        core_attention_bias: is added to scaled scores, with core_attention_bias_type
            "post_scale_bias"; it has no gradient.
        """
        refuse(
            _OP,
            cu_seqlens_q_padded=cu_seqlens_q_padded is not None,
            cu_seqlens_kv_padded=cu_seqlens_kv_padded is not None,
            alibi_slopes=alibi_slopes is not None,
            inference_params=inference_params,
            pad_between_seqs=pad_between_seqs,
            fp8_output=fp8_output,
            num_splits=num_splits is not None and differs(num_splits, 1),
        )
        # Padding is zeros, filled fast or not.
        flags(_OP, fast_zero_fill=fast_zero_fill)
        flags(_OP, checkpoint_core_attention=checkpoint_core_attention)
        layout = self.qkv_format
        if qkv_format is not None:
            layout = _choice(qkv_format, "qkv_format", _FORMATS)
        q, k, v = self._inputs((query_layer, key_layer, value_layer), layout)
        shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        mask = mask_of(
            self.attn_mask_type if attn_mask_type is None else mask_type_of(attn_mask_type, _OP),
            self.window_size if window_size is None else window_of(window_size, _OP),
            attention_mask,
            (cu_seqlens_q, cu_seqlens_kv),
            _bias(core_attention_bias_type, core_attention_bias),
            shape,
            _OP,
        )
        _check_longest(max_seqlen_q, "max_seqlen_q", mask.query_lengths, shape[2])
        _check_longest(max_seqlen_kv, "max_seqlen_kv", mask.key_lengths, shape[3])
        q = _without_padding(q, mask.query_lengths)
        k, v = (_without_padding(x, mask.key_lengths) for x in (k, v))
        if q.device != self._state.device:
            self._replace_state(self._state.moved(q.device))
        rate = self.attention_dropout if self.training else 0.0
        how = How(
            layout,
            mask,
            self.softmax_scale,
            _PLAIN[q.dtype],
            self.precision,
            dropout=rate,
            seed=seed_of_torch() if rate else 0,
        )
        if checkpoint_core_attention:
            again: torch.Tensor = checkpoint(self._attend, q, k, v, how)
            return again
        return self._attend(q, k, v, how)

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: How) -> torch.Tensor:
        self._state.prepare()
        trains = torch.is_grad_enabled() and self.training and not is_second_forward()
        out: torch.Tensor = Attend.apply(q, k, v, self._state, how._replace(trains=trains))
        return out

    def _inputs(self, given: tuple[Any, ...], layout: str) -> list[torch.Tensor]:
        """As [batch, heads, tokens, size], checked."""
        made = []
        wanted = (
            ("query_layer", self.num_attention_heads, self.head_sizes[0]),
            ("key_layer", self.num_gqa_groups, self.head_sizes[0]),
            ("value_layer", self.num_gqa_groups, self.head_sizes[1]),
        )
        for x, (name, heads, size) in zip(given, wanted, strict=True):
            if not isinstance(x, torch.Tensor):
                raise wrong_type(_OP, name, x, "a torch tensor")
            if isinstance(x, QuantizedTensor):
                x = x.dequantize()
            if x.dim() != 4 or tuple(x.shape[2:]) != (heads, size):
                raise ValueError(
                    f"[{_OP}] got {name} of shape {tuple(x.shape)}; expected {layout} with {heads} "
                    f"heads of {size}"
                )
            x = under_autocast(x)
            if x.dtype not in VALUES:
                raise TypeError(
                    f"[{_OP}] got {name} of {x.dtype}; "
                    "expected float64, float32, float16 or bfloat16"
                )
            made.append(x.permute(1, 2, 0, 3) if layout == "sbhd" else x.permute(0, 2, 1, 3))
        names = (name for name, _, _ in wanted)
        check_same_dtype(_OP, **dict(zip(names, made, strict=True)))
        return made

    def extra_repr(self) -> str:
        return (
            f"num_attention_heads={self.num_attention_heads}, kv_channels={self.head_sizes}, "
            f"num_gqa_groups={self.num_gqa_groups}, attn_mask_type={self.attn_mask_type!r}"
        )


def _choice(given: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(given, str):
        raise wrong_type(_OP, name, given, f"one of {', '.join(choices)}")
    if given not in choices:
        raise ValueError(
            f"[{_OP}] got {name} = {shown(given)}; expected one of {', '.join(choices)}; others "
            "are not offered"
        )
    return given


def _bias(kind: Any, bias: Any) -> torch.Tensor | None:
    if _choice(kind, "core_attention_bias_type", ("no_bias", "post_scale_bias")) == "no_bias":
        if bias is not None:
            raise ValueError(
                f"[{_OP}] got core_attention_bias and core_attention_bias_type = 'no_bias'; say "
                "'post_scale_bias'"
            )
        return None
    if not isinstance(bias, torch.Tensor):
        raise wrong_type(_OP, "core_attention_bias", bias, "a torch tensor")
    if not bias.is_floating_point():
        raise TypeError(
            f"[{_OP}] got core_attention_bias of {bias.dtype}; expected floating point, which is "
            "added to scores; a mask of torch.bool is attention_mask, with "
            "attn_mask_type='arbitrary'"
        )
    if bias.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"[{_OP}] core_attention_bias requires a gradient, which it has none of")
    if bias.dtype == torch.float64:
        raise TypeError(
            f"[{_OP}] got core_attention_bias of torch.float64; expected float32, which it is "
            "added in; cast it with .float()"
        )
    return bias.detach().float()


def _check_longest(most: Any, name: str, lengths: list[int], tokens: int) -> None:
    """A bound that Transformer Engine selects kernels with: it must hold, and has no effect."""
    if most is None:
        return
    most, longest = whole(most, name, _OP), max(lengths, default=tokens)
    if not longest <= most <= tokens:
        raise ValueError(
            f"[{_OP}] got {name} = {most}; expected {longest}, the longest sequence there is, to "
            f"{tokens}, the tokens there are; attn_mask_type='padding' with cu_seqlens or a mask "
            "leaves tokens out"
        )


def _without_padding(x: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Zeros where there is no token: what lies there enters no scale."""
    if not lengths:
        return x
    there = torch.tensor(lengths, device=x.device)[:, None, None, None]
    places = torch.arange(x.shape[2], device=x.device)[None, None, :, None]
    return torch.where(places < there, x, torch.zeros((), dtype=x.dtype, device=x.device))
