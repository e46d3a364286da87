"""Transformer Engine's attention masks, converted to the library's AttentionMask."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from octavo._arguments import shown, wrong_type

MASK_TYPES = (
    "no_mask",
    "causal",
    "padding",
    "padding_causal",
    "causal_bottom_right",
    "padding_causal_bottom_right",
    "arbitrary",
)
_MOST_TOKENS = 2**60
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


class Mask(NamedTuple):
    causal: bool = False
    bottom_right: bool = False
    left: int = -1
    right: int = -1
    query_lengths: list[int] = []
    key_lengths: list[int] = []
    bias: torch.Tensor | None = None


def mask_type_of(given: Any, op: str) -> str:
    """One of the names; "causal,padding" is the older name of one of them."""
    if not isinstance(given, str):
        raise wrong_type(op, "attn_mask_type", given, f"one of {', '.join(MASK_TYPES)}")
    name = given
    if "," in given:
        name = "_".join(sorted((part.strip() for part in given.split(",")), key="padding".__ne__))
    if name not in MASK_TYPES:
        raise ValueError(
            f"[{op}] got attn_mask_type = {shown(given)}; expected one of {', '.join(MASK_TYPES)}"
        )
    return name


def window_of(given: Any, op: str) -> tuple[int, int]:
    """Keys before and after a row's position; -1 is no limit."""
    if given is None:
        return -1, -1
    fits = isinstance(given, tuple | list) and len(given) == 2
    if not fits or not all(type(side) is int for side in given):
        raise wrong_type(op, "window_size", given, "(before, after), two integers, or None")
    if min(given) < -1 or max(given) > _MOST_TOKENS:
        raise ValueError(
            f"[{op}] got window_size = {shown(given)}; expected numbers of at least -1, which is "
            "no limit, and at most 2**60"
        )
    before, after = given
    return before, after


def mask_of(
    kind: str,
    window: tuple[int, int],
    attention_mask: Any,
    lengths: tuple[Any, Any],
    bias: torch.Tensor | None,
    shape: tuple[int, int, int, int],
    op: str,
) -> Mask:
    """shape: [batch, heads, queries, keys]. lengths: cu_seqlens_q and cu_seqlens_kv."""
    causal = "causal" in kind
    left, right = window
    if causal and right > 0:
        raise ValueError(
            f"[{op}] got window_size = {window} and {kind}: a causal row sees nothing after itself"
        )
    made = Mask(causal, "bottom_right" in kind, left, -1 if causal else right, bias=bias)
    if "padding" in kind:
        if any(one is not None for one in lengths):
            if attention_mask is not None:
                raise ValueError(
                    f"[{op}] got attention_mask and cu_seqlens, which both say how long sequences "
                    "are; give one of them"
                )
            found = _from_sums(lengths, shape, op)
        else:
            found = _from_masks(attention_mask, shape, op)
        return made._replace(query_lengths=found[0], key_lengths=found[1])
    if any(one is not None for one in lengths):
        raise ValueError(
            f"[{op}] got cu_seqlens, and attn_mask_type = {kind}, which has no lengths; say padding"
        )
    if kind == "arbitrary":
        return made._replace(bias=_hidden(attention_mask, bias, shape, op))
    if attention_mask is not None:
        raise ValueError(
            f"[{op}] got attention_mask, and attn_mask_type = {kind}, which ignores it; "
            "say padding or arbitrary"
        )
    return made


def _from_sums(
    sums: tuple[Any, Any], shape: tuple[int, int, int, int], op: str
) -> tuple[list[int], list[int]]:
    """Of sequences that begin where the ones before end: [0, a, a + b, ...]."""
    found = []
    for one, name, most in zip(sums, ("cu_seqlens_q", "cu_seqlens_kv"), shape[2:], strict=True):
        if not isinstance(one, torch.Tensor) or one.shape != (shape[0] + 1,):
            raise ValueError(
                f"[{op}] got {name} = {shown(one)}; expected a tensor of {shape[0] + 1} integers, "
                "the sums of all lengths before; give both of them"
            )
        if one.dtype not in _INTEGERS:
            raise TypeError(f"[{op}] got {name} of {one.dtype}; expected integers: torch.int32")
        counts = one.diff().tolist()
        if one[0] != 0:
            raise ValueError(
                f"[{op}] got {name} that begins with {int(one[0])}; expected 0: what stands there "
                "is the sum of all lengths before"
            )
        if any(not 0 <= count <= most for count in counts):
            raise ValueError(
                f"[{op}] got {name} with lengths {counts}; expected each from 0 to {most}"
            )
        found.append([int(count) for count in counts])
    return found[0], found[1]


def _from_masks(
    masks: Any, shape: tuple[int, int, int, int], op: str
) -> tuple[list[int], list[int]]:
    pair = masks if isinstance(masks, tuple | list) else (masks, masks)
    if len(pair) != 2:
        raise ValueError(
            f"[{op}] got {len(pair)} attention masks; "
            "expected one, or one for queries and one for keys"
        )
    found = []
    for one, most in zip(pair, shape[2:], strict=True):
        wanted = (shape[0], 1, 1, most)
        _check_mask(one, op)
        if tuple(one.shape) != wanted:
            raise ValueError(
                f"[{op}] got attention_mask of shape {tuple(one.shape)}; expected {wanted}, True "
                "where a token is padding; where queries and keys differ, one for each"
            )
        padding = one.reshape(shape[0], most)
        counts = (~padding).sum(dim=1)
        ends = torch.arange(most, device=padding.device)[None] >= counts[:, None]
        if not torch.equal(ends, padding):
            raise ValueError(
                f"[{op}] got an attention_mask with padding before tokens; expected it after them; "
                "say attn_mask_type='arbitrary' for other masks"
            )
        found.append([int(count) for count in counts.tolist()])
    return found[0], found[1]


def _check_mask(mask: Any, op: str) -> None:
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, torch.Tensor) else shown(mask)
        raise TypeError(f"[{op}] got attention_mask = {got}; expected a tensor of torch.bool")


def _hidden(
    mask: Any, bias: torch.Tensor | None, shape: tuple[int, int, int, int], op: str
) -> torch.Tensor:
    """Bias for the scores: -inf where the mask is True, the opposite of torch's convention."""
    _check_mask(mask, op)
    wide = tuple(mask.shape)
    if len(wide) != 4 or any(got not in (1, want) for got, want in zip(wide, shape, strict=True)):
        raise ValueError(
            f"[{op}] got attention_mask of shape {wide}; expected {shape}, or 1 in some of them"
        )
    zero = torch.zeros((), dtype=torch.float32, device=mask.device)
    added = torch.where(mask, torch.full_like(zero, -torch.inf), zero)
    return added if bias is None else added + bias
