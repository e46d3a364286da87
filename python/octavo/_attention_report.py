"""What attention at precision 'auto' chose, and why."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from octavo._html import table

_SHOWN: Final = 5  # choices that print() shows of a report


class AttentionChoice(NamedTuple):
    """The precision chosen for a range of rows of a head, and why."""

    batch: int
    head: int
    first: int
    """The first row."""
    count: int  # type: ignore[assignment]  # hides tuple.count
    precision: str
    n_eff: float
    """1 / sum of squared weights, of the sample row that is likely the most peaked; 2 if none was
    sampled."""
    predicted: float
    """The modelled error of an element of that row, at six standard deviations, corrected by a
    probe."""
    tolerance: float
    """atol, less the rounding error of a 16-bit output."""
    explanation: str

    def _of_tolerance(self) -> float:
        return self.predicted / self.tolerance if self.tolerance else math.inf

    def _in_short(self) -> str:
        return (
            f"batch {self.batch}, head {self.head}, rows {self.first} to "
            f"{self.first + self.count - 1}: {self.precision}, "
            f"modelled error {self.predicted:.2g}, tolerance {self.tolerance:.2g}"
        )


class AttentionAmax(NamedTuple):
    """The largest magnitudes of a call, by which scales may be chosen; NaN where there was one."""

    s: float
    """Of the scores softmax_scale q k, capped, before a bias, of keys that rows see."""
    p: float
    """Of the weights that v is multiplied by, 2^(score - an integer): from 1/2 to 1."""
    o: float
    """Of the result."""


class AttentionReport(NamedTuple):
    """What 'auto' chose."""

    choices: list[AttentionChoice]
    redone: int
    """Rows that failed the posteriori check and were recomputed at a higher precision."""

    def share(self, precision: str) -> float:
        """Fraction of all rows that were computed at this precision."""
        rows = sum(choice.count for choice in self.choices)
        taken = sum(choice.count for choice in self.choices if choice.precision == precision)
        return taken / rows if rows else 0.0

    def __repr__(self) -> str:
        taken = dict.fromkeys(choice.precision for choice in self.choices)
        shares = ", ".join(f"{name} {self.share(name):.1%}" for name in taken)
        return f"AttentionReport({len(self.choices)} choices: {shares}; {self.redone} rows redone)"

    def __str__(self) -> str:
        """What repr says, and below it the choices that are nearest to their tolerance."""
        worst = self._nearest()
        lines = [repr(self), *(f"  {choice._in_short()}" for choice in worst)]
        if len(self.choices) > len(worst):
            rest = len(self.choices) - len(worst)
            lines.append(f"  and {rest} more, no nearer to their tolerance: see .choices")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = ("batch", "head", "rows", "precision", "modelled error", "tolerance")
        rows = [
            (one.batch, one.head, f"{one.first} to {one.first + one.count - 1}", one.precision)
            + (f"{one.predicted:.2g}", f"{one.tolerance:.2g}")
            for one in self._nearest()
        ]
        return table(repr(self), rows, head)

    def _nearest(self) -> list[AttentionChoice]:
        """The choices that are nearest to their tolerance, a few."""
        return sorted(self.choices, key=AttentionChoice._of_tolerance, reverse=True)[:_SHOWN]
