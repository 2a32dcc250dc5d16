"""Spaces of firings of the instances in flight: logs have states where the engine has numbers."""

from __future__ import annotations

from amphw.engine.lowering.lower import Lowered
from amphw.ir.instance import Instance
from amphw.ir.service_log import Run
from amphw.ir.state import KeySpace


class Firings:
    """By instance in flight and unit: its firings' states, and their numbers."""

    def __init__(self, lowered: Lowered):
        self._lowered = lowered
        self._instances: dict[Run, Instance] = {}
        self._spaces: dict[Run, dict[int, KeySpace]] = {}

    def admit(self, run: Run, instance: Instance) -> None:
        self._instances[run], self._spaces[run] = instance, {}

    def retire(self, run: Run) -> None:
        self._instances.pop(run, None)
        self._spaces.pop(run, None)

    def of(self, run: Run, unit: int) -> KeySpace:
        """All firings of the unit; made when first asked for."""
        spaces = self._spaces[run]
        if unit not in spaces:
            spaces[unit] = KeySpace(self._lowered.units[unit].behaviour.state, self._instances[run])
        return spaces[unit]
