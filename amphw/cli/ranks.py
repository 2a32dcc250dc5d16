"""`amphw train --ranks`, and `amphw train` under `mpiexec`: who the ranks are, and what they say."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from amphw.cli.errors import FAILED

if TYPE_CHECKING:
    from amphw.replicas.replica import Replica, Synchronised
    from amphw.replicas.transport import Transport


LAUNCHED = "AMPHW_LAUNCHED"
"""Set in the ranks of a command that has become an `mpiexec`."""


class Carrier(StrEnum):
    """What ranks are on this machine: threads of one process, or processes that MPI starts."""

    THREADS = "threads"
    MPI = "mpi"


@contextlib.contextmanager
def launched(wanted: int, carrier: Carrier) -> Iterator[tuple[int, Transport | None]]:
    """How many ranks train, and this process among them if a launcher has started them (`mpiexec`, `srun`).

    wanted: by the command line; 1: as many as were started. With the carrier MPI and no launcher this process
    becomes one, and this does not return. The first rank alone writes to stdout and stderr. An error of one
    ends all, and is told by the first.
    """
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.mpi import mpi_transport, world_size

    started = world_size()
    if started == 1:
        if carrier is Carrier.MPI:
            _become_launcher(wanted)
        yield wanted, None
        return
    if wanted not in (1, started):
        raise ConfigError(f"--ranks is {wanted}, but the launcher has started {started} ranks; leave it out")
    transport = mpi_transport()
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
            transport.fail(error)
            if follows:
                raise typer.Exit(FAILED) from None
            raise
        finally:
            transport.close()


def _become_launcher(ranks: int) -> NoReturn:
    """Replace this process by an `mpiexec` of the same command. Raises ConfigError where there is none."""
    from amphw.ir.config_fields import ConfigError
    from amphw.replicas.mpi import AS_ROOT, mpiexec

    if ranks == 1:
        raise ConfigError(f"--carrier {Carrier.MPI} is for several ranks; say how many with --ranks")
    if LAUNCHED in os.environ:  # or each rank would start as many
        raise ConfigError("this mpiexec does not tell its ranks how many they are; use the one of amphw[mpi]")
    launcher = mpiexec()
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        raise ConfigError(
            f"--carrier {Carrier.MPI} needs mpi4py and mpiexec, which are not here; install them with: "
            f"pip install 'amphw[mpi]', or take --carrier {Carrier.THREADS}"
        )
    os.environ[LAUNCHED] = str(ranks)
    for name, value in AS_ROOT.items():
        os.environ.setdefault(name, value)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(launcher, [launcher, "-n", str(ranks), sys.executable, *sys.orig_argv[1:]])


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
    from amphw.cli.interrupt import stopping
    from amphw.replicas.agree import check_alike, identity
    from amphw.replicas.run import check_ranks, follow

    check_ranks(transport.ranks, cfg)
    check_alike(transport, identity(model, cfg))
    # Ctrl-C reaches every rank: each asks to stop, and they agree on where.
    follow(model, cfg, device, transport, resume, lambda trainer: stopping(trainer.stop, lambda note: None))


def rows_of(found: Synchronised) -> dict[str, str]:
    """For people."""
    sent = sum(each["sent"] for each in found.bytes.values())
    received = sum(each["received"] for each in found.bytes.values())
    times = ", ".join(f"{1e3 * seconds:.3g} ms {what}" for what, seconds in found.seconds.items())
    rows = {
        "ranks": f"{found.ranks}, {found.strategy}, {found.steps:,} exchanges",
        "an exchange": f"{sent / 1e3:,.4g} kB sent and {received / 1e3:,.4g} kB received by a rank; {times}",
    }
    if found.alpha:
        shares = ", ".join(f"{100 * share:.3g} % of {name}" for name, share in found.alpha.items())
        rows["touched rows"] = f"{shares} by a rank in an exchange; all other parameters are dense"
    return rows


def figures_of(found: Synchronised) -> dict[str, Any]:
    """For programs."""
    return {
        "ranks": found.ranks,
        "strategy": found.strategy,
        "exchanges": found.steps,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "alpha": found.alpha,
    }
