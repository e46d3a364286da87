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


_MOST_DEVICES = 4096  # that verify splits matrices over, as the command line has it


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
        if self.verb == "plan":
            raise ValueError("[html] got a plan, wanted a report: nothing is measured with dry_run=True")
        return self._handle.html()


class LimitMissed(RuntimeError):
    """A limit of fail_if is missed. The work is done and its files are written; report has all of it."""

    def __init__(self, message: str, report: CheckpointReport):
        super().__init__(message)
        self.report = report


class _Plan:
    """What a CheckpointReport needs of a plan."""

    def __init__(self, text: str):
        self._text = text

    def json(self) -> str:
        return self._text


@dataclass(frozen=True)
class Finding:
    """What keeps a loader from reading a checkpoint, or makes it worse than it need be."""

    severity: str  # "error" or "warning"
    loader: str
    rule: str
    tensor: str
    message: str


class Findings(list[Finding]):
    """The findings of verify_checkpoint, and what stands behind them: good (no errors), quantized,
    dialect, weights, checked (what was looked at) and loaders (errors and warnings of each)."""

    def __init__(self, said: dict[str, Any]):
        super().__init__(Finding(**finding) for finding in said["findings"])
        self.good: bool = said["good"]
        self.quantized: bool = said["quantized"]
        self.dialect: str | None = said["dialect"]
        self.weights: int = said["weights"]
        self.checked: dict[str, Any] = said["checked"]
        self.loaders: dict[str, dict[str, Any]] = said["loaders"]


def quantize_checkpoint(
    model: Path,
    out: Path | None = None,
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
    dry_run: bool = False,
    fail_if: Iterable[str] = (),
    progress: OnProgress | None = None,
) -> CheckpointReport:
    """Quantizes a checkpoint into files that servers load, through at most `max_memory`.

    model: a folder with safetensors files, or one file. out: a folder that is not there yet.
    dry_run: write nothing, and give the plan: tensors with what becomes of each, files, sizes; it
    has the verb "plan" and no metrics. fail_if: limits such as "cosine<0.999"; where a tensor misses
    one, LimitMissed is raised when all is written.
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
    limits = _limits(op, fail_if)
    options = _octavo.plan_options(
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
    )
    source = _path(op, "model", model)
    work = {
        "threads": _threads(op, threads),
        "max_memory": _size(op, "max_memory", max_memory),
        "resume": _flag(op, "resume", resume),
        "progress": _called(op, progress),
    }
    if _flag(op, "dry_run", dry_run):
        return CheckpointReport(_Plan(_octavo.plan_checkpoint(source, options)))
    if out is None:
        raise TypeError(f"[{op}] got no out; say where it goes, or dry_run=True for the plan alone")
    handle = _octavo.quantize_checkpoint(source, _path(op, "out", out), options, **work)
    return _within(op, CheckpointReport(handle), limits)


def _limits(op: str, fail_if: Iterable[str]) -> list[str]:
    limits = _names(op, "fail_if", [fail_if] if isinstance(fail_if, str) else fail_if)
    for limit in limits:
        try:
            _octavo.check_limit(limit)
        except ValueError as error:
            raise ValueError(f"[{op}] fail_if: {str(error).removeprefix('[limit] ')}") from None
    return limits


def _within(op: str, report: CheckpointReport, limits: list[str]) -> CheckpointReport:
    if limits and report.was_complete:
        raise ValueError(
            f"[{op}] got fail_if, and the folder was complete: nothing was measured; compare_checkpoints"
            " measures it, and takes fail_if too"
        )
    missed = report._handle.missed(limits)
    if missed:
        said = "; ".join(f"{what} ({limit})" for limit, what in missed)
        raise LimitMissed(f"[{op}] limit missed: {said}", report)
    return report


def _path(op: str, what: str, given: Path) -> str:
    """The name of a file or folder as text."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted a path: a str or an os.PathLike of one")
    return _text(op, what, path, "a path")


def _text(op: str, what: str, given: str, wanted: str) -> str:
    """A text that a system can have for a name: bytes of UTF-8 without NUL."""
    if "\0" in given:  # the system would take what stands before it
        raise ValueError(f"[{op}] got {what}={given!r}, wanted {wanted} without NUL")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"[{op}] got {what}={given!r}, wanted {wanted} that is UTF-8, not bytes of something else"
        ) from None
    return given


def _word(op: str, what: str, given: str | None) -> str:
    """A word, or "" for None."""
    if given is not None and not isinstance(given, str):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted a str")
    return _text(op, what, given, "a str") if given else ""


def _flag(op: str, what: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"[{op}] got {what}={given!r}, wanted True or False")
    return given


def _count(op: str, what: str, given: int, least: int, most: int) -> int:
    wanted = f", wanted an int from {least} to {most}"
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    count = operator.index(given)
    if not least <= count <= most:
        raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
    return count


def _threads(op: str, given: int) -> int:
    return _count(op, "threads", given, 0, _octavo.most_threads())


def _called(op: str, given: OnProgress | None) -> OnProgress | None:
    if given is not None and not callable(given):
        raise TypeError(f"[{op}] got progress={given!r}, wanted a function or None")
    return given


def _size(op: str, what: str, given: int | str) -> int:
    """A number of bytes, or what the command line takes: "64M", "5GiB"."""
    wanted = ", wanted a number of bytes below 2^63, or a size such as '256M' or '5GiB'"
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s?(?:([KMGT])(?:iB|B)?|B)?\s*", given, re.I)
        if found is None:
            raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
        power = " KMGT".index((found[2] or " ").upper())
        size = int(float(found[1]) * 1024**power) if len(found[1]) < 20 else 1 << 63
        if size >= 1 << 63:
            raise ValueError(f"[{op}] got {what}={given!r}{wanted}")
        return size
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"[{op}] got {what}={given!r}{wanted}")
    size = operator.index(given)
    if not 0 <= size < 1 << 63:
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
        _text(op, f"an entry of {what}", name, "a str")
    return names


def _recipes(op: str, given: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(f"[{op}] got recipe_for={given!r}, wanted a dict of expression to preset")
    for pair in given.items():
        if not all(isinstance(one, str) for one in pair):
            raise TypeError(f"[{op}] got {pair!r} in recipe_for, wanted a str for a str")
        for one in pair:
            _text(op, "an entry of recipe_for", one, "a str")
    return list(given.items())


def verify_checkpoint(
    model: Path, loaders: Iterable[str] = (), *, tensor_parallel: int = 1, codes: bool = True
) -> Findings:
    """What loaders ("vllm", "transformers", "sglang", "trtllm"; none: all of them) would stumble
    over. No server is run; an empty list is good news. codes: read them all, for NaN. The list also
    has what `octavo verify --json` says of the whole: good, dialect, weights, checked, loaders."""
    if isinstance(loaders, str):
        loaders = [loaders]
    op = "verify_checkpoint"
    said = _octavo.verify_checkpoint(
        _path(op, "model", model),
        loaders=_names(op, "loaders", loaders),
        tensor_parallel=_count(op, "tensor_parallel", tensor_parallel, 1, _MOST_DEVICES),
        codes=_flag(op, "codes", codes),
    )
    return Findings(json.loads(said))


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
        threads=_threads(op, threads),
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
        threads=_threads(op, threads),
        max_memory=_size(op, "max_memory", max_memory),
        resume=_flag(op, "resume", resume),
        clamp_non_finite=nonfinite == "clamp",
        progress=_called(op, progress),
    )


def compare_checkpoints(
    a: Path,
    b: Path,
    *,
    threads: int = 0,
    fail_if: Iterable[str] = (),
    progress: OnProgress | None = None,
) -> CheckpointReport:
    """How far b is from a, tensor by tensor; either may be quantized. fail_if: limits such as
    "cosine<0.999"; LimitMissed is raised where a tensor misses one."""
    op = "compare_checkpoints"
    limits = _limits(op, fail_if)
    handle = _octavo.compare_checkpoints(
        _path(op, "a", a),
        _path(op, "b", b),
        threads=_threads(op, threads),
        progress=_called(op, progress),
    )
    return _within(op, CheckpointReport(handle), limits)


def inspect(model: Path, *, stats: bool = False) -> dict[str, Any]:
    """What is in a checkpoint, as `octavo inspect --json` has it: path, files, bytes, quantized,
    dialect, problem (None, or why weights could not be told) and tensors, each with name, shape,
    type, bytes, quantized, stored_as and, with stats=True (which reads everything), statistics.
    Codes and scales of a weight are one entry."""
    op = "inspect"
    return json.loads(
        _octavo.inspect_checkpoint(_path(op, "model", model), statistics=_flag(op, "stats", stats))
    )


def dialects() -> list[str]:
    """The targets: whose spelling a checkpoint can be written in."""
    return _octavo.dialect_names()
