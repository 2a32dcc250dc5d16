"""What a job with members that come and go can be asked for."""

from __future__ import annotations

import importlib.util
import os
import secrets
from pathlib import Path
from typing import Any

from amphw.host.config import RunConfig
from amphw.ir.config_fields import ConfigError
from amphw.replicas.ako.settings import NAME, WHOLE
from amphw.replicas.run import check_ranks

MISSING = (
    "--carrier ray needs Ray and pyzmq, which are not here; install them with: pip install 'amphw[elastic]'"
)


def check_installed() -> None:
    """Raise ConfigError where what processes of a job need is not here."""
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("zmq") is None:
        raise ConfigError(MISSING)


def split(address: str) -> tuple[str, str]:
    """The token and the HOST:PORT of a job's address TOKEN@HOST:PORT; the token is empty where none is."""
    token, _, where = address.rpartition("@")
    return token, where


def token() -> str:
    """What Ray asks all for that want to reach the job; empty: it asks for nothing."""
    return os.environ.get("RAY_AUTH_TOKEN", "") if os.environ.get("RAY_AUTH_MODE") == "token" else ""


def authenticate(address: str = "") -> None:
    """Have Ray ask for a token: that of a job's address, that of the environment, or a new one for a job that
    begins here; before Ray is imported, as it reads that once. Whoever sets RAY_AUTH_MODE is obeyed."""
    address = address or os.environ.get("RAY_ADDRESS", "")
    found = split(address)[0]
    if not found:
        if os.environ.get("RAY_AUTH_MODE", "token") != "token":
            return
        found = os.environ.get("RAY_AUTH_TOKEN", "")
    if not found and not address:
        found = secrets.token_hex(16)  # Ray would make one that nobody else could know
    if found:
        # Without the mode, Ray would take the token and let in everybody.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": found}


def quieten() -> None:
    """Keep what Ray says of processes that died off stdout, which is for the answer of a command; before Ray
    is imported. Its logs have that, and a job says itself who was lost."""
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")


def check_goes_on(folder: Path) -> None:
    """Raise ConfigError where a run cannot go on with members that come and go: it was trained without, or
    was continued without since then. A job would go back to what its journal has, and lose that."""
    from amphw.host.checkpointing import CHECKPOINT
    from amphw.replicas.elastic.audit import read_table
    from amphw.replicas.elastic.coordinator import JOURNAL

    published = folder / CHECKPOINT
    if not published.exists():
        return
    saved = folder / read_table(folder).saved["path"] if (folder / JOURNAL).exists() else None
    if saved is None or not saved.is_file() or saved.read_bytes() != published.read_bytes():
        raise ConfigError(
            f"{published} was not saved by a job with --carrier ray, whose members could not go on from it; "
            f"resume {folder} without --carrier ray"
        )


def check_elastic(members: int, cfg: RunConfig[Any]) -> None:
    """Raise ConfigError for what members that come and go cannot do, with the reason and what can be done."""
    if cfg.replicas.strategy not in (NAME, WHOLE):
        raise ConfigError(
            f"replicas.strategy={cfg.replicas.strategy} has places where all ranks meet, and with --carrier "
            "ray members come and go without one; write --set "
            f"replicas.strategy={NAME} (or {WHOLE}), or take --carrier mpi"
        )
    check_ranks(members, cfg)
    if cfg.replicas.apply == "mean":
        raise ConfigError(
            "replicas.apply=mean keeps what was received until a member's next update, and a newcomer would "
            "get values without it; leave replicas.apply out, or take --carrier mpi"
        )
    if not cfg.replicas.accumulate:
        raise ConfigError(
            "replicas.accumulate=false loses gradients on their way to others, and with --carrier ray a "
            "ledger proves that none was lost; leave it out, or take --carrier mpi"
        )
    if cfg.replicas.bandwidth:
        raise ConfigError(
            "replicas.bandwidth chooses the number of partitions for as many ranks as there are at the "
            "beginning, and with --carrier ray they come and go; give --set replicas.partitions, or leave it "
            "out, which makes as many as there are members"
        )
    if cfg.train.live_valid:
        raise ConfigError(
            "train.live_valid validates beside training, and with --carrier ray it is one member that "
            "validates, while the others train on; write --set train.live_valid=0"
        )
