"""Views of a quantized tensor: read-only snapshots of its values. There is no memory of
codes behind them that a write could reach, so writing raises."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._pytree import tree_iter, tree_map


class ValuesView(torch.Tensor):
    """Plain values in memory of their own, which operations may read and not write."""

    _plain: torch.Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # torch's own idiom

    @staticmethod
    def __new__(cls: Any, plain: torch.Tensor) -> Any:
        self = torch.Tensor._make_subclass(cls, plain)
        self._plain = plain
        return self

    def __init__(self, plain: torch.Tensor) -> None:
        super().__init__()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # mypy drops names
        return repr(self._plain)

    def tolist(self) -> Any:
        """As every tensor has it; torch refuses it for subclasses."""
        return self._plain.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """Values, which cannot be written to here either."""
        if self.requires_grad and not force:
            raise RuntimeError("[quantized] values need gradients; use tensor.detach().numpy()")
        made = self._plain.numpy(force=force)
        made.flags.writeable = False
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return copy.deepcopy(self._plain, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain.__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch passes cls
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_writes(func, args, kwargs)
        plain = tree_map(plain_values, (args, kwargs))
        result = func(*plain[0], **plain[1])
        return as_views(result) if makes_views(func) else result


def plain_values(x: Any) -> Any:
    """A view's values as an ordinary tensor; anything else as it is."""
    return x._plain if isinstance(x, ValuesView) else x


def written(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Every argument that func writes to, as its schema says; lists are taken apart."""
    found = []
    for at, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[at] if at < len(args) else kwargs.get(argument.name)
        found += list(tree_iter(given))
    return found


def refuse_writes(func: Any, args: Any, kwargs: Any) -> None:
    """Raises where func writes to a view."""
    if any(isinstance(x, ValuesView) for x in written(func, args, kwargs)):
        raise RuntimeError(
            f"[quantized] {func} writes to a view or a slice of a quantized tensor, which codes "
            "and scales do not have; change values = tensor.dequantize() and write them back with "
            "tensor.copy_(values)"
        )


def makes_views(func: Any) -> bool:
    """Whether results share memory with arguments, by the schema."""
    return any(
        found.alias_info is not None and not found.alias_info.is_write
        for found in func._schema.returns
    )


def as_views(result: Any) -> Any:
    """The same values, not to be written to."""
    return tree_map(lambda x: ValuesView(x) if type(x) is torch.Tensor else x, result)
