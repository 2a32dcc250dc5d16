"""`amphw rtl --boards`: what each of several boards would hold, and their circuits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amphw.cli.output import emit_json, results, table
from amphw.page.numbers import percent

if TYPE_CHECKING:
    from amphw.library.several_boards import Spread
    from amphw.rtl.build.boards import Board

Build = Callable[[int], dict[str, Any]]
"""Builds the circuit of a board, by its number -> its figures, as those of a board alone."""


def several(spread: Spread, model: str, on: Board, out: Path, build: Build | None, as_json: bool) -> None:
    """Say what each board holds, write the settings of a run, and build the circuits.

    out: the folder, in which each circuit has one of its own, of the name of its device. build: None: nothing
    is built. Raises AmphwError where the folder cannot be written, and what building raises.
    """
    from amphw.rtl.build.board_files import prepare
    from amphw.rtl.numbers.formats import DEFAULT

    prepare(out)
    files = {kind: str(path) for kind, path in spread.write(out).items()}
    facts = _facts(spread, on) | {"files": files}
    say = results()
    if not as_json:
        _show(facts, on)
        for kind, path in files.items():
            say.print(f"{kind}: {path}")
        formats = str(spread.found.formats)
        device = "verilator" if formats == DEFAULT else f"verilator:{formats}"
        simulated = [f"{label}={device}" for label in spread.labels]
        say.print(f"to train on simulated circuits:\n  {train_on(model, files, ['cpu', *simulated])}")
    if build is not None:
        for k, each in enumerate(facts["boards"]):
            each["built"] = build(k)
    if as_json:
        emit_json(facts)
    elif build is not None:
        real = [f"{label}=board:PORT,circuit={out / label}" for label in spread.labels]
        say.print(f"built, a folder for each; to train on them:\n  {train_on(model, files, ['cpu', *real])}")


def train_on(model: str, files: Mapping[str, object], devices: Sequence[str]) -> str:
    """The command that trains on circuits with the settings that they were built with."""
    return f"amphw train {model} --config {files['config']} --device {','.join(devices)}"


def _facts(spread: Spread, on: Board) -> dict[str, Any]:
    first, device = spread.boards[0], spread.cfg.device
    return {
        "model": spread.graph.name,
        "board": on.name,
        "keys": first.keys,
        "lanes": first.plan.sizes.lanes,
        "formats": str(spread.found.formats),
        "tile": device.tile,
        "place": device.place,
        "on_cpu": list(spread.on_host),
        "one_is_enough": spread.alone is not None,
        "chosen": [asdict(each) for each in spread.found.chosen],
        "boards": [
            {
                "device": label,
                "nodes": [u.name for u in fit.plan.partition.units],
                "sizes": asdict(fit.plan.sizes),
                "estimate": asdict(fit.estimate),
                "built": None,
            }
            for label, fit in zip(spread.labels, spread.boards, strict=True)
        ],
    }


def _show(facts: Mapping[str, Any], on: Board) -> None:
    names, there = ("luts", "ffs", "dsps", "brams"), asdict(on.resources)
    headings = [on.resources.NAMES[name] for name in names]
    rows = table("board", "nodes", *headings, right=tuple(headings))
    for each in facts["boards"]:
        taken = each["estimate"]
        shares = (f"{taken[n]:,} ({percent(taken[n] / there[n])})" for n in names)
        rows.add_row(each["device"], ", ".join(each["nodes"]), *shares)
    say = results()
    keys = f"{facts['keys']} key{'s' * (facts['keys'] > 1)}"
    say.print(f"{on.name}, {facts['lanes']} lanes, {facts['formats']}, memory for {keys}; each takes about")
    say.print(rows)
    say.print(f"cpu: {', '.join([*facts['on_cpu'], 'sources, losses and routing'])}")
    if facts["one_is_enough"]:
        say.print(f"One {on.name} is enough for all of it: without --boards.")
