"""How far a run has come: what a checkpoint holds beside the parameters, so that a run can go on from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amphw.host.meters import Tally
from amphw.host.records import EpochRecord, higher_is_better, rows_by_node
from amphw.ir.averaging import MovingAverage


@dataclass
class RunState:
    """Counters of a run. Everything but `tally` and the `epoch_*` counts from the start of training.

    epoch: epochs finished. position: instances of the next epoch that were trained on already. number: of
    the next training instance. size: what `Model.size` counts, trained on. seconds: of training.
    forward, backward: messages in training. staleness: gradient rows by versions behind, all nodes.
    best: best validation value so far, reached in best_epoch. best_loss: the least validation loss with it,
    in that epoch or in a later one. tally, epoch_size, epoch_seconds: of the epoch that `position` is in.
    unmet: instances of it since copies of nodes last met. live: the running estimate of the validation
    metrics when that epoch's training last ended or was stopped. ran, staleness_rows: as `RunSummary` has
    them. average: of the parameters, if there is one; tensors beside theirs in a checkpoint, not among its
    counters.
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
    best_loss: float | None = None
    epoch_size: int = 0
    epoch_seconds: float = 0.0
    unmet: int = 0
    history: list[EpochRecord] = field(default_factory=list)
    live: dict[str, float] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    staleness_rows: dict[str, dict[int, int]] = field(default_factory=dict)
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

    def validated(self, metric: str, valid: Mapping[str, float], epoch: int) -> bool:
        """Note what an epoch was validated to -> whether its parameters are the best so far.

        Of epochs with the same value the one with the least loss is; it is no reason to train on, however.
        """
        value, loss = valid.get(metric, math.nan), valid.get("loss", math.nan)
        if self._improves(metric, value):
            self.best, self.best_epoch = value, epoch
            self.best_loss = loss if math.isfinite(loss) else None
            return True
        if value != self.best or self.best_loss is None or not loss < self.best_loss:
            return False
        self.best_loss = loss
        return True

    def _improves(self, metric: str, value: float) -> bool:
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
            "best_loss": self.best_loss,
            "unmet": self.unmet,
            "ran": self.ran,
            "staleness_rows": {
                node: {str(behind): count for behind, count in rows.items()}
                for node, rows in self.staleness_rows.items()
            },
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        for name in self._PLAIN:
            setattr(self, name, data[name])
        self.staleness = Counter({int(behind): rows for behind, rows in data["staleness"].items()})
        self.tally.restore(data["tally"])
        self.history = [EpochRecord.from_json(record) for record in data["history"]]
        # Checkpoints of earlier versions have none of these.
        self.best_loss = data.get("best_loss")
        self.unmet = int(data.get("unmet", 0))
        self.live = {str(name): float(value) for name, value in data.get("live", {}).items()}
        self.ran = [str(line) for line in data.get("ran", [])]
        self.staleness_rows = rows_by_node(data.get("staleness_rows", {}))
