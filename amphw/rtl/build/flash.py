"""A bitstream into a board, by openFPGALoader."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from amphw.ir.errors import AmphwError
from amphw.rtl.build.boards import Board, board, board_of
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.toolchain.families import family

LOADER = "openFPGALoader"
GET_LOADER = f"on Debian: apt install openfpgaloader; others: https://trabucayre.github.io/{LOADER}"

MAKE = (
    "amphw rtl MODEL --board {} --bitstream --out DIR makes one, and amphw flash DIR puts it into the board"
)


class FlashError(AmphwError):
    """What cannot be put into a board. The message says why, and what to do."""


def find(what: Path, name: str | None) -> tuple[Path, Board]:
    """The bitstream that `what` is, or that lies in the folder `what`, and the board that it is for.

    name: of the board; a folder of `amphw rtl` knows it. Raises FlashError.
    """
    if not what.exists():
        raise FlashError(f"there is no file or folder {what}: {MAKE.format('BOARD')}")
    built = Circuit.read(what).board if (what / FILE).is_file() else ""
    asked = board(name) if name else None
    if built and asked and asked.name != built:
        raise FlashError(f"{what} was built for the board {built}, not for {name}")
    if what.is_dir() and not (name or built):
        raise FlashError(
            f"the folder {what} holds no {FILE}, so it is none that amphw rtl --board has written: "
            f"{MAKE.format('BOARD')}"
        )
    if not (name or built):
        raise FlashError(f"{what} does not say which board it is for: --board BOARD")
    on = asked or board_of(what, built)
    _check_known(on)
    kind = family(on.target).bitstream
    path = what / kind if what.is_dir() else what
    if not path.is_file():
        raise FlashError(f"{what} holds no bitstream {kind}: {MAKE.format(on.name)}")
    if path.suffix != Path(kind).suffix:
        raise FlashError(f"{path} is no bitstream for {on.name}: those are called *{Path(kind).suffix}")
    return path, on


def _check_known(on: Board) -> None:
    if on.is_system:
        raise FlashError(
            f"{on.name} is configured by the tools of the system that the circuit is a part of, as by Vivado"
        )
    if not on.loader.openfpgaloader:
        raise FlashError(
            f"the file of the board {on.name} does not say what {LOADER} calls it: openfpgaloader in [loader]"
        )


def command(bitstream: Path, on: Board, keep: bool) -> list[str]:
    """What puts the bitstream into the board; keep: into its flash memory, for whenever it has power."""
    return [LOADER, "--board", on.loader.openfpgaloader, *(["--write-flash"] if keep else []), str(bitstream)]


def check_loader(on: Board) -> None:
    """Raise FlashError unless there is a loader that knows the board."""
    _check_known(on)
    if shutil.which(LOADER) is None:
        raise FlashError(f"{LOADER} is not on the path, which writes bitstreams into boards: {GET_LOADER}")


def flash(bitstream: Path, on: Board, keep: bool) -> None:
    """Takes seconds; what the loader prints goes to the standard error. Raises FlashError."""
    check_loader(on)
    wanted = command(bitstream, on, keep)
    status = subprocess.run(wanted, check=False, stdout=2).returncode
    if status:
        raise FlashError(
            f"{' '.join(wanted)} ended with status {status}. Is the board plugged in, and may this user open "
            f"it ({LOADER}'s udev rules)? Another program may hold its serial port"
        )
