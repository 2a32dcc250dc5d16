"""`amphw replay`: a logged run once more, in the order in which it was computed then."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.options import JsonOption
from amphw.cli.output import emit_json, remark, results
from amphw.page.numbers import number

DIFFERS = 1
"""Exit code where the repetition is not equal."""


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that was trained with --log.")],
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="Where to repeat it; without it, where it ran."),
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", metavar="N", help="Stop behind frame N of the log.", min=1)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Repeat a run from its log, on its device or another one, and say where the two first differ."""
    pin_blas()
    from amphw.host.config import resolve
    from amphw.host.devices import make_device
    from amphw.host.log_file import LOG, LogError, read_log
    from amphw.host.placed import fitting
    from amphw.host.progress import Progress
    from amphw.host.replaying import cut, repeat
    from amphw.host.run_folder import RunFolder
    from amphw.library.resuming import saved_settings
    from amphw.models import get_model

    folder = RunFolder.open(run).single()
    log = read_log(folder.file(LOG))
    spec = device or log.about["device"]
    found: Any = get_model(log.about["model"])
    cfg = resolve(found.config, saved_settings(folder))
    if not log.events:
        raise LogError(f"{folder.file(LOG)} holds no event: the run was stopped before it began")
    if not log.whole:
        remark("the log has no end, the run was killed; it is repeated as far as it goes")
    runner = make_device(spec, cut(log.events, until))
    cfg, notes = fitting(cfg, runner)
    for note in notes:
        remark(note)
    try:
        with Progress(None, cfg.train.epochs, found.name, found.counted) as progress:
            outcome = repeat(found, cfg, runner, log, until, folder.path, progress)
    finally:
        runner.close()
    if as_json:
        emit_json(outcome.to_json())
    else:
        _show(outcome)
    if not outcome.equal:
        raise typer.Exit(DIFFERS)


def _show(outcome: Any) -> None:
    say = results()
    steps = f"{number(outcome.steps)} frames repeated on {outcome.device}"
    if outcome.first_difference is not None:
        say.print(f"{steps}: it differs")
        say.print(f"first difference: {outcome.first_difference.what}")
    elif outcome.same_bits:
        say.print(f"{steps}: the same to the bit")
    else:
        say.print(f"{steps}: equal within rounding")
