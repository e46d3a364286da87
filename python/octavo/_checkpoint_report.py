"""Results of the checkpoint functions: the report of its tensors, missed limits, findings of
verify."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from octavo import _octavo
from octavo._checkpoint_arguments import names
from octavo._html import table

_SHOWN: Final = 5  # tensors that print() shows of a report
_FINDINGS_SHOWN: Final = 10  # that a notebook shows


class CheckpointReport:
    """The error of quantizing (or comparing) a checkpoint, tensor by tensor.

    tensors: a dict for each, with name, shape, preset, bytes and, where measured, "metrics";
    docs/numerics/metrics.md defines them. bytes_before, bytes_after, bits_per_weight, seconds,
    worst (names, the lowest SQNR first), notes and provenance are of the whole. was_complete: with
    resume=True, an earlier call had done it all; nothing was done, and nothing is measured. print()
    shows the worst few.
    """

    title: str
    verb: str
    source: str
    output: str
    recipe: str
    target: str
    provenance: dict[str, Any]
    bytes_before: int
    bytes_after: int
    bits_per_weight: float
    seconds: float
    was_complete: bool
    finished_by_another: bool  # of one of several processes with a plan, as the next two
    files_written: int
    files_taken_over: int
    mix: dict[str, Any] | None  # how recipes were chosen, with budget or fit
    written_again: list[str]
    worst: list[str]
    notes: list[str]
    tensors: list[dict[str, Any]]

    def __init__(self, handle: Any, mix: dict[str, Any] | None = None):
        self._handle = handle
        alone = {"finished_by_another": False, "files_written": 0, "files_taken_over": 0}
        self._data: dict[str, Any] = alone | {"mix": mix} | json.loads(handle.json())

    if not TYPE_CHECKING:  # which would take any name for one of these

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and name in self._data:
                return self._data[name]
            raise AttributeError(f"CheckpointReport has no {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __repr__(self) -> str:
        quantized = sum(tensor["quantized"] for tensor in self.tensors)
        return (
            f"CheckpointReport({self.title!r}, {self.verb}, {quantized} of {len(self.tensors)} "
            f"tensors quantized, {self.bytes_before} -> {self.bytes_after} bytes)"
        )

    def __str__(self) -> str:
        """What repr says, and below it the worst tensors."""
        shown, more = self._worst()
        lines = [repr(self), *(f"  {name!r}: {_error(found)}" for name, found in shown.items())]
        if more:
            lines.append(f"  and {more} more, no worse: see .tensors")
        return "\n".join(lines)

    def _worst(self) -> tuple[dict[str, dict[str, Any]], int]:
        """The metrics of a few tensors, and how many there are besides."""
        measured = {one["name"]: one["metrics"] for one in self.tensors if "metrics" in one}
        names = [name for name in self._data.get("worst", []) if name in measured][:_SHOWN]
        return {name: measured[name] for name in names}, len(measured) - len(names)

    def _repr_html_(self) -> str:
        shown, more = self._worst()
        rows = [(name, _error(found)) for name, found in shown.items()]
        if more:
            rows.append((f"and {more} more", "no worse: see .tensors, or the page of .html()"))
        return table(repr(self), rows)

    def json(self) -> str:
        """All of it, as text."""
        return self._handle.json()

    def html(self) -> str:
        """A page that needs nothing else: tables, a map of layers, histograms."""
        if self.verb == "plan":
            raise ValueError(
                "[html] got a plan; expected a report: nothing is measured with dry_run=True"
            )
        return self._handle.html()


class LimitMissed(RuntimeError):
    """A limit of fail_if is missed. The work is done and its files are written; report has all of
    it."""

    def __init__(self, message: str, report: CheckpointReport):
        super().__init__(message)
        self.report = report


class Plan:
    """The part of a plan that a CheckpointReport needs."""

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
    silent: bool = False  # of an error: it loads something else, and says nothing


class Findings(list[Finding]):
    """The findings of verify_checkpoint, and a summary: good, quantized, dialect,
    weights, checked (what was checked) and loaders (errors and warnings of each)."""

    def __init__(self, said: dict[str, Any]):
        super().__init__(Finding(**finding) for finding in said["findings"])
        self.good: bool = said["good"]
        self.quantized: bool = said["quantized"]
        self.dialect: str | None = said["dialect"]
        self.weights: int = said["weights"]
        self.checked: dict[str, Any] = said["checked"]
        self.loaders: dict[str, dict[str, Any]] = said["loaders"]

    def _repr_html_(self) -> str:
        fields = ("severity", "loader", "rule", "tensor", "message")
        rows = [tuple(getattr(one, name) for name in fields) for one in self[:_FINDINGS_SHOWN]]
        if len(self) > len(rows):
            rows.append((f"and {len(self) - len(rows)} more", "", "", "", ""))
        verdict = "good" if self.good else "not good"
        title = f"{verdict}: {len(self)} findings in {self.weights} weights, {self.dialect}"
        return table(title, rows, fields if rows else ())


def _error(metrics: dict[str, Any]) -> str:
    """In a few words; numbers that are not finite are None."""
    said = (
        f"{name} {'not finite' if metrics[key] is None else format(metrics[key], form)}{unit}"
        for key, name, form, unit in (
            ("sqnr", "SQNR", ".1f", " dB"),
            ("cosine", "cosine", ".6f", ""),
            ("max_abs", "off by up to", ".3g", ""),
        )
    )
    return ", ".join(said)


def limits_of(op: str, fail_if: Iterable[str]) -> list[str]:
    limits = names(op, "fail_if", [fail_if] if isinstance(fail_if, str) else fail_if)
    for limit in limits:
        try:
            _octavo.check_limit(limit)
        except ValueError as error:
            raise ValueError(f"[{op}] fail_if: {str(error).removeprefix('[limit] ')}") from None
    return limits


def within(op: str, report: CheckpointReport, limits: list[str]) -> CheckpointReport:
    missed = report._handle.missed(limits)
    if missed:
        said = "; ".join(f"{what} ({limit})" for limit, what in missed)
        raise LimitMissed(f"[{op}] limit missed: {said}", report)
    return report
