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
    handle = _octavo.quantize_checkpoint(
        os.fspath(model),
        os.fspath(out),
        recipe=recipe,
        target=target,
        format=format or "",
        scale_rule=scale_rule or "",
        arith=arith or "",
        scale_policy=scale_policy or "",
        scale_format=scale_format or "",
        include=_names("include", include),
        exclude=_names("exclude", exclude),
        recipe_for=list((recipe_for or {}).items()),
        share=share,
        bf16_scales=scale_rounding == "bf16",
        clamp_non_finite=nonfinite == "clamp",
        shard_bytes=_size("quantize_checkpoint", "shard_bytes", shard_bytes),
        threads=threads,
        max_memory=_size("quantize_checkpoint", "max_memory", max_memory),
        resume=resume,
        progress=progress,
    )
    return CheckpointReport(handle)


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


def _names(what: str, given: Iterable[str]) -> list[str]:
    if isinstance(given, str):  # a list of its letters is never meant
        raise TypeError(f"[quantize_checkpoint] got {what}={given!r}, wanted a list of expressions")
    return list(given)


def verify_checkpoint(
    model: Path, loaders: Iterable[str] = (), *, tensor_parallel: int = 1, codes: bool = True
) -> list[Finding]:
    """What loaders ("vllm", "transformers", "sglang", "trtllm"; none: all of them) would stumble
    over. No server is run; an empty list is good news. codes: read them all, for NaN."""
    if isinstance(loaders, str):
        loaders = [loaders]
    found = _octavo.verify_checkpoint(
        os.fspath(model), loaders=list(loaders), tensor_parallel=tensor_parallel, codes=codes
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
    return _octavo.convert_checkpoint(
        os.fspath(model),
        os.fspath(out),
        to=target,
        dtype="",
        threads=threads,
        max_memory=_size("convert_checkpoint", "max_memory", max_memory),
        resume=resume,
        clamp_non_finite=False,
        progress=progress,
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
    if dtype not in _DTYPES:
        raise ValueError(
            f"[dequantize_checkpoint] got dtype={dtype!r}, wanted bfloat16, float16 or float32"
        )
    return _octavo.convert_checkpoint(
        os.fspath(model),
        os.fspath(out),
        to="",
        dtype=_DTYPES[dtype],
        threads=threads,
        max_memory=_size("dequantize_checkpoint", "max_memory", max_memory),
        resume=resume,
        clamp_non_finite=nonfinite == "clamp",
        progress=progress,
    )


def compare_checkpoints(
    a: Path, b: Path, *, threads: int = 0, progress: OnProgress | None = None
) -> CheckpointReport:
    """How far b is from a, tensor by tensor; either may be quantized."""
    return CheckpointReport(
        _octavo.compare_checkpoints(os.fspath(a), os.fspath(b), threads=threads, progress=progress)
    )


def inspect(model: Path) -> dict[str, Any]:
    """What is in a checkpoint: {"dialect": None or a name, "tensors": [{"name", "shape", "type",
    "bytes", "quantized", "stored_as"}]}. Codes and scales of a weight are one entry."""
    dialect, tensors = _octavo.inspect_checkpoint(os.fspath(model))
    keys = ("name", "shape", "type", "bytes", "stored_as")
    listed = [dict(zip(keys, tensor)) for tensor in tensors]
    for tensor in listed:
        tensor["quantized"] = bool(tensor["stored_as"])
        tensor["stored_as"] = tensor["stored_as"] or [tensor["name"]]
    return {"dialect": dialect, "tensors": sorted(listed, key=lambda tensor: tensor["name"])}


def dialects() -> list[str]:
    """The targets: whose spelling a checkpoint can be written in."""
    return _octavo.dialect_names()
