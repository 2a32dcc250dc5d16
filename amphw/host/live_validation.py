"""Validation while training goes on: what the metrics are about now, on parameters that move.

Instances of the validation set go round and round through infer slots, beside the training instances. Every
one of them sees the parameters as they are when its messages reach a node, so the estimate is of no single
version; it says early where an epoch is heading. What decides a run is the epoch's own validation.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from amphw.host.meters import Tally
from amphw.host.pumping import Aside, Pump
from amphw.host.run_model import InstanceSet
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance

WINDOW_ROWS = 1000
"""Rows that the estimate is over, or one pass over the validation set where that is less."""


class LiveValidation:
    """Runs a validation set in the slots of `pump`, at most `keys` instances at a time (0: not at all).

    node, names: the sink and the figures to estimate. Going round continues from one epoch to the next.
    """

    def __init__(
        self, pump: Pump, instances: InstanceSet, keys: int, node: str, names: tuple[str, ...]
    ) -> None:
        self._pump, self._instances = pump, instances
        self._keys = keys if len(instances) else 0
        self._node, self._names = node, names
        self._round = self._numbered()
        self._window: deque[Tally] = deque()
        self._rows = 0

    def aside(self) -> Aside | None:
        """What is to run beside an epoch's training; None where nothing is."""
        if not self._keys:
            return None
        return Aside(self._pump, self._round, Mode.INFER, self._keys, self._report)

    def means(self) -> dict[str, float]:
        """The estimate; empty before the first row. NaN where one of the figures was not finite.

        That ends no run, unlike a loss in training: a run must not come to depend on who watches it.
        """
        if not self._rows:
            return {}
        return {n: math.fsum(_figure(t, n) for t in self._window) / self._rows for n in self._names}

    def _numbered(self) -> Iterator[Instance]:
        """Round and round, numbered by place, as the epoch's own validation numbers them."""
        while True:
            for number in range(len(self._instances)):
                instance = self._instances[number]
                instance.number = number
                yield instance

    def _report(self, instance: Instance, report: Report) -> None:
        tally = Tally(self._node, self._names)
        tally.add(report)
        self._window.append(tally)
        self._rows += tally.rows
        while len(self._window) > len(self._instances) or self._rows - self._window[0].rows >= WINDOW_ROWS:
            self._rows -= self._window.popleft().rows


def _figure(tally: Tally, name: str) -> float:
    value = tally.sums.get(name, 0.0)
    return value if math.isfinite(value) else math.nan  # infinities of both signs have no sum
