"""`process:DEVICE`: another device as a part of a run, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from amphw.engine.parts.executor import RegionPart
from amphw.engine.parts.part import Part, offered
from amphw.engine.parts.remote import RemotePart
from amphw.engine.parts.sleeper import Sleeper
from amphw.ir.device import Capabilities, StartsSlowly
from amphw.ir.errors import AmphwError


def part_of(spec: str) -> Part:
    """The part that a device offers. Raises AmphwError where it offers none."""
    from amphw.host.devices import make_device

    part = offered(make_device(spec))
    if isinstance(part, RegionPart | Sleeper):
        why = "works in memory that it shares with the engine, in this process"
        if isinstance(part, Sleeper):
            why = "computes nothing, and the engine itself lets its frames wait, in this process"
        raise AmphwError(f"process:{spec}: {spec} {why}: name it without process:, as in cpu,{spec}")
    return part


def listed() -> dict[str, Capabilities]:
    """What stands behind `process:`, for whoever lists devices."""
    notes = "another device as a part of a run, in a process of its own, such as process:fixed:q4.12"
    return {"DEVICE": Capabilities("process:DEVICE", "process", notes=notes)}


class ProcessDevice:
    """Offers a part alone; a run on it is one on several devices, with the CPU.

    argument: the device, as in `process:fixed:q4.12`.
    """

    def __init__(self, argument: str = "") -> None:
        if not argument:
            raise AmphwError("process: of which device? Name it, as in process:fixed:q4.12")
        from amphw.host.devices import make_device

        self.argument = argument
        self._device = make_device(argument)
        part_of(argument)  # what is wrong with it is told now

    def slow_start(self) -> str:
        """See `StartsSlowly`."""
        return self._device.slow_start() if isinstance(self._device, StartsSlowly) else ""

    def capabilities(self) -> Capabilities:
        about = self._device.capabilities()
        return replace(about, name=f"process:{about.name}", notes=f"in a process of its own; {about.notes}")

    def part(self) -> RemotePart:
        """See `OffersPart`."""
        return RemotePart(partial(part_of, self.argument))
