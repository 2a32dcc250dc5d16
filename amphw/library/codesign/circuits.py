"""What circuits a board has room for, and how fast each is, before any of them is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from amphw.engine.lowering.lower import lower
from amphw.estimate.count.traffic import Traffic, count
from amphw.estimate.network.devices import Circuit
from amphw.estimate.network.network import Network, seconds_of
from amphw.host.config import RunConfig
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of, update_rules
from amphw.ir.update import UpdateRule
from amphw.models.base import Model
from amphw.rtl.build.boards import Board
from amphw.rtl.build.fit import Fit, fits
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.timing.circuit import Circuits

INSTANCES = 32
"""That the cycles of a circuit are played on."""

PLAYED = 4
"""How often each of them, so that the beginning counts for little."""

NEARLY = 0.99
"""Of the most instances a second: the fewest keys that reach as much are taken."""


@dataclass(frozen=True)
class Design:
    """A circuit that should fit. instances_per_s: of the circuit alone, at the clock that is assumed for the
    board, with a link that never limits it."""

    fit: Fit
    instances_per_s: float


class Bench:
    """Finds circuits of a model with the settings of a run on one, and plays their cycles."""

    def __init__(self, model: Model[Any], cfg: RunConfig[Any], board: Board) -> None:
        self._model, self._cfg, self._board = model, cfg, board
        self._graph = graph_of(model, cfg)
        self._rules: Mapping[str, UpdateRule] = update_rules(cfg, self._graph)
        self._rates: dict[tuple[int, int], float] = {}

    @cached_property
    def _traffic(self) -> Traffic:
        return count(lower(self._graph), chosen_instances(self._model, self._cfg, INSTANCES))

    def designs(self, formats: Formats, lanes: int | None, keys: int | None) -> list[Design]:
        """For each number of lanes that fits, the circuit with the least keys that is as fast as any.

        lanes, keys: exactly so many. Raises FitError where nothing fits, GraphError for what no circuit
        can run.
        """
        return [self._least(fit, formats, keys) for fit in self._fits(formats, lanes, keys)]

    def _least(self, fit: Fit, formats: Formats, keys: int | None) -> Design:
        """With memory for no more keys than it takes."""
        lanes = fit.plan.sizes.lanes
        tried = [fit.keys] if keys is not None else _numbers(fit.keys)
        rates = {many: self._rate(formats, lanes, many) for many in tried}
        least = next(many for many, rate in rates.items() if rate >= NEARLY * max(rates.values()))
        if least != fit.keys:
            [fit] = self._fits(formats, lanes, least)
        return Design(fit, rates[least])

    def _fits(self, formats: Formats, lanes: int | None, keys: int | None) -> list[Fit]:
        train = self._cfg.train
        return fits(
            self._graph, self._rules, formats, self._board, train.max_active_keys, train.max_infer_keys,
            keys, lanes,
        )  # fmt: skip

    def _rate(self, formats: Formats, lanes: int, keys: int) -> float:
        if (lanes, keys) not in self._rates:  # cycles do not depend on formats
            circuit = Circuit(lanes, self._board.clock_hz, Circuits(formats))
            instances = PLAYED * INSTANCES
            messages = round(2 * self._traffic.messages.mean * instances)
            network = Network(circuit=circuit, devices=1)
            self._rates[lanes, keys] = instances / seconds_of(
                self._traffic, self._rules, network, keys, messages
            )
        return self._rates[lanes, keys]


def _numbers(most: int) -> Sequence[int]:
    """Powers of two below the most, and that."""
    return sorted({*(1 << k for k in range(most.bit_length()) if 1 << k < most), most})
