"""`amphw train --ranks`, and `amphw train` under `mpiexec`: who the ranks are, and what they say."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.errors import FAILED, complain

if TYPE_CHECKING:
    from amphw.replicas.launch import Launch
    from amphw.replicas.replica import Replica, Synchronised
    from amphw.replicas.transport import Transport


class Carrier(StrEnum):
    """What ranks are: threads of one process, processes that MPI starts, or members that Ray supervises,
    which may come and go."""

    THREADS = "threads"
    MPI = "mpi"
    RAY = "ray"


@dataclass(frozen=True)
class RankOptions:
    """Replicas, which share the instances"""

    ranks: Annotated[
        int,
        typer.Option("--ranks", min=1, max=256, help="Train this many replicas."),
    ] = 1
    carrier: Annotated[
        Carrier,
        typer.Option(
            "--carrier",
            help="What ranks are: threads of this process, MPI's processes, or Ray's, which may come and go.",
        ),
    ] = Carrier.THREADS
    hosts: Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            metavar="FILE",
            help="With MPI, on these machines, over ssh: a name a line, with :N or slots=N for more ranks.",
        ),
    ] = None
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            min=0,
            max=1000,
            metavar="K",
            help="When a rank is killed or lost, go on from the last checkpoint, at most K times.",
        ),
    ] = 0
    fewer: Annotated[
        bool, typer.Option("--fewer", help="At each restart with one rank fewer, on the hosts that answer.")
    ] = False
    minimum: Annotated[
        int,
        typer.Option(
            "--minimum",
            min=1,
            max=256,
            metavar="K",
            help="With Ray, train only while there are as many members; fewer wait for others.",
        ),
    ] = 1


@dataclass(frozen=True)
class Place:
    """Where a run is: out, resume, config: as the command line has them."""

    out: Path | None
    resume: Path | None
    config: Path | None


def told(place: Place) -> Place:
    """What a supervised process takes in place of its options: the folder that its supervisor has chosen, and
    that the run goes on there."""
    from amphw.replicas.launch import Told

    found = Told.here()
    if found is None:
        return place
    folder = Path(found.folder)
    return Place(None, folder, None) if found.goes_on else Place(folder, None, place.config)


@contextlib.contextmanager
def launched(wanted: RankOptions, place: Place, model: str) -> Iterator[tuple[int, Transport | None]]:
    """How many ranks train, and this process among them if a launcher has started them (`mpiexec`, `srun`).

    wanted: by the command line. model: its name, for the run's folder. Where this process only supervises
    those that train it exits when they have ended, and nothing inside runs. The first rank alone writes to
    stdout and stderr. An error of one ends all, and is told by the first.
    """
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.launch import Told
    from amphw.replicas.mpi import LOST, mpi_transport, world_size
    from amphw.replicas.transport import reason

    started, told = world_size(), Told.here()
    if told is None and (launch := _launch(wanted, started)) is not None:
        raise typer.Exit(_supervised(launch, wanted, place, model))
    ranks = told.ranks if told is not None else wanted.ranks
    if told is not None:
        _interrupted_by_supervisor()
        if wanted.carrier is Carrier.MPI and started == 1 < ranks:
            raise ConfigError(
                "this mpiexec does not tell its ranks how many they are; use the one of amphw[mpi]"
            )
    if started == 1:
        yield ranks, None
        return
    if ranks not in (1, started):
        raise ConfigError(f"--ranks is {ranks}, but the launcher has started {started} ranks; leave it out")
    transport = mpi_transport()
    # An error has to be told before the ranks part.
    atexit.register(transport.close)
    follows = transport.rank > 0
    with contextlib.ExitStack() as silent:
        if follows:
            nowhere = silent.enter_context(open(os.devnull, "w", encoding="utf-8"))
            silent.enter_context(contextlib.redirect_stdout(nowhere))
            silent.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            yield started, transport
        except typer.Exit:
            raise  # all was said and done
        except BaseException as error:
            known = transport.fail(error)
            if transport.cut_off:
                if not follows:
                    complain(str(error))
                raise typer.Exit(LOST) from None
            if not follows:
                raise
            silent.close()
            if not known:  # the first rank computes, or hangs
                complain(reason(transport.rank, error))
            raise typer.Exit(FAILED) from None


def _launch(wanted: RankOptions, started: int) -> Launch | None:
    """The processes that this one is to start; None: it trains. Raises ConfigError for what does not fit."""
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.hosts import read_hosts
    from amphw.replicas.launch import Launch, mpi_launch

    if wanted.minimum > 1:
        raise ConfigError(
            f"--minimum is for members that come and go; write --carrier {Carrier.RAY}, or leave it out"
        )
    if wanted.fewer and not wanted.restarts:
        raise ConfigError("--fewer is for --restarts; say how many with --restarts K")
    if started > 1:
        if wanted.restarts or wanted.hosts is not None:
            raise ConfigError(
                "--restarts and --hosts are for ranks that amphw starts; a launcher of your own has started "
                "these; leave mpiexec (or srun) out, or the options"
            )
        return None
    if wanted.carrier is Carrier.MPI:
        if wanted.ranks < 2 and wanted.hosts is None:
            raise ConfigError(f"--carrier {Carrier.MPI} is for several ranks; say how many with --ranks")
        hosts = read_hosts(wanted.hosts) if wanted.hosts is not None else ()
        return mpi_launch(wanted.ranks, hosts)
    if wanted.hosts is not None:
        raise ConfigError(f"--hosts is for ranks that are processes; write --carrier {Carrier.MPI}")
    return Launch(wanted.ranks) if wanted.restarts else None


def _supervised(launch: Launch, wanted: RankOptions, place: Place, model: str) -> int:
    """Run ranks to their end -> the exit code."""
    from amphw.host.run_folder import RunFolder, claim_folder
    from amphw.replicas.supervise import Supervisor

    supervisor = Supervisor(complain)
    if place.resume is not None:
        folder = RunFolder.open(place.resume).single().path
        return supervisor.run(launch, folder, True, wanted.restarts, wanted.fewer)
    folder = place.out or claim_folder(model)
    try:
        return supervisor.run(launch, folder, False, wanted.restarts, wanted.fewer)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # where the run was refused, nothing is in it


def _interrupted_by_supervisor() -> None:
    """Its signal, when there is no training to stop, is Ctrl-C."""
    from amphw.replicas.launch import STOP

    if threading.current_thread() is threading.main_thread():
        signal.signal(STOP, signal.default_int_handler)


@contextlib.contextmanager
def leading(
    ranks: int, transport: Transport | None, model: Any, cfg: Any, device: str, resume: Path | None
) -> Iterator[Replica | None]:
    """The first rank while the others train, too; None where it is the only one.

    Without a transport of a launcher the others are threads of this process.
    """
    from amphw.host.devices import make_device
    from amphw.replicas.agree import check_alike, identity
    from amphw.replicas.run import check_ranks, follow, in_threads, replica

    if ranks == 1:
        yield None
        return
    check_ranks(ranks, cfg)
    if transport is not None:
        check_alike(transport, identity(model, cfg))
        yield replica(transport, cfg)
        return
    with in_threads(ranks, lambda t: follow(model, cfg, make_device(device), t, resume)) as first:
        yield replica(first, cfg)


def following(transport: Transport, model: Any, cfg: Any, device: Any, resume: Path | None) -> None:
    """What every rank but the first does where a launcher has started them."""
    from amphw.library.interrupt import stopping
    from amphw.replicas.agree import check_alike, identity
    from amphw.replicas.run import check_ranks, follow

    check_ranks(transport.ranks, cfg)
    check_alike(transport, identity(model, cfg))
    # Ctrl-C reaches every rank: each asks to stop, and they agree on where.
    follow(model, cfg, device, transport, resume, lambda trainer: stopping(trainer.stop, lambda note: None))


def rows_of(found: Synchronised) -> dict[str, str]:
    """For people."""
    from amphw.page.numbers import size

    sent = sum(each["sent"] for each in found.bytes.values())
    received = sum(each["received"] for each in found.bytes.values())
    times = ", ".join(f"{1e3 * seconds:.3g} ms {what}" for what, seconds in found.seconds.items() if seconds)
    rows = {
        "ranks": f"{found.ranks}, {found.strategy}, {found.steps:,} exchanges",
        "an exchange": f"{sent / 1e3:,.4g} kB sent and {received / 1e3:,.4g} kB received by a rank; {times}",
    }
    if found.own:
        rows["rounds"] = _rounds(found)
    if found.parameter_bytes["device"]:
        device, servers = found.parameter_bytes["device"], found.parameter_bytes["servers"]
        served = f", {size(servers)} as a server" if servers else ""
        rows["parameters take"] = f"{size(device)} on a rank's device{served}"
    if found.alpha:
        shares = ", ".join(f"{100 * share:.3g} % of {name}" for name, share in found.alpha.items())
        rows["touched rows"] = f"{shares} by a rank in an exchange; all other parameters are dense"
    if found.dense:
        rows["dense tables"] = "; ".join(f"{name}: {why}" for name, why in found.dense.items())
    return rows


def _rounds(found: Synchronised) -> str:
    """Of ranks that go at their own pace, within a bound, in words."""
    own = found.own
    clocks = sorted(own["clocks"])
    rounds = f"{clocks[0]:,}" if clocks[0] == clocks[-1] else f"{clocks[0]:,} to {clocks[-1]:,}"
    said = (
        f"{rounds} of a rank, at most {own['staleness_max']} ahead of the slowest other one, where "
        f"{own['bound'] + 1} are allowed"
    )
    if "drift" in own:
        said += (
            f"; {own['partitions']} partitions; ranks were {100 * own['drift']:.2g} % from their mean where "
            "they met last"
        )
    return said
