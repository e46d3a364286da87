"""Argument checks that name the argument: a TypeError with the value that was got and the values
that are expected."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np


def wrong_type(op: str, name: str, value: Any, wanted: str) -> TypeError:
    return TypeError(f"[{op}] got {name} = {shown(value)}; expected {wanted}")


def shown(value: Any) -> str:
    """As Python prints it, where that is short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... of type {type(value).__name__}"


def flag(value: Any, name: str, op: str) -> bool:
    """True or False; numbers and texts are most likely meant for another argument."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise wrong_type(op, name, value, "True or False")


def flags(op: str, **given: Any) -> None:
    for name, value in given.items():
        flag(value, name, op)


def whole(value: Any, name: str, op: str) -> int:
    """An integer of any library."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise wrong_type(op, name, value, "an integer")


def real(value: Any, name: str, op: str) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    raise wrong_type(op, name, value, "a number")


def returned_number(value: Any, name: str, op: str) -> float:
    """What a function of the caller's returned: a number, or an array of one."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"[{op}] {name} returned {shown(value)}; expected a number") from None


def text_or_none(value: Any, name: str, op: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise wrong_type(op, name, value, "a text, or None")


def function_or_none(value: Any, name: str, op: str) -> Callable[..., Any] | None:
    if value is None or callable(value):
        return value
    raise wrong_type(op, name, value, "a function, or None")
