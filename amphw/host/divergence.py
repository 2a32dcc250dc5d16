"""What to say when training turns non-finite: which node did it, and where the last good checkpoint is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from amphw.host.snapshots import first_nonfinite_parameter
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError, NonFiniteError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import NodeParameters

_ADVICE = "lower update.lr, or set update.clip"


class DivergedError(AmphwError):
    """Training produced NaN or infinite values. node: where they began. checkpoint: the last good one."""

    def __init__(self, node: str, detail: str, epoch: int, checkpoint: Path | None) -> None:
        kept = (
            f"the last good checkpoint is {checkpoint}"
            if checkpoint is not None
            else "there is no checkpoint of this run yet"
        )
        super().__init__(f"training diverged in epoch {epoch}: {detail}; {kept}")
        self.node, self.epoch, self.checkpoint = node, epoch, checkpoint


def diverged(error: NonFiniteError, epoch: int, checkpoint: Path | None) -> DivergedError:
    """The same news from a device that named the node itself."""
    return DivergedError(error.node, str(error), epoch, checkpoint)


def diagnosed(
    graph: Graph,
    parameters: Mapping[str, NodeParameters],
    instance: Instance,
    loss_node: str,
    epoch: int,
    checkpoint: Path | None,
) -> DivergedError:
    """The error for a loss that is not finite: the reference executor runs the instance and names the node.

    parameters: the current ones, of a drained device; they may have changed since the loss was computed.
    """
    found = _first_nonfinite(graph, parameters, instance)
    if found is not None:
        return DivergedError(found.node, str(found), epoch, checkpoint)
    bad = first_nonfinite_parameter(parameters)
    if bad is not None:
        detail = f"node '{bad[0]}' holds non-finite values in its parameter '{bad[1]}'; {_ADVICE}"
        return DivergedError(bad[0], detail, epoch, checkpoint)
    detail = (
        f"node '{loss_node}' reported a non-finite value for instance {instance.number}, which the current "
        f"parameters do not repeat; {_ADVICE}"
    )
    return DivergedError(loss_node, detail, epoch, checkpoint)


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
