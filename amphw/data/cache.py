"""Data files by name: from a local folder, else from the cache, else downloaded; always checked.

A file is identified by the checksum of its *decompressed* bytes. Compressors differ in version and level,
so the same data set exists as many different `.gz` files; what a loader parses is one sequence of bytes.

Where a file `mnist/train-labels-idx1-ubyte` is looked for, in this order:

1. `$AMPHW_DATA/mnist/train-labels-idx1-ubyte`, plain or with the ending .gz, .xz or .bz2;
2. the same names below the cache directory, `$AMPHW_CACHE` or `~/.cache/amphw`;
3. its public URL. A download goes to a temporary file, is checked, and only then gets its name, so that an
   interrupted download never leaves a file that looks complete. Of an archive one file is kept.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from amphw.ir.errors import AmphwError

_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
}
_CHUNK_BYTES = 1 << 16
_TIMEOUT_S = 30.0


class DataError(AmphwError):
    """A data file is missing, truncated or not the expected one. The message says which, and what to do."""


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    name: path relative to the data folder, of the decompressed file, with forward slashes.
    url: public source; its ending (.gz, .xz, .bz2 or another) says how the download is compressed.
    checksum: `algorithm:hex` of the decompressed bytes, with algorithm `sha256` or `md5`.
    member: the file's path in the tar archive that `url` names; without it, `url` is the file itself.
    """

    name: str
    url: str
    checksum: str
    member: str = ""


def cache_dir() -> Path:
    """The folder that downloads go to: `$AMPHW_CACHE`, or `~/.cache/amphw`. It need not exist yet."""
    configured = os.environ.get("AMPHW_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "amphw"


def read_data(file: DataFile) -> bytes:
    """The decompressed, checked bytes of `file`.

    Raises DataError if the file is damaged where it is found, or is found nowhere and cannot be downloaded.
    A damaged local file is an error even when a download could replace it: a run must not silently use
    other data than the folder it was pointed at.
    """
    local = _local_dir()
    if local is not None:
        path = _find(local, file.name)
        if path is not None:
            return _read_checked(path, file, remedy="Replace it, or unset AMPHW_DATA to download it.")
    cached = _find(cache_dir(), file.name)
    if cached is None:
        cached = _download(file, cache_dir())
    return _read_checked(cached, file, remedy="Delete it; the next run downloads it again.")


def is_local(file: DataFile) -> bool:
    """Whether `read_data` would find `file` without the network."""
    local = _local_dir()
    roots = [cache_dir()] if local is None else [local, cache_dir()]
    return any(_find(root, file.name) is not None for root in roots)


def _local_dir() -> Path | None:
    configured = os.environ.get("AMPHW_DATA")
    if not configured:
        return None
    path = Path(configured).expanduser()
    if not path.is_dir():
        raise DataError(
            f"AMPHW_DATA is {configured!r}, which is not a directory. "
            "Point it at the folder that holds the data sets, or unset it to download them."
        )
    return path


def _find(root: Path, name: str) -> Path | None:
    paths = [root / (name + ending) for ending in _DECOMPRESS]
    for path in paths:
        if path.is_file():
            return path
    for path in paths:
        if path.is_dir():
            raise DataError(
                f"{path} is a folder, where a file of that name is needed. Put the file in its place."
            )
    return None


def _read_checked(path: Path, file: DataFile, remedy: str) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). {remedy}") from error
    ending = path.name.removeprefix(Path(file.name).name)
    return _decode(raw, ending, file, where=str(path), remedy=remedy)


def _decode(raw: bytes, ending: str, file: DataFile, where: str, remedy: str) -> bytes:
    """`raw`, decompressed and checked; `where` and `remedy` begin and end the message of an error."""
    try:
        data = _DECOMPRESS[ending](raw)
    except EOFError as error:
        raise DataError(f"{where} is truncated: its {ending} data ends early. {remedy}") from error
    except (OSError, lzma.LZMAError, zlib.error, ValueError) as error:
        raise DataError(f"{where} is not valid {ending} data ({error}). {remedy}") from error
    algorithm, expected = file.checksum.split(":")
    found = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    if found != expected:
        raise DataError(
            f"{where} is not the expected file: {algorithm} of its {len(data)} decompressed bytes is "
            f"{found}, expected {expected}. {remedy}"
        )
    return data


def _download(file: DataFile, root: Path) -> Path:
    """Fetch `file.url` into `root` and return the path. Only checked data gets the final name."""
    ending = Path(file.url).suffix if Path(file.url).suffix in _DECOMPRESS and not file.member else ""
    target = root / (file.name + ending)
    by_hand = f"Download it by other means to {target}, or set AMPHW_DATA to a folder that holds {file.name}."
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=target.name + ".", suffix=".part", dir=target.parent)
    except OSError as error:
        raise DataError(
            f"{target.parent} cannot be written ({error.strerror}). Set AMPHW_CACHE to a folder that can."
        ) from error
    # The temporary name must not survive any way out, including an interrupt from the keyboard.
    part = Path(temporary)
    try:
        try:
            with os.fdopen(handle, "wb") as out:
                _transfer(file, out)
                out.flush()
                os.fsync(out.fileno())
        except (urllib.error.URLError, HTTPException, OSError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it holds the connection
            raise DataError(f"{file.url} cannot be downloaded ({reason}). {by_hand}") from error
        if file.member:
            _extract(part, file, remedy=by_hand)
        _decode(part.read_bytes(), ending, file, where=f"The download from {file.url}", remedy=by_hand)
        part.chmod(0o644)  # temporary files are private, a cache may be shared
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    _sync_directory(target.parent)
    return target


def _transfer(file: DataFile, out: IO[bytes]) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with urllib.request.urlopen(file.url, timeout=_TIMEOUT_S) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None else None
        received = 0
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(file.name, total=total)
            while chunk := response.read(_CHUNK_BYTES):
                out.write(chunk)
                received += len(chunk)
                progress.update(task, completed=received)
    # http.client ends a body that stops early like a complete one when it is read in pieces.
    if total is not None and received != total:
        raise OSError(f"truncated: {received} of {total} bytes arrived")


def _extract(path: Path, file: DataFile, remedy: str) -> None:
    """Replace the archive at `path` by its member."""
    where = f"The download from {file.url}"
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile(file.member)
            data = member.read() if member is not None else None
    except KeyError:
        data = None
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise DataError(f"{where} is not a valid archive ({error}). {remedy}") from error
    if data is None:
        raise DataError(f"{where} holds no file {file.member}. {remedy}")
    path.write_bytes(data)


def _sync_directory(path: Path) -> None:
    """Make the rename durable: a file's name lives in its directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
