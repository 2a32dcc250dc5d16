"""When the device is lost in mid-run: what the run goes back to, and what to say.

A device that fails takes the instances in flight with it, and the parameters that it held. So the state in
which an epoch began is kept on the host, with the parameters, and the epoch is trained again from there: on a
spare device, or by whoever goes on from the checkpoint that the run leaves.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.host.run_state import RunState
from amphw.ir.averaging import MovingAverage
from amphw.ir.device import Device
from amphw.ir.errors import AmphwError, DeviceLostError
from amphw.ir.update import NodeParameters


@dataclass(frozen=True)
class Kept:
    """A consistent state of a run: counters as `RunState.to_json` gives them, and parameters of its own, with
    their average where there is one."""

    counters: dict[str, Any]
    parameters: Mapping[str, NodeParameters]
    average: MovingAverage | None = None

    @property
    def epoch(self) -> int:
        """Number of the epoch that it is in, from 1."""
        return int(self.counters["epoch"]) + 1

    @property
    def at(self) -> tuple[int, int]:
        return self.counters["epoch"], self.counters["position"]

    @classmethod
    def of(cls, state: RunState, device: Device) -> Kept:
        """The state at this moment; the device is drained."""
        counters = copy.deepcopy(state.to_json())  # lists within go on growing
        average = state.average.copied() if state.average is not None else None
        return cls(counters, {node: p.copied() for node, p in device.parameters().items()}, average)

    def restore(self, state: RunState, device: Device) -> None:
        """Back to it, on a device that has the same graph loaded and nothing in flight."""
        state.restore(copy.deepcopy(self.counters))
        state.average = self.average.copied() if self.average is not None else None
        for node, p in device.parameters().items():
            p.become(self.parameters[node])


def parts_lost(before: str, after: str) -> str:
    """`cpu,a,b` that has become `cpu,b` -> `a`: of the names of devices that consist of others."""
    return ",".join(label for label in before.split(",") if label not in after.split(",")) or before


def went_on(error: DeviceLostError, lost: str, spare: str, epoch: int) -> str:
    """The warning of a run that goes on elsewhere. lost, spare: names of the devices."""
    return (
        f"WARNING: the device {lost} was lost in epoch {epoch}: {_sentence(error).removeprefix(f'{lost}: ')} "
        f"The run goes on on the device {spare}, which trains epoch {epoch} again from where it began; no "
        "instance is left out."
    )


def stopped(error: DeviceLostError, epoch: int, checkpoint: Path | None) -> DeviceLostError:
    """The error of a run that ends there. checkpoint: of the last consistent state."""
    if checkpoint is None:
        rest = (
            "There is no checkpoint of this run to go on from (train.checkpoint_every is 0, there is no "
            "folder, or none was due yet)."
        )
    else:
        rest = (
            f"The last consistent state is in {checkpoint}; go on from it with --resume {checkpoint.parent}, "
            "on this device or another one, such as --device cpu."
        )
    return DeviceLostError(f"the device was lost in epoch {epoch}: {_sentence(error)} {rest}")


def _sentence(error: DeviceLostError) -> str:
    text = str(error).rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def let_go(device: Device) -> None:
    """Close a device that has failed; what it says to that is no news."""
    try:
        device.close()
    except AmphwError:
        pass
