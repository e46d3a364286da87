"""Arguments that Transformer Engine has and octavo does not do."""

from __future__ import annotations

from typing import Any


def refuse(op: str, **given: Any) -> None:
    """RuntimeError for the first that asks for something; all are falsy by default."""
    for name, value in given.items():
        if value:
            raise RuntimeError(f"[{op}] {name} is not offered; leave it out")
