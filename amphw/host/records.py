"""What a training run reports: plain records, without behaviour beyond (de)serialisation.

Everything that shows a run (progress, plots, report, metrics file) reads these records, so that no two of
them disagree about what a number means. Units are in the names or in the field comments: seconds are
wall-clock training time without validation, microseconds are on the clock of the device that made the slice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, get_args

from amphw.ir.limits import BUSY, waiting

Direction = Literal["forward", "backward", "infer", "update"]
DIRECTIONS: tuple[str, ...] = get_args(Direction)

# Metrics are known by name only; a name that holds one of these words improves downwards.
_LOWER_IS_BETTER = ("loss", "error", "mae", "mse", "rmse", "perplexity")


EPOCHS, TARGET, PATIENCE, INTERRUPT, DATA = "epochs", "target", "patience", "interrupt", "data"
"""Values of `RunSummary.stopped_by`: what ended a run."""

THEN = ", then "
"""Between the devices of a run that had to change them."""


@dataclass(slots=True)
class Slice:
    """One uninterrupted piece of work of one worker: a frame of messages through a node, or an update.

    `rows` is the number of messages (rows) in the frame. `flow_out` names the message batch that the slice
    produced and `flow_in` the one that it consumed; the ids join producer to consumer in the trace. One slice
    makes a `flow_out`; any number may consume it.
    """

    worker: int
    node: str
    direction: Direction
    start_us: float
    duration_us: float
    rows: int
    flow_in: int | None = None
    flow_out: int | None = None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


@dataclass(slots=True)
class RankFigures:
    """What one of several ranks did since its figures were last told.

    `instances` are those that it trained on, in what the model counts. `compute`, `wait` (for other ranks)
    and `transfer` (exchanging with them) are seconds of training; `sent` and `received` are bytes of values.
    Staleness is in versions, NaN for a rank that trains nothing. `gather` is what of `transfer` went into
    bringing all that servers own to the first rank, to be saved.
    """

    rank: int
    instances: float
    compute: float
    wait: float
    transfer: float
    sent: float
    received: float
    staleness_p50: float
    staleness_p99: float
    gather: float = 0.0

    @property
    def instances_per_s(self) -> float:
        seconds = self.compute + self.wait + self.transfer
        return self.instances / seconds if seconds > 0 else math.nan

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankFigures:
        """The inverse of `json_safe`; a null number reads as NaN. Raises ValueError naming absent fields."""
        values: dict[str, Any] = {name: _number(value) for name, value in _known(cls, data).items()}
        return cls(**values | {"rank": int(values["rank"])})

    def after(self, earlier: RankFigures) -> RankFigures:
        """Those of both stretches; staleness is that of the later one."""
        summed = {name: getattr(self, name) + getattr(earlier, name) for name in _SUMMED}
        return RankFigures(
            self.rank, **summed, staleness_p50=self.staleness_p50, staleness_p99=self.staleness_p99
        )


_SUMMED = ("instances", "compute", "wait", "transfer", "sent", "received", "gather")
"""The fields of `RankFigures` that add up over time."""


@dataclass(slots=True)
class EpochRecord:
    """The state of a run at the end of one epoch.

    `instances` and `seconds` count from the start of training, so they are the x axes of convergence plots.
    `staleness_nodes` maps a node to its (p50, p99), in parameter versions between forward and backward
    (DESIGN: versions, intervals, staleness). `utilisation` is the busy share 0..1 of each worker. `live` is
    the running estimate of the validation metrics when the epoch's training ended, on parameters that were
    moving; empty without `train.live_valid`. `ranks` has what each rank did in the epoch, where there were
    several.
    """

    epoch: int
    instances: int
    seconds: float
    train_loss: float
    train: dict[str, float]
    valid: dict[str, float]
    instances_per_s: float
    staleness_p50: float
    staleness_p99: float
    staleness_nodes: dict[str, tuple[float, float]]
    utilisation: list[float]
    keys_in_flight: float
    live: dict[str, float] = field(default_factory=dict)
    ranks: list[RankFigures] = field(default_factory=list)

    @property
    def busy(self) -> float:
        """Mean busy share of the workers whose share is known; NaN where none is."""
        return mean_known(self.utilisation)

    def limit(self) -> str:
        """What limited the throughput, as far as the workers tell; "" where they tell nothing."""
        if not math.isfinite(self.busy):
            return ""
        return "workers are always busy" if self.busy >= BUSY else waiting(self.keys_in_flight, "workers")

    def to_json(self) -> dict[str, Any]:
        """The record as strict JSON values (NaN and infinities are null)."""
        return dict(json_safe(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EpochRecord:
        """The inverse of `to_json`; a null number reads as NaN. Raises ValueError naming absent fields."""
        values = _known(cls, data)
        values["staleness_nodes"] = {
            node: (_number(pair[0]), _number(pair[1])) for node, pair in values["staleness_nodes"].items()
        }
        values["train"] = {name: _number(value) for name, value in values["train"].items()}
        values["valid"] = {name: _number(value) for name, value in values["valid"].items()}
        values["live"] = {name: _number(value) for name, value in values.get("live", {}).items()}
        values["ranks"] = [RankFigures.from_json(each) for each in values.get("ranks", [])]
        values["utilisation"] = [_number(value) for value in values["utilisation"]]
        for name in (
            "seconds",
            "train_loss",
            "instances_per_s",
            "staleness_p50",
            "staleness_p99",
            "keys_in_flight",
        ):
            values[name] = _number(values[name])
        return cls(**values)


@dataclass(slots=True)
class RunSummary:
    """What a finished (or stopped) run amounts to.

    `staleness` has keys p50 and p99 (versions); `messages` has forward, backward and lost (counts);
    `stopped_by` says in a word or two why training ended ("target", "epochs", "interrupt", ...). `metric`
    and `target` are the validation metric and value that the run was trained towards, where it had any.
    `counted` is what throughputs and instances are of, in the plural ("sequences").

    `instances_per_s` is that of the last stretch, since the run began, went on or changed its device (of all
    of it where nothing was left to train); `device` names the devices since it began or went on. `ran` has a
    line for each stretch, also before: from which epoch on which device, and which nodes on which of several.
    `staleness_rows` counts the gradient rows of the last epoch by node and by versions behind.
    """

    model: str
    device: str
    epochs: int
    instances_per_s: float
    target_reached: bool
    valid: dict[str, float]
    staleness: dict[str, float]
    messages: dict[str, int]
    run_dir: str
    history: list[EpochRecord] = field(default_factory=list)
    stopped_by: str = ""
    metric: str | None = None
    target: float | None = None
    ran: list[str] = field(default_factory=list)
    counted: str = "instances"
    staleness_rows: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def last_device(self) -> str:
        """The one that `instances_per_s` is of."""
        return self.device.rpartition(THEN)[2]

    def to_json(self) -> dict[str, Any]:
        """The summary as strict JSON values (NaN and infinities are null), one key per field."""
        return dict(json_safe(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSummary:
        """The inverse of `to_json`; a null number reads as NaN. Raises ValueError naming absent fields."""
        values = _known(cls, data)
        values["instances_per_s"] = _number(values["instances_per_s"])
        values["valid"] = {name: _number(value) for name, value in values["valid"].items()}
        values["staleness"] = {name: _number(value) for name, value in values["staleness"].items()}
        values["history"] = [EpochRecord.from_json(record) for record in values.get("history", [])]
        values["staleness_rows"] = rows_by_node(values.get("staleness_rows", {}))
        return cls(**values)

    def reached_at(self) -> EpochRecord | None:
        """The epoch that first met the target, or None if the run did not meet it or kept no history.

        Without a recorded metric and target, a run that met its target is taken to have stopped there.
        """
        if self.metric is not None and self.target is not None:
            return first_reaching(self.history, self.metric, self.target)
        return self.history[-1] if self.target_reached and self.history else None


def rows_by_node(data: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    """`RunSummary.staleness_rows` from what JSON makes of it, whose names are texts."""
    return {node: {int(behind): int(n) for behind, n in rows.items()} for node, rows in data.items()}


def mean_known(shares: Sequence[float]) -> float:
    """The mean of those that are known; NaN where none is."""
    known = [share for share in shares if math.isfinite(share)]
    return sum(known) / len(known) if known else math.nan


def higher_is_better(metric: str) -> bool:
    """Whether a metric of this name improves upwards (accuracy, F1) rather than downwards (loss, MAE)."""
    return not any(word in metric.lower() for word in _LOWER_IS_BETTER)


def first_reaching(history: Sequence[EpochRecord], metric: str, target: float) -> EpochRecord | None:
    """The first record whose validation `metric` is at least as good as `target`; None if there is none."""
    up = higher_is_better(metric)
    for record in history:
        value = record.valid.get(metric, math.nan)
        if (value >= target) if up else (value <= target):
            return record
    return None


def json_safe(value: Any) -> Any:
    """`value` in strict JSON types: dataclasses, tuples and numpy scalars and arrays converted, NaN and inf
    null.

    Raises TypeError, naming the type, for a value that JSON cannot hold.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return json_safe(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_safe(item) for item in value]
    if hasattr(value, "tolist"):  # numpy, without importing it here
        return json_safe(value.tolist())
    if hasattr(value, "__fspath__"):
        return str(value)
    raise TypeError(
        f"cannot write a {type(value).__name__} as JSON: {value!r}; convert it to numbers or text first"
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _known(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `data` that are fields of `cls`; a later version's extra keys are passed over."""
    names = [entry.name for entry in fields(cls)]
    optional = {"history", "stopped_by", "metric", "target", "live", "counted", "ranks", "staleness_rows"}
    absent = [name for name in names if name not in data and name not in optional]
    if absent:
        raise ValueError(f"{cls.__name__} lacks {', '.join(absent)}; was this file written by amphw?")
    return {name: data[name] for name in names if name in data}
