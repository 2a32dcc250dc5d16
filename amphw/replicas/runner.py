"""Replicas from Python, as Parallax has them (Kim et al., arXiv 1808.02621, section 4.1): a script that
trains on one device becomes one that trains on several.

    runner = get_runner(model, {"localhost": ["cpu", "cpu"]}, config)
    summary = runner.run()

stands where a `Trainer` on one device stood.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from amphw.host.config import RunConfig
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.records import RunSummary
from amphw.host.replication import Share
from amphw.host.run_folder import RunFolder
from amphw.host.run_model import InstanceSet, RunModel
from amphw.ir.config_fields import ConfigError
from amphw.replicas.agree import check_alike, identity
from amphw.replicas.collectives import ranges
from amphw.replicas.mpi import mpi_transport, world_size
from amphw.replicas.replica import Synchronised
from amphw.replicas.run import check_ranks, follow, in_threads, replica
from amphw.replicas.transport import Transport

HERE = "localhost"

Resources = Mapping[str, Sequence[str]]
"""The devices of each machine, one for each rank: {"localhost": ["cpu", "opencl:0"]}."""


@cache
def _among_ranks() -> Transport | None:
    """This process among those that a launcher has started; None without one."""
    if world_size() == 1:
        return None
    found = mpi_transport()
    atexit.register(found.close)  # an error has to be told before the ranks part
    return found


def shard(instances: InstanceSet) -> Share:
    """This process's part of some instances, under `mpiexec`; all of them without.

    For loops of one's own: `get_runner` splits what a model trains and validates on by itself. Instances
    carry the numbers that they have among all.
    """
    among = _among_ranks()
    rank, ranks = (among.rank, among.ranks) if among is not None else (0, 1)
    part = ranges(len(instances), ranks)[rank]
    return Share(instances, range(part.start, part.stop))


@dataclass
class Runner:
    """Trains a model with several ranks. synchronised: what keeping together took, after `run`."""

    model: RunModel
    config: RunConfig[Any]
    devices: Sequence[str]
    folder: RunFolder | None
    transport: Transport | None
    synchronised: Synchronised | None = None

    def run(self, resume: Path | None = None) -> RunSummary | None:
        """Train as `Trainer.run` does, and raise what that raises -> the summary; None on the ranks but the
        first where an `mpiexec` has started them."""
        if self.transport is None:
            with in_threads(len(self.devices), lambda t: self._follow(t, resume)) as first:
                return self._lead(first, resume)
        try:
            check_alike(self.transport, identity(self.model, self.config))
            if self.transport.rank == 0:
                return self._lead(self.transport, resume)
            self._follow(self.transport, resume)
        except BaseException as error:
            self.transport.fail(error)  # the others would wait for this one
            raise
        return None

    def _follow(self, transport: Transport, resume: Path | None) -> None:
        follow(self.model, self.config, make_device(self.devices[transport.rank]), transport, resume)

    def _lead(self, transport: Transport, resume: Path | None) -> RunSummary:
        mine, device = replica(transport, self.config), make_device(self.devices[0])
        try:
            trainer = Trainer(self.model, self.config, device, self.folder, replication=mine)
            summary = trainer.run(resume)
            self.synchronised = mine.synchronised(trainer.spent.seconds.get("training", 0.0))
            return summary
        finally:
            device.close()


def get_runner(
    model: RunModel,
    resource_info: Resources,
    config: RunConfig[Any],
    folder: RunFolder | None = None,
) -> Runner:
    """model, config, folder: as a `Trainer` takes them.

    The ranks are threads of this process, or under an `mpiexec` its processes, in the order of
    `resource_info`. Raises ConfigError for what ranks cannot do, and where there are other machines without
    a launcher, or not as many devices as ranks.
    """
    devices = [device for there in resource_info.values() for device in there]
    if not devices:
        raise ConfigError(f"resource_info names no device; write {{'{HERE}': ['cpu']}}")
    started = world_size()
    elsewhere = [machine for machine in resource_info if machine != HERE]
    if started == 1 and elsewhere:
        raise ConfigError(
            f"resource_info names {', '.join(elsewhere)}, and this process was started alone; start as many "
            f"as there are devices, with mpiexec -n {len(devices)} -hosts {','.join(resource_info)}"
        )
    if started > 1 and started != len(devices):
        raise ConfigError(
            f"resource_info has {len(devices)} devices, and the launcher has started {started} ranks; there "
            "has to be one for each"
        )
    if len(devices) > 1:
        check_ranks(len(devices), config)
    # Nobody would write the trace.
    config = replace(config, train=replace(config.train, trace=False))
    return Runner(model, config, devices, folder, _among_ranks())
