"""`amphw codesign`: number formats, lanes and keys of a circuit, searched together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.option_groups import grouped
from amphw.cli.options import ConfigOption, JsonOption, ModelArgument, SetOption
from amphw.cli.output import emit_json, remarks, results, table
from amphw.page.numbers import number

if TYPE_CHECKING:
    from amphw.library.codesign.search import Found, Point
    from amphw.library.hardware_settings import Recommended
    from amphw.rtl.build.boards import Board

FRONT, PICTURE = "codesign.json", "front.png"


@dataclass(frozen=True)
class Goal:
    """What is looked for"""

    board: Annotated[
        str,
        typer.Option(
            "--board",
            metavar="BOARD",
            help="What it is for: a name, or a file of your own, BOARD.toml; a wrong name lists all.",
        ),
    ] = "ulx3s-85f"
    loss: Annotated[
        float,
        typer.Option(
            "--loss",
            metavar="POINTS",
            help="How much worse than float32 it may become: points of accuracy, or per cent of an error.",
            min=0.0,
        ),
    ] = 1.0
    lanes: Annotated[
        int | None, typer.Option("--lanes", metavar="N", help="Exactly so many multipliers.", min=2, max=64)
    ] = None
    keys: Annotated[
        int | None,
        typer.Option("--keys", metavar="N", help="Exactly so many instances in flight.", min=1, max=4096),
    ] = None


@dataclass(frozen=True)
class Job:
    """What is made of it"""

    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help=f"Folder for {FRONT}, {PICTURE} and what is built."),
    ] = None
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes", metavar="M", help="How long it may take: what does not fit in is left out.",
            min=1.0,
        ),
    ] = 60.0  # fmt: skip
    build: Annotated[
        bool,
        typer.Option(
            "--build",
            help="Then build the chosen circuit, and place two others of the front to see how far estimates "
            "are off. Needs --out.",
        ),
    ] = False


@grouped
def codesign(
    model: ModelArgument,
    goal: Goal,
    job: Job,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search number formats, lanes and keys of a circuit together: by training in the hardware's arithmetic,
    the board's room, and the cycles of the circuit."""
    pin_blas()
    from amphw.ir.errors import AmphwError
    from amphw.library.codesign.making import make, search
    from amphw.models import MODELS, get_model
    from amphw.rtl.build.board_files import check_tools, prepare
    from amphw.rtl.build.boards import board as find_board

    def say(text: str) -> None:
        remarks().print(text)

    if job.build and job.out is None:
        raise AmphwError("--build writes files: say where (--out DIR)")
    on, found = find_board(goal.board), get_model(model)
    if job.out is not None:
        prepare(job.out)
    if job.build:  # what is missing is said before anything takes long
        check_tools(on, simulate=False)
        on.pins()
    chosen, front = search(
        model, found, on, config, settings or (), goal.loss, goal.lanes, goal.keys, job.minutes,
        model not in MODELS, say,
    )  # fmt: skip
    facts = _facts(found.name, on, chosen, front)
    if job.out is not None:
        facts["files"] = _files(job.out, found.name, on, front, facts)
        if job.build:
            facts["built"] = []
            for each in make(chosen, on, front, job.out, say):
                facts["built"].append(each.to_json())
                (job.out / FRONT).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if as_json:
        emit_json(facts)
    else:
        _show(front, facts, on)


def _facts(name: str, on: Board, chosen: Recommended, found: Found) -> dict[str, Any]:
    return {
        "model": name,
        "board": on.name,
        "metric": found.metric,
        "clock_mhz": on.clock_hz / 1e6,
        "float32": {"median": statistics.median(found.reference), "seeds": list(found.reference)},
        "settings": {each.key: each.value for each in chosen.chosen if each.key != "formats"},
        "front": [_point(found, each) for each in found.front],
        "chosen": _point(found, found.chosen) if found.chosen is not None else None,
        "tried": [
            {
                "formats": each.trial.formats or "float32",
                "seed": each.trial.seed,
                "epochs": each.trial.epochs,
                found.metric: each.score,
                "seconds": each.seconds,
                "broke": each.broke,
            }
            for each in found.results
        ],
        "left_out": list(found.left_out),
        "seconds": found.seconds,
        "files": {},
    }


def _point(found: Found, point: Point) -> dict[str, Any]:
    estimate, sizes = point.design.fit.estimate, point.design.fit.plan.sizes
    return {
        found.metric: point.score,
        "seeds": list(point.scores),
        "instances_per_s": point.design.instances_per_s,
        "luts": estimate.luts,
        "ffs": estimate.ffs,
        "dsps": estimate.dsps,
        "brams": estimate.brams,
        "formats": str(point.formats),
        "lanes": sizes.lanes,
        "keys": point.design.fit.keys,
        "gives_up": _gives_up(found, point),
    }


def _gives_up(found: Found, point: Point) -> str:
    """Against the best of each kind that there is."""
    from amphw.library.codesign.formats import goodness, lost

    fastest = max(p.design.instances_per_s for p in found.front)
    smallest = min(p.luts for p in found.front)
    best = max((p.score for p in found.front), key=lambda score: goodness(score, found.metric))
    unit = "points" if lost(0.0, 1.0, found.metric) > 0 else "per cent"
    said = []
    if point.design.instances_per_s < fastest:
        said.append(f"{1 - point.design.instances_per_s / fastest:.0%} of the speed")
    if (points := lost(point.score, best, found.metric)) > 0.005:
        said.append(f"{points:.2f} {unit} of {found.metric.replace('_', ' ')}")
    if point.luts > smallest:
        said.append(f"{point.luts - smallest:,} look-up tables")
    return ", ".join(said) or "nothing"


def _files(out: Path, name: str, on: Board, found: Found, facts: dict[str, Any]) -> dict[str, str]:
    from amphw.library.codesign.picture import draw

    files = {"front": str(out / FRONT), "picture": str(out / PICTURE)}
    draw(found, f"{name} on {on.name}", out / PICTURE)
    (out / FRONT).write_text(json.dumps(facts | {"files": files}, indent=1) + "\n", encoding="utf-8")
    return files


def _show(found: Found, facts: dict[str, Any], on: Board) -> None:
    from amphw.rtl.build.fit import shortage

    say = results()
    metric = found.metric.replace("_", " ")
    rows = table(
        "formats", "lanes", "keys", metric, "instances/s", "look-up tables", "gives up",
        right=("lanes", "keys", metric, "instances/s", "look-up tables"),
    )  # fmt: skip
    for each in facts["front"]:
        mark = "* " if each == facts["chosen"] else ""
        rows.add_row(
            f"{mark}{each['formats']}", str(each["lanes"]), str(each["keys"]), number(each[found.metric]),
            f"{each['instances_per_s']:,.0f}", f"{each['luts']:,}", each["gives_up"],
        )  # fmt: skip
    say.print(rows)
    for point in found.front:
        if wanted := shortage(point.design.fit.estimate, on, estimated=True):
            what = f"{point.formats}, {point.design.fit.plan.sizes.lanes} lanes"
            say.print(f"may be too large ({what}): by the estimate it needs {wanted}; --build tells")
    reference = facts["float32"]
    say.print(f"float32: {metric} {number(reference['median'])}, {_seeds(reference['seeds'])}")
    say.print(f"clock: {number(facts['clock_mhz'])} MHz, assumed; what its link takes is not in these rates")
    if found.chosen is None:
        say.print("chosen: none, all lose more than --loss allows; choose more, or more epochs")
    else:
        lost = found.lost(found.chosen)
        said = (
            f"{abs(lost):.2f} {'below' if lost > 0 else 'above'} float32"
            if abs(lost) >= 0.005
            else "as float32"
        )
        sizes = found.chosen.design.fit.plan.sizes
        say.print(
            f"chosen (*): {found.chosen.formats}, {sizes.lanes} lanes, {found.chosen.design.fit.keys} keys: "
            f"{said}, {_seeds(found.chosen.scores)}"
        )
    for text in found.left_out:
        say.print(f"left out for want of time (--minutes): {text}")
    for each in facts.get("built", ()):
        what = f"{each['formats']}, {each['lanes']} lanes"
        if each["refused"]:
            say.print(f"not built: {what}: {each['refused']}")
            continue
        timing = f"; timing allows {number(each['fmax_mhz'])} MHz" if each["fmax_mhz"] is not None else ""
        say.print(
            f"built: {what}, in {each['folder']}: {each['luts']:,} look-up tables, the estimate was "
            f"{each['error']:+.1%} off{timing}"
        )
    for kind, path in facts["files"].items():
        say.print(f"{kind}: {path}")


def _seeds(scores: Sequence[float]) -> str:
    return f"median of {len(scores)} seeds" if len(scores) > 1 else "with one seed"
