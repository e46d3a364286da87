"""Every combination of some options, each measured, nothing written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from octavo import _checkpoint_arguments as checked
from octavo import _octavo
from octavo._checkpoint_arguments import OnProgress
from octavo._octavo import Scaling
from octavo._operation import MOST_THREADS, integer
from octavo._quantize import as_scaling, value_kind
from octavo._report import _on_cpu


class Sweep:
    """What settings cost and give.

    points: a dict for each, with settings, bits_per_value, bytes, sqnr, relative_l2, cosine,
    seconds, uncounted (finite values that became NaN or Inf, of which there is no error) and best
    (all values count, and no other has fewer bits and less error); or why_not, where it is not
    possible.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._data: dict[str, Any] = json.loads(handle.json())

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._data:
            return self._data[name]
        raise AttributeError(f"Sweep has no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        return f"Sweep({self.title!r}, {len(self.points)} settings)"

    def json(self) -> str:
        """All of it, as text."""
        return self._handle.json()

    def html(self) -> str:
        """A page that needs nothing else: error against bits and against time, and a table."""
        return self._handle.html()


def sweep(
    x: Any,
    options: Mapping[str, Iterable[Any]],
    *,
    recipe: str | None = None,
    format: str | None = None,
    tile: str | int | None = None,
    scale: str | None = None,
    scale_rule: str | None = None,
    scale_policy: str | None = None,
    arith: str | None = None,
    target: str = "compressed-tensors",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    title: str = "array",
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    progress: OnProgress | None = None,
) -> Sweep:
    """Quantizes x with every combination of these options, measures, and writes nothing.

        >>> octavo.sweep(x, {"recipe": ["mxfp8", "mxfp4"], "tile": [16, 32, 64, 128]}).points

    x: an array, or the path of a checkpoint (a str or os.PathLike).
    options: lists of values by option: recipe, format, tile, scale, scale_rule, scale_policy,
        arith. The others are the same for all: recipe to arith here.
    target, include, exclude, max_memory, progress: of a checkpoint, as quantize_checkpoint has
        them. title: of an array.
    """
    op = "sweep"
    given = {
        "recipe": recipe,
        "format": format,
        "tile": tile,
        "scale-rule": scale_rule,
        "scale-policy": scale_policy,
        "scale": scale,
        "arith": arith,
    }
    axes = []
    for option, values in options.items():
        name = option.replace("_", "-")
        if given.get(name) is not None:
            raise ValueError(f"[{op}] got {option} twice: as one value and among the options")
        listed = [values] if isinstance(values, str | int) else list(values)
        axes.append((name, [_text(op, option, value) for value in listed]))
    words = {name: "" if value is None else _text(op, name, value) for name, value in given.items()}
    plan = _octavo.plan_options(
        recipe=words["recipe"],
        target=checked.word(op, "target", target),
        format=words["format"],
        tile=words["tile"],
        scale_rule=words["scale-rule"],
        arith=words["arith"],
        scale_policy=words["scale-policy"],
        scale_format=words["scale"],
        include=checked.names(op, "include", include),
        exclude=checked.names(op, "exclude", exclude),
        recipe_for=[],
        share=True,
        bf16_scales=True,
        clamp_non_finite=False,
        shard_bytes=0,
    )
    if isinstance(x, str) or hasattr(x, "__fspath__"):
        return Sweep(
            _octavo.sweep_checkpoint(
                checked.path(op, "x", x),
                axes,
                plan,
                threads=checked.threads(op, threads),
                max_memory=checked.size(op, "max_memory", max_memory),
                progress=checked.called(op, progress),
            )
        )
    source = _on_cpu(x, op)
    return Sweep(
        _octavo.sweep_array(
            source.view(value_kind(source, op)),
            axes,
            plan,
            title=checked.word(op, "title", title),
            threads=integer(threads, "threads", MOST_THREADS, op),
        )
    )


def _text(op: str, option: str, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise TypeError(f"[{op}] got {option}={value!r}; expected a str, or an int for a tile")
    return checked.word(op, option, value)


def choose_format(x: Any, scaling: str | Scaling, *, threads: int = 0) -> Scaling:
    """The scaling with that one of e4m3fn and e5m2 which has less squared error on x.

        >>> octavo.quantize(x, octavo.choose_format(x, "fp8"))

    Both are tried on all values; of equals it is e4m3fn. quantize_checkpoint(format="auto") does
    this for each tensor.
    """
    op = "choose_format"
    source = _on_cpu(x, op)
    return _octavo.choose_format(
        source.view(value_kind(source, op)),
        as_scaling(scaling, op),
        threads=integer(threads, "threads", MOST_THREADS, op),
    )
