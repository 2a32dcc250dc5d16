"""The checkpoints of a run: when one is due, what it holds, and going on from one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amphw.host import snapshots
from amphw.host.checkpoint import CheckpointError
from amphw.host.config import RunConfig
from amphw.host.config_toml import to_toml
from amphw.host.divergence import DivergedError
from amphw.host.lost_device import Kept
from amphw.host.run_folder import RunFolder
from amphw.host.run_state import RunState
from amphw.ir.averaging import MovingAverage
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.ir.update import NodeParameters

CHECKPOINT = "checkpoint.safetensors"
"""The latest state of a run, in its folder."""
BEST = "best.safetensors"
"""The state with the best validation value."""


class Checkpoints:
    """Those in the run's folder, None: there are none. last: the last good one, also one that was loaded.
    config: the run's, as TOML. model: its name. clock: in seconds, for the age of the last one."""

    def __init__(
        self, folder: RunFolder | None, cfg: RunConfig[Any], model: str, clock: Callable[[], float]
    ) -> None:
        self.folder = folder if cfg.train.checkpoint_every else None
        self.train, self.config, self.model, self.clock = cfg.train, to_toml(cfg), model, clock
        self.last: Path | None = None
        self._at: tuple[int, int] | None = None  # epoch and position of the last one
        self._when = math.inf  # on the clock; nothing is due before the run begins

    def begin(self) -> None:
        """The run begins, and with it the age of the checkpoint that comes next."""
        self._when = self.clock()

    def due(self) -> bool:
        """Whether the last checkpoint is old enough for another one."""
        minutes = self.train.checkpoint_minutes
        return bool(self.folder is not None and minutes and self.clock() - self._when >= 60 * minutes)

    def wanted(self, state: RunState, best: bool, final: bool) -> list[str]:
        """Names of the checkpoints to save now. best: of all epochs; final: of the run."""
        if self.folder is None:
            return []
        names = [BEST] if best else []
        regular = final or self.due() or state.epoch % self.train.checkpoint_every == 0
        return [*names, CHECKPOINT] if regular and _at(state) != self._at else names

    def save(self, names: Sequence[str], state: RunState, device: Device, graph: Graph) -> None:
        """Checkpoints of these names, of a drained device. Raises DivergedError for parameters that are not
        finite."""
        parameters = device.parameters()
        bad = snapshots.first_nonfinite_parameter(parameters)  # which their average cannot outlive
        if bad is not None:
            detail = (
                f"node '{bad[0]}' holds non-finite values in '{bad[1]}'; lower update.lr, or set update.clip"
            )
            raise DivergedError(bad[0], detail, state.epoch + (state.position > 0), self.last)
        for name in names:
            self.last = self._write(name, parameters, graph, state.to_json(), state.average)
        if CHECKPOINT in names:
            self._at, self._when = _at(state), self.clock()

    def save_kept(self, kept: Kept, graph: Graph) -> Path | None:
        """The checkpoint of the last consistent state, written unless it is there; None: none are kept."""
        if self.folder is None:
            return None
        path = self.folder.file(CHECKPOINT)
        if snapshots.first_nonfinite_parameter(kept.parameters) is not None:
            return path if path.exists() else None  # what would not load does not replace what does
        # One taken within the epoch is as consistent, and has more.
        if self._at is None or self._at < kept.at or not path.exists():
            self._write(CHECKPOINT, kept.parameters, graph, kept.counters, kept.average)
        return path

    def saved(self) -> Path | None:
        """The checkpoint that the run is resumed from; None: none was due yet."""
        path = self.folder.file(CHECKPOINT) if self.folder is not None else None
        return path if path is not None and path.exists() else None

    def restore(self, path: Path, state: RunState, device: Device, graph: Graph) -> None:
        """Go on from a checkpoint. Raises CheckpointError for one that does not fit."""
        counters = snapshots.load(path, device, graph, state.average)
        if counters.get("seed") != self.train.seed:
            raise CheckpointError(
                f"{path} comes from a run with train.seed = {counters.get('seed')}, this one has "
                f"{self.train.seed}; its data order would not be continued. Set train.seed as it was"
            )
        try:
            state.restore(counters)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{path} is damaged: its counters cannot be read ({error!r}); use an earlier checkpoint"
            ) from error
        self.last, self._at = path, _at(state)

    def _write(
        self,
        name: str,
        parameters: Mapping[str, NodeParameters],
        graph: Graph,
        counters: Mapping[str, Any],
        average: MovingAverage | None,
    ) -> Path:
        assert self.folder is not None
        path = self.folder.file(name)
        counters = {**counters, "seed": self.train.seed}
        snapshots.save(path, parameters, graph, self.model, self.config, counters, average)
        return path


def _at(state: RunState) -> tuple[int, int]:
    return state.epoch, state.position
