"""The page of a run that is under way. It asks its server, under `state`, for what `watching.looked` has."""

from __future__ import annotations

from amphw.page.html import document, part, text


def page(title: str) -> str:
    """title: of the run."""
    html, css, script = (part(__package__, f"watch.{kind}") for kind in ("html", "css", "js"))
    return document(title, [f"<h1>{text(title)}</h1>", html, f"<script>\n{script}</script>"], css)
