"""How formats, quantized tensors and reports look in a notebook: small tables without a style
sheet, whose colours are those of the page, so that they fit light and dark themes. All texts are
escaped: names of tensors come from files."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from octavo._octavo import Format
    from octavo._quantized import QuantizedTensor

_CELL: Final = "padding:2px 8px;text-align:left;border-bottom:1px solid rgba(128,128,128,.4)"
_BIT: Final = (
    "display:inline-block;width:1.3em;text-align:center;border:1px solid rgba(128,128,128,.6)"
)
# Of sign, exponent and mantissa: transparent, so that the text keeps the page's colour.
_FIELDS: Final = {"S": "rgba(214,96,77,.4)", "E": "rgba(67,147,195,.4)", "M": "rgba(127,188,65,.4)"}


def table(title: str, rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """Rows of texts; the first cell of each is its name."""
    lines = [_row("th", head)] if head else []
    lines += [_row("td", row) for row in rows]
    return (
        f'<div style="color:inherit"><b>{_text(title)}</b><table style="border-collapse:collapse;'
        f'color:inherit;background:transparent">{"".join(lines)}</table></div>'
    )


def of_format(format: Format) -> str:
    """Its bits, and what numpy.finfo would say."""
    fields = "S" * format.is_signed + "E" * format.exponent_bits + "M" * format.mantissa_bits
    bits = "".join(f'<span style="{_BIT};background:{_FIELDS[one]}">{one}</span>' for one in fields)
    has = {
        "infinity": format.has_inf,
        "NaN": format.has_nan,
        "subnormals": format.has_subnormals,
        "minus zero": format.has_negative_zero,
    }
    rows: list[tuple[str, Any]] = [
        ("bits", format.bits),
        ("bias", format.bias),
        ("largest", f"{format.max:g}"),
        ("smallest normal", f"{format.smallest_normal:g}"),
        ("smallest", f"{format.smallest_subnormal:g}"),
        ("eps", f"{format.eps:g}"),
        ("has", ", ".join(name for name, there in has.items() if there) or "none of these"),
    ]
    if format.note:
        rows.append(("use", format.note))
    return f"<div>{table(f'octavo.Format {format.name}', rows)}<div>{bits}</div></div>"


def of_quantized(q: QuantizedTensor) -> str:
    """What it holds; no number of it is read, so that a device is not waited for."""
    handle = q._handle
    count = 1
    for size in q.shape:
        count *= size
    rows = [("of", f"{q.shape} from {handle.source}"), ("scaling", str(q.scaling))]
    for name in ("codes", "scales", "columnwise_codes", "columnwise_scales"):
        part = getattr(handle, name)
        if part is not None:
            kind = part.kind if isinstance(part.kind, str) else part.kind.name
            packed = ", packed" if part.packed else ""
            rows.append((name.replace("_", " "), f"{tuple(part.shape)} {kind}{packed}"))
    each = f", {8 * q.nbytes / count:.2f} bits a value" if count else ""
    rows += [("memory", f"{q.nbytes:,} bytes{each}"), ("device", q.device)]
    return table("octavo.QuantizedTensor", rows)


def _row(kind: str, cells: Sequence[Any]) -> str:
    made = "".join(f'<{kind} style="{_CELL}">{_text(cell)}</{kind}>' for cell in cells)
    return f"<tr>{made}</tr>"


def _text(value: Any) -> str:
    return html.escape(str(value))
