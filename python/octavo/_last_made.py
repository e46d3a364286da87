"""Recipes of the library's that are equal because they were made once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from octavo import _octavo


class LastMade:
    """The library's recipes that have functions, by the fields they were made of: two recipes with
    the same function are equal. A recipe keeps its function alive and not the other way round, so
    no weak reference tells when one is not expected any more; the last few are kept."""

    _ROOM = 32

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[Any, _octavo.Recipe] = OrderedDict()

    def get(
        self, kind: type, values: list[Any], make: Callable[[], _octavo.Recipe]
    ) -> _octavo.Recipe:
        """One of these fields, which is made where there is none."""
        key = (kind, tuple((type(value), value) for value in values))
        try:
            hash(key)
        except TypeError:
            return make()  # an object that is called and cannot be looked up
        with self._lock:
            made = self._made.get(key)
        if made is None:
            made = make()
        with self._lock:
            made = self._made.setdefault(key, made)
            self._made.move_to_end(key)
            if len(self._made) > self._ROOM:
                self._made.popitem(last=False)
        return made
