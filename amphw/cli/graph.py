"""`amphw graph`: a model's static graph as text, as a drawing, as a page to zoom in, or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amphw.cli.options import ConfigOption, ModelArgument, SetOption
from amphw.cli.output import remarks

if TYPE_CHECKING:
    from amphw.ir.graph import Graph

_SUFFIXES = (".html", ".svg", ".json", ".txt")

_WIDE = "body { max-width: none; }\nh1 { margin: 0 0 12px; }\n"


def graph(
    model: ModelArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="A .html, .svg, .json or .txt file; without it, text on stdout."
        ),
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    fused: Annotated[
        bool, typer.Option("--fused", help="After fusing neighbouring nodes, as a CPU runs it.")
    ] = False,
    passes: Annotated[
        list[str] | None,
        typer.Option(
            "--pass",
            metavar="PASS",
            help="Transform the graph: fuse, fold, tile=N, tile=NODE:N or replicate=NODE:N; repeatable, in "
            "this order.",
        ),
    ] = None,
) -> None:
    """Show a model's graph: its nodes, their programs' parameters, and the state that each edge carries."""
    if out is not None and out.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f"{out}: expected a file that ends in {', '.join(_SUFFIXES)}", param_hint="--out"
        )
    from amphw.host.config import resolve
    from amphw.models import get_model

    found = get_model(model)
    cfg = resolve(found.config, found.defaults, config, settings or ())
    made = found.graph(cfg.model)
    for text in [*(passes or ()), *(["fuse"] if fused else [])]:
        from amphw.ir.passes import by_name

        made = by_name(text)(made)
    if out is None:
        print(made)
        return
    from amphw.host.run_folder import write_atomic

    write_atomic(out, _rendered(made, out.suffix.lower()).encode("utf-8"))
    remarks().print(f"wrote {out}: {len(made.nodes)} nodes, {len(made.edges)} edges")


def _rendered(made: Graph, suffix: str) -> str:
    if suffix == ".svg":
        from amphw.ir.draw import to_svg

        return to_svg(made)
    if suffix == ".html":
        from amphw.ir.draw import to_svg
        from amphw.ir.zoom import zoomable
        from amphw.page.html import document, text

        title = f"Graph of {made.name}"
        return document(title, [f"<h1>{text(title)}</h1>", zoomable(to_svg(made), fill=True)], _WIDE)
    if suffix == ".json":
        from amphw.ir.serialise import graph_to_json

        return json.dumps(graph_to_json(made), indent=2) + "\n"
    return f"{made}\n"
