"""Whole checkpoints: quantize, verify, convert, dequantize, compare, inspect."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo import _octavo

Path = str | os.PathLike[str]
# Called a few times a second with bytes done, bytes in all, seconds, and the name of a tensor.
OnProgress = Callable[[int, int, float, str], object]

_DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "f16": "float16",
    "float32": "float32",
    "f32": "float32",
}


class CheckpointReport:
    """What quantizing (or comparing) a checkpoint cost, tensor by tensor.

    tensors: a dict for each, with name, shape, preset, bytes and, where measured, "metrics";
    docs/numerics/metrics.md defines them. bytes_before, bytes_after, bits_per_weight, seconds,
    worst (names, the lowest SQNR first), notes and provenance are of the whole. was_complete: with
    resume=True, an earlier call had done it all; nothing was done, and nothing is measured.
    """

    def __init__(self, handle: Any):
        self._handle = handle
        self._data: dict[str, Any] = json.loads(handle.json())

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._data:
            return self._data[name]
        raise AttributeError(f"CheckpointReport has no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        quantized = sum(tensor["quantized"] for tensor in self.tensors)
        return (
            f"CheckpointReport({self.title!r}, {self.verb}, {quantized} of {len(self.tensors)} tensors"
            f" quantized, {self.bytes_before} -> {self.bytes_after} bytes)"
        )

    def json(self) -> str:
        """All of it, as text."""
        return self._handle.json()

    def html(self) -> str:
        """A page that needs nothing else: tables, a map of layers, histograms."""
        return self._handle.html()


@dataclass(frozen=True)
class Finding:
    """What keeps a loader from reading a checkpoint, or makes it worse than it need be."""

    severity: str  # "error" or "warning"
    loader: str
    rule: str
    tensor: str
    message: str


def quantize_checkpoint(
    model: Path,
    out: Path,
    recipe: str = "fp8-block",
    target: str = "compressed-tensors",
    *,
    format: str | None = None,
    scale_rule: str | None = None,
    arith: str | None = None,
    scale_policy: str | None = None,
    scale_format: str | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    recipe_for: Mapping[str, str] | None = None,
    share: bool = True,
    scale_rounding: str = "bf16",
    nonfinite: str = "error",
    shard_bytes: int | str = 0,
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    progress: OnProgress | None = None,
) -> CheckpointReport:
    """Quantizes a checkpoint into files that servers load, through at most `max_memory`.

    model: a folder with safetensors files, or one file. out: a folder that is not there yet.
    recipe: a preset; target: whose spelling. include, exclude: regular expressions on names;
    recipe_for: regular expression to preset or "none". progress is called with bytes done, bytes in
    all, seconds and a tensor's name; an exception in it, or Ctrl-C, stops the work, and the same
    call with resume=True goes on. Where there is nothing left to do it returns a report that says so
    (was_complete) and has no metrics; compare_checkpoints measures.
    """
    if scale_rounding not in ("bf16", "none"):
        raise ValueError(
            f"[quantize_checkpoint] got scale_rounding={scale_rounding!r}, wanted 'bf16' or 'none'"
        )
    if nonfinite not in ("error", "clamp"):
        raise ValueError(
            f"[quantize_checkpoint] got nonfinite={nonfinite!r}, wanted 'error' or 'clamp'"
        )
    op = "quantize_checkpoint"
    handle = _octavo.quantize_checkpoint(
        _path(op, "model", model),
        _path(op, "out", out),
        recipe=_word(op, "recipe", recipe),
        target=_word(op, "target", target),
        format=_word(op, "format", format),
        scale_rule=_word(op, "scale_rule", scale_rule),
        arith=_word(op, "arith", arith),
        scale_policy=_word(op, "scale_policy", scale_policy),
        scale_format=_word(op, "scale_format", scale_format),
        include=_names(op, "include", include),
        exclude=_names(op, "exclude", exclude),
        recipe_for=_recipes(op, recipe_for),
        share=_flag(op, "share", share),
        bf16_scales=scale_rounding == "bf16",
        clamp_non_finite=nonfinite == "clamp",
        shard_bytes=_size(op, "shard_bytes", shard_bytes),
        threads=_count(op, "threads", threads),
        max_memory=_size(op, "max_memory", max_memory),
        resume=_flag(op, "resume", resume),
        progress=_called(op, progress),
    )
    return CheckpointReport(handle)


def _path(op: str, what: str, given: Path) -> str:
    """The name of a file or folder as text."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted a path: a str or an os.PathLike of one")
    return path


def _word(op: str, what: str, given: str | None) -> str:
    """A word, or "" for None."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted a str")
    return given or ""


def _flag(op: str, what: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted True or False")
    return given


def _count(op: str, what: str, given: int) -> int:
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted an int")
    return operator.index(given)


def _called(op: str, given: OnProgress | None) -> OnProgress | None:
    if given is not None and not callable(given):
        raise TypeError(f"[{op}] got progress={given!r}, wanted a function or None")
    return given


def _size(op: str, what: str, given: int | str) -> int:
    """A number of bytes, or what the command line takes: "64M", "5GiB"."""
    wanted = ", wanted a number of bytes, or a size such as '256M' or '5GiB'"
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s?(?:([KMGT])(?:iB|B)?|B)?\s*", given, re.I)
        if found is None:
            raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
        power = " KMGT".index((found[2] or " ").upper())
        return int(float(found[1]) * 1024**power)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    size = operator.index(given)
    if size < 0:
        raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
    return size


def _names(op: str, what: str, given: Iterable[str]) -> list[str]:
    wanted = ", wanted a list of expressions"
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):  # its letters are not meant
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    names = list(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"[{op}] got {name!r} in {what}{wanted}")
    return names


def _recipes(op: str, given: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"[{op}] got recipe_for={given!r}, wanted a dict of expression to preset")
    for pair in given.items():
        if not all(isinstance(one, str) for one in pair):
            raise TypeError(f"[{op}] got {pair!r} in recipe_for, wanted a str for a str")
    return list(given.items())


def verify_checkpoint(
    model: Path, loaders: Iterable[str] = (), *, tensor_parallel: int = 1, codes: bool = True
) -> list[Finding]:
    """What loaders ("vllm", "transformers", "sglang", "trtllm"; none: all of them) would stumble
    over. No server is run; an empty list is good news. codes: read them all, for NaN."""
    if isinstance(loaders, str):
        loaders = [loaders]
    op = "verify_checkpoint"
    found = _octavo.verify_checkpoint(
        _path(op, "model", model),
        loaders=_names(op, "loaders", loaders),
        tensor_parallel=_count(op, "tensor_parallel", tensor_parallel),
        codes=_flag(op, "codes", codes),
    )
    return [Finding(*finding) for finding in found]


def convert_checkpoint(
    model: Path,
    out: Path,
    target: str,
    *,
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """A quantized checkpoint in another spelling; codes and scales stay what they are."""
    if not target:
        raise ValueError(f"[convert_checkpoint] got no target, wanted one of {dialects()}")
    op = "convert_checkpoint"
    return _octavo.convert_checkpoint(
        _path(op, "model", model),
        _path(op, "out", out),
        to=_word(op, "target", target),
        dtype="",
        threads=_count(op, "threads", threads),
        max_memory=_size(op, "max_memory", max_memory),
        resume=_flag(op, "resume", resume),
        clamp_non_finite=False,
        progress=_called(op, progress),
    )


def dequantize_checkpoint(
    model: Path,
    out: Path,
    dtype: str = "bfloat16",
    *,
    nonfinite: str = "error",
    threads: int = 0,
    max_memory: int | str = 256 << 20,
    resume: bool = False,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    """A quantized checkpoint as ordinary numbers: bfloat16, float16 or float32. A value beyond the
    type is an error that names its tensor, or with nonfinite="clamp" the type's largest value."""
    if nonfinite not in ("error", "clamp"):
        raise ValueError(
            f"[dequantize_checkpoint] got nonfinite={nonfinite!r}, wanted 'error' or 'clamp'"
        )
    if _word("dequantize_checkpoint", "dtype", dtype) not in _DTYPES:
        raise ValueError(
            f"[dequantize_checkpoint] got dtype={dtype!r}, wanted bfloat16, float16 or float32"
        )
    op = "dequantize_checkpoint"
    return _octavo.convert_checkpoint(
        _path(op, "model", model),
        _path(op, "out", out),
        to="",
        dtype=_DTYPES[dtype],
        threads=_count(op, "threads", threads),
        max_memory=_size(op, "max_memory", max_memory),
        resume=_flag(op, "resume", resume),
        clamp_non_finite=nonfinite == "clamp",
        progress=_called(op, progress),
    )


def compare_checkpoints(
    a: Path, b: Path, *, threads: int = 0, progress: OnProgress | None = None
) -> CheckpointReport:
    """How far b is from a, tensor by tensor; either may be quantized."""
    op = "compare_checkpoints"
    return CheckpointReport(
        _octavo.compare_checkpoints(
            _path(op, "a", a),
            _path(op, "b", b),
            threads=_count(op, "threads", threads),
            progress=_called(op, progress),
        )
    )


def inspect(model: Path) -> dict[str, Any]:
    """What is in a checkpoint: {"dialect": None or a name, "tensors": [{"name", "shape", "type",
    "bytes", "quantized", "stored_as"}]}. Codes and scales of a weight are one entry."""
    dialect, tensors = _octavo.inspect_checkpoint(_path("inspect", "model", model))
    keys = ("name", "shape", "type", "bytes", "stored_as")
    listed = [dict(zip(keys, tensor)) for tensor in tensors]
    for tensor in listed:
        tensor["quantized"] = bool(tensor["stored_as"])
        tensor["stored_as"] = tensor["stored_as"] or [tensor["name"]]
    return {"dialect": dialect, "tensors": sorted(listed, key=lambda tensor: tensor["name"])}


def dialects() -> list[str]:
    """The targets: whose spelling a checkpoint can be written in."""
    return _octavo.dialect_names()
