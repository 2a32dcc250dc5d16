"""A page that needs nothing else: no network, no script, no other file. Light and dark, wide and narrow.

Everything that is given as text is escaped; what is given as markup is named so.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from importlib import resources

from amphw.page.style import STYLE

SHORT = 18
"""Letters of a row's heading that is not broken."""

LONG = ' class="long"'


class Markup(str):
    """Text that is markup already, as a cell of a table."""


def text(value: str) -> str:
    """Escaped, for markup and attributes."""
    return value if isinstance(value, Markup) else html.escape(value, quote=True)


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """The page. body: pieces of markup. style: CSS beside `STYLE`."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def part(package: str, name: str) -> str:
    """A file of a page's package: markup, style or script that is written as such."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def note(sentence: str) -> str:
    """A paragraph of plain text."""
    return f'<p class="note">{text(sentence)}</p>'


def tiles(found: Sequence[tuple[str, str, str]]) -> str:
    """The few numbers to read first: (name, value, detail) of each."""
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><div class="name">{text(name)}</div><div class="value">{text(value)}</div>'
            f'<div class="detail">{text(detail)}</div></div>'
            for name, value, detail in found
        )
        + "</div>"
    )


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[str] = (),
    long: Collection[str] = (),
) -> str:
    """Texts in a box that scrolls where it is too wide. The first of a row is its heading. right: columns of
    numbers; long: of sentences. Without columns there is no row of headings."""
    kinds = {**dict.fromkeys(right, ' class="number"'), **dict.fromkeys(long, LONG)}
    side = [kinds.get(name, "") for name in columns]
    cells = [
        f'<tr><th scope="row"{LONG if len(first) > SHORT else ""}>{text(first)}</th>'
        + "".join(
            f"<td{side[k] if columns else ''}>{text(value)}</td>" for k, value in enumerate(others, start=1)
        )
        + "</tr>\n"
        for first, *others in rows
    ]
    head = "".join(
        f'<th scope="col"{which}>{text(name)}</th>' for name, which in zip(columns, side, strict=True)
    )
    head = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<div class="scroll"><table>{head}<tbody>{"".join(cells)}</tbody></table></div>'
