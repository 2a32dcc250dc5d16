"""What to say when training turns non-finite: who did it, what led to it, and the last good checkpoint."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from amphw.host.snapshots import first_nonfinite_parameter
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.errors import AmphwError, NonFiniteError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import LATELY, NodeParameters

_ADVICE = "lower update.lr, or set update.clip"

_NODES = 4
"""Nodes whose gradients are told, those with the largest."""


class Approach:
    """What may lead to a divergence: the losses of the last instances, and the device's last gradients."""

    def __init__(self, loss_node: str) -> None:
        self._node = loss_node
        self._losses: deque[float] = deque(maxlen=LATELY)

    def retired(self, report: Report) -> None:
        """Remember the loss of an instance that trained, the mean over its rows."""
        given = report.sums.get(self._node)
        if given is not None and "loss" in given:
            self._losses.append(given["loss"] / max(report.rows[self._node], 1))

    def told(self, gradients: Mapping[str, Sequence[float]]) -> str:
        """gradients: of each node, as in `Statistics`. Empty where nothing is known."""
        parts = []
        if self._losses:
            parts.append(f"the losses of the last {len(self._losses)} instances were {_listed(self._losses)}")
        largest = sorted(gradients, key=lambda node: -_largest(gradients[node]))[:_NODES]
        found = [f"'{node}' {_listed(gradients[node])}" for node in largest if gradients[node]]
        if found:
            parts.append(f"the largest gradients in the last updates of each node were {'; '.join(found)}")
        return "; ".join(parts)


def _largest(gradients: Iterable[float]) -> float:
    """Of the last updates; what is not finite counts as infinite, a NaN, too."""
    return max((value if math.isfinite(value) else math.inf for value in gradients), default=0.0)


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


class DivergedError(AmphwError):
    """Training produced NaN or infinite values. node: where they began. checkpoint: the last good one.

    approach: what led to it (`Approach.told`).
    """

    def __init__(
        self, node: str, detail: str, epoch: int, checkpoint: Path | None, approach: str = ""
    ) -> None:
        kept = (
            f"the last good checkpoint is {checkpoint}"
            if checkpoint is not None
            else "there is no checkpoint of this run yet"
        )
        said = "; ".join(part for part in (detail, approach, kept) if part)
        super().__init__(f"training diverged in epoch {epoch}: {said}")
        self.node, self.epoch, self.checkpoint = node, epoch, checkpoint


def diverged(error: NonFiniteError, epoch: int, checkpoint: Path | None, approach: str) -> DivergedError:
    """The same news from a device that named the node itself."""
    return DivergedError(error.node, str(error), epoch, checkpoint, approach)


def diagnosed(
    graph: Graph,
    parameters: Mapping[str, NodeParameters],
    instance: Instance,
    loss_node: str,
    epoch: int,
    checkpoint: Path | None,
    approach: str,
) -> DivergedError:
    """The error for a loss that is not finite: the reference executor runs the instance and names the node.

    parameters: the current ones, of a drained device; they may have changed since the loss was computed.
    """
    found = _first_nonfinite(graph, parameters, instance)
    if found is not None:
        return DivergedError(found.node, str(found), epoch, checkpoint, approach)
    bad = first_nonfinite_parameter(parameters)
    if bad is not None:
        detail = f"node '{bad[0]}' holds non-finite values in its parameter '{bad[1]}'; {_ADVICE}"
        return DivergedError(bad[0], detail, epoch, checkpoint, approach)
    detail = (
        f"node '{loss_node}' reported a non-finite value for instance {instance.number}, which the current "
        f"parameters do not repeat; {_ADVICE}"
    )
    return DivergedError(loss_node, detail, epoch, checkpoint, approach)


def _first_nonfinite(
    graph: Graph, parameters: Mapping[str, NodeParameters], instance: Instance
) -> NonFiniteError | None:
    device = ReferenceDevice()
    rules = {node: p.rule for node, p in parameters.items()}
    device.load(graph, rules, DeviceOptions(max_active_keys=1, max_infer_keys=1, updates="off"))
    for node, p in device.parameters().items():
        p.values = dict(parameters[node].values)
    try:
        with np.errstate(all="ignore"):
            # In TRAIN mode whatever the instance ran in: only training checks every value.
            device.submit(0, 1, instance, Mode.TRAIN)
            device.drain()
    except NonFiniteError as error:
        return error
    finally:
        device.close()
    return None
