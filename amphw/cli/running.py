"""One run, from a resolved configuration to the files that it leaves: what `train` and `demo` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amphw.cli.artifacts import write_artifacts
from amphw.cli.interrupt import stopping

if TYPE_CHECKING:
    from amphw.host.config import RunConfig
    from amphw.host.records import RunSummary
    from amphw.host.run_folder import RunFolder
    from amphw.host.trace import Trace

INTERRUPT = "interrupt"
"""`RunSummary.stopped_by` of a run that Ctrl-C stopped."""


@dataclass
class Outcome:
    """A finished run. `written`: paths by kind (report, gantt, convergence, trace)."""

    folder: RunFolder
    summary: RunSummary
    trace: Trace | None
    written: dict[str, Path]

    @property
    def interrupted(self) -> bool:
        return self.summary.stopped_by == INTERRUPT


def run_once(
    model: Any, cfg: RunConfig[Any], device: str, folder: RunFolder, label: str, resume: Path | None = None
) -> Outcome:
    """Train once on a device made for this run, with progress on stderr and Ctrl-C in two steps."""
    from amphw.host.controller import Trainer
    from amphw.host.devices import make_device
    from amphw.host.progress import Progress
    from amphw.host.trace import Trace

    trace = Trace() if cfg.train.trace else None
    runner = make_device(device)
    with Progress(None, cfg.train.epochs, label) as progress:
        trainer = Trainer(model, cfg, runner, folder, progress=progress, trace=trace)
        with stopping(trainer.stop, progress.note):
            summary = trainer.run(resume=resume)
    return Outcome(folder, summary, trace, write_artifacts(folder, summary, trace))
