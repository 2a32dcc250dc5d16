"""What one member writes of its parameters: checkpoints of the job, and values for newcomers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amphw.host import snapshots
from amphw.host.checkpointing import BEST, Checkpoints
from amphw.host.config import RunConfig
from amphw.host.config_toml import to_toml
from amphw.host.records import EpochRecord
from amphw.host.run_folder import RunFolder
from amphw.host.run_state import RunState
from amphw.ir.device import Device
from amphw.ir.graph import Graph
from amphw.replicas.ako.message import Member
from amphw.replicas.elastic.board import Coordinating

ASK = 0.05
"""Seconds between questions of a member that has nothing to do."""


class Saving:
    """That of the incarnation `me`. folder: of the run. model: the name of the model."""

    def __init__(
        self, folder: Path, cfg: RunConfig[Any], model: str, me: Member, board: Coordinating, graph: Graph
    ):
        self._folder, self._cfg, self._model, self._graph = folder, cfg, model, graph
        self._me, self._board = me, board
        self._count = 0

    def give(self, device: Device, joiner: Member, round: int) -> None:
        """Write the device's values for a newcomer. round: of this member, which they are of."""
        name = f"members/{joiner.number}/values-{joiner.incarnation}.safetensors"
        counters = {"seed": self._cfg.train.seed, "round": round}
        parameters, settings = device.parameters(), to_toml(self._cfg)
        snapshots.save(self._folder / name, parameters, self._graph, self._model, settings, counters)
        self._board.gave(joiner, name, round)

    def epoch(
        self, device: Device, state: RunState, told: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        """Save after an epoch what is due then. state: an empty one. told: as `Coordinator.validated` has it.
        before: the state of what was trained on when the epoch was to be validated."""
        every = self._cfg.train.checkpoint_every
        if every and told["mine"]:
            self._save(
                device, state, bool(told["best"]), told["epoch"] % every == 0, {**told, "state": before}
            )

    def last(self, device: Device, state: RunState) -> None:
        """Save at the end of the job, where no other member does; state: an empty one."""
        if not self._cfg.train.checkpoint_every:
            return
        while (mine := self._board.saves(self._me)) is None:
            time.sleep(ASK)
        if mine:
            self._save(device, state, False, True, self._board.progress())

    def _save(
        self, device: Device, state: RunState, best: bool, regular: bool, told: Mapping[str, Any]
    ) -> None:
        """told: as `progress` has it."""
        me = self._me
        if not best and not regular:
            return
        self._count += 1
        path = f"members/checkpoint-{me.number}-{me.incarnation}-{self._count}.safetensors"
        state.history = [EpochRecord.from_json(each) for each in told["history"]]
        state.epoch, state.number = told["epoch"], told["number"]
        state.best, state.best_epoch = told["best_value"], told["best_epoch"]
        if state.history:
            state.size, state.seconds = state.history[-1].instances, state.history[-1].seconds
        saves = Checkpoints(RunFolder(self._folder), self._cfg, self._model, time.monotonic)
        saves.save([BEST] * best + [path] * regular, state, device, self._graph)
        if regular:
            self._board.saved(me, path, told["state"])
