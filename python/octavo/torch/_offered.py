"""Arguments that Transformer Engine has and octavo does not do."""

from __future__ import annotations

from typing import Any

import numpy as np


def refuse(op: str, **given: Any) -> None:
    """RuntimeError for the first that asks for something; all are falsy by default."""
    for name, value in given.items():
        if _asks(value):
            raise RuntimeError(f"[{op}] {name} is not offered; leave it out")


def differs(value: Any, default: Any) -> bool:
    """From a default that is a number or a text; arrays do."""
    return not isinstance(value, type(default) | np.generic) or bool(value != default)


def _asks(value: Any) -> bool:
    """Arrays and other objects do by being there: the truth of some of them is an error."""
    plain = isinstance(value, bool | int | float | str | tuple | list | dict | set | np.generic)
    return bool(value) if plain else value is not None
