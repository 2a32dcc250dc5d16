"""How far a run has come: what a checkpoint holds beside the parameters, so that a run can go on from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amphw.host.meters import Tally
from amphw.host.records import EpochRecord, higher_is_better
from amphw.ir.averaging import MovingAverage


@dataclass
class RunState:
    """Counters of a run. Everything but `tally` and the `epoch_*` counts from the start of training.

    epoch: epochs finished. position: instances of the next epoch that were trained on already. number: of
    the next training instance. size: what `Model.size` counts, trained on. seconds: of training.
    forward, backward: messages in training. staleness: gradient rows by versions behind, all nodes.
    best: best validation value so far, reached in best_epoch. tally, epoch_size, epoch_seconds: of the
    epoch that `position` is in. unmet: instances of it since copies of nodes last met. live: the running
    estimate of the validation metrics when that epoch's training last ended or was stopped. ran: as
    `RunSummary` has it. average: of the parameters, if there is one; tensors beside theirs in a checkpoint,
    not among its counters.
    """

    tally: Tally
    epoch: int = 0
    position: int = 0
    number: int = 0
    size: int = 0
    seconds: float = 0.0
    forward: int = 0
    backward: int = 0
    staleness: Counter[int] = field(default_factory=Counter)
    best: float | None = None
    best_epoch: int = 0
    epoch_size: int = 0
    epoch_seconds: float = 0.0
    unmet: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    live: dict[str, float] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    average: MovingAverage | None = None

    _PLAIN: ClassVar[tuple[str, ...]] = (
        "epoch",
        "position",
        "number",
        "size",
        "seconds",
        "forward",
        "backward",
        "best",
        "best_epoch",
        "epoch_size",
        "epoch_seconds",
    )

    def improves(self, metric: str, value: float) -> bool:
        """Whether a validation value is better than every earlier one."""
        if self.best is None:
            return value == value  # NaN is no value
        return value > self.best if higher_is_better(metric) else value < self.best

    def finish_epoch(self, record: EpochRecord) -> None:
        """Close the epoch that `position` was in."""
        self.history.append(record)
        self.epoch, self.position = record.epoch, 0
        self.tally = self.tally.empty()
        self.epoch_size, self.epoch_seconds, self.live = 0, 0.0, {}

    def goes_on(self, where: str) -> None:
        """A stretch begins there; the same one as before is told once."""
        if not self.ran or self.ran[-1].partition(": ")[2] != where:
            self.ran.append(f"from epoch {self.epoch + 1}: {where}")

    def to_json(self) -> dict[str, Any]:
        """JSON values; floats survive exactly."""
        return {
            **{name: getattr(self, name) for name in self._PLAIN},
            "staleness": {str(behind): rows for behind, rows in sorted(self.staleness.items())},
            "tally": self.tally.to_json(),
            "history": [record.to_json() for record in self.history],
            "live": self.live,
            "unmet": self.unmet,
            "ran": self.ran,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        for name in self._PLAIN:
            setattr(self, name, data[name])
        self.staleness = Counter({int(behind): rows for behind, rows in data["staleness"].items()})
        self.tally.restore(data["tally"])
        self.history = [EpochRecord.from_json(record) for record in data["history"]]
        # Checkpoints of earlier versions have none of these.
        self.unmet = int(data.get("unmet", 0))
        self.live = {str(name): float(value) for name, value in data.get("live", {}).items()}
        self.ran = [str(line) for line in data.get("ran", [])]
