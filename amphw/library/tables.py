"""Tables in notebooks, which look alike in all of them: Jupyter gives tables a style, and marimo none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from html import escape

CELL = "padding: 3px 10px; vertical-align: top; text-align: "


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> str:
    """Texts as markup; the first of a row is its heading. right: columns of numbers. Without columns there is
    no row of headings."""
    sides = ["right" if name in right else "left" for name in columns]
    head = "".join(
        f'<th style="{CELL}{side}">{escape(name)}</th>' for name, side in zip(columns, sides, strict=True)
    )
    body = "".join(
        f'<tr><th style="{CELL}left">{escape(first)}</th>'
        + "".join(
            f'<td style="{CELL}{sides[k] if sides else "left"}">{escape(each)}</td>'
            for k, each in enumerate(others, start=1)
        )
        + "</tr>"
        for first, *others in rows
    )
    head = f"<thead><tr>{head}</tr></thead>" if columns else ""
    # What is too wide scrolls in a box of its own, as on a phone.
    return f'<div style="overflow-x: auto"><table>{head}<tbody>{body}</tbody></table></div>'
