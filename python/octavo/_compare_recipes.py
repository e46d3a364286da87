"""Several recipes of one checkpoint side by side, with nothing written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo import _octavo
from octavo._checkpoint_arguments import OnProgress, Path


class RecipeComparison:
    """What several recipes would make of a checkpoint.

    recipes: a dict for each, with recipe, bytes_after, bits_per_weight, median_sqnr, expected_sqnr
    (of normal weights), worst (names), loads, does_not_load and tensors; or why_not, where the
    target cannot hold it. title, target, bytes_before and seconds are of the whole. It is the error
    of weights: no data was seen.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._data: dict[str, Any] = json.loads(handle.json())

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._data:
            return self._data[name]
        raise AttributeError(f"RecipeComparison has no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        names = ", ".join(outcome["recipe"] for outcome in self.recipes)
        return f"RecipeComparison({self.title!r} for {self.target}: {names})"

    def json(self) -> str:
        """All of it, as text."""
        return self._handle.json()

    def html(self) -> str:
        """A page that needs nothing else: a table, how the tensors are spread, the worst ones."""
        return self._handle.html()


def compare_recipes(
    model: Path,
    recipes: Iterable[str],
    target: str = "compressed-tensors",
    *,
    format: str | None = None,
    tile: str | int | None = None,
    scale_rule: str | None = None,
    arith: str | None = None,
    scale_policy: str | None = None,
    scale_format: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe_for: Mapping[str, str] | None = None,
    share: bool = True,
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    progress: OnProgress | None = None,
) -> RecipeComparison:
    """Quantizes every weight of a checkpoint with each recipe, measures, and writes nothing.

    recipes: presets, such as ["fp8-channel", "mxfp8", "nvfp4"]. Other arguments are those of
    quantize_checkpoint, and hold for all of them.
    """
    op = "compare_recipes"
    options = _octavo.plan_options(
        recipe="fp8-block",  # each in turn instead
        target=checked.word(op, "target", target),
        format=checked.word(op, "format", format),
        tile=checked.tile(op, tile),
        scale_rule=checked.word(op, "scale_rule", scale_rule),
        arith=checked.word(op, "arith", arith),
        scale_policy=checked.word(op, "scale_policy", scale_policy),
        scale_format=checked.word(op, "scale_format", scale_format),
        include=checked.names(op, "include", include),
        exclude=checked.names(op, "exclude", exclude),
        recipe_for=checked.recipes(op, recipe_for),
        share=checked.flag(op, "share", share),
        bf16_scales=True,
        clamp_non_finite=False,
        shard_bytes=0,
    )
    return RecipeComparison(
        _octavo.compare_recipes(
            checked.path(op, "model", model),
            checked.names(op, "recipes", [recipes] if isinstance(recipes, str) else recipes),
            options,
            threads=checked.threads(op, threads),
            max_memory=checked.size(op, "max_memory", max_memory),
            progress=checked.called(op, progress),
        )
    )
