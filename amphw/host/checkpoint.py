"""Checkpoints: parameters and optimiser state as safetensors, with a header that says what they belong to.

safetensors rather than pickle: loading a checkpoint from somebody else runs no code, and other tools can
read the tensors. The header is JSON in the file's string metadata, so a checkpoint is one file and cannot be
separated from its description. Tensors are told apart by name; what the names mean is the caller's business.

Beside the header stands the SHA-256 of the whole file, taken with zeros in its own place, so that no bit of
the file can change unnoticed. A damaged weight is a number like any other: nothing else would tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as _parse
from safetensors.numpy import save as _serialise

from amphw.host.run_folder import write_atomic
from amphw.ir.errors import AmphwError

FORMAT_VERSION = 2
_WITHOUT_CHECKSUM = 1
"""The format before; its files still load, unchecked."""
REQUIRED = ("graph", "model", "config", "counters")

_VERSION_KEY = "amphw_checkpoint"
_HEADER_KEY = "amphw_header"
_CHECKSUM_KEY = "amphw_sha256"
_NO_CHECKSUM = b"0" * hashlib.sha256().digest_size * 2
# Quotes within strings are escaped in JSON, so nothing else in the file's header looks like this.
_CHECKSUM_MARK = f'"{_CHECKSUM_KEY}":"'.encode()
_DTYPES = frozenset("float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())


class CheckpointError(AmphwError):
    """A checkpoint cannot be written or read; the message names the file, the cause and the remedy."""


def save_checkpoint(path: Path, tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> None:
    """Replace `path` by a checkpoint, atomically (see `run_folder.write_atomic`).

    `tensors` maps names to arrays of any shape, of a real, integer or bool dtype. `header` must hold `graph`
    (the fingerprint), `model`, `config` (TOML text) and `counters` (JSON values: epoch, instances, versions,
    generator state); further JSON entries are kept. The format version is added here.

    Raises CheckpointError for a header or tensor that cannot be kept, before anything is written, and
    `run_folder.WriteError` when the disk refuses; an earlier checkpoint at `path` is then untouched.
    """
    absent = [key for key in REQUIRED if key not in header]
    if absent:
        raise CheckpointError(
            f"the header for {path} lacks {', '.join(absent)}; pass all of {', '.join(REQUIRED)}"
        )
    arrays = {}
    for name, tensor in tensors.items():
        array = np.asarray(tensor, order="C")
        if array.dtype.name not in _DTYPES or name == "__metadata__":
            raise CheckpointError(
                f"cannot keep tensor {name!r} of dtype {array.dtype} in {path}; "
                "use a real, integer or bool dtype and another name than __metadata__"
            )
        arrays[name] = array
    try:
        text = json.dumps(dict(header), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the header for {path} is not JSON: {error}; convert its values first"
        ) from error
    about = {_VERSION_KEY: str(FORMAT_VERSION), _CHECKSUM_KEY: _NO_CHECKSUM.decode(), _HEADER_KEY: text}
    _reserve(3 * sum(array.nbytes for array in arrays.values()))
    data = _serialise(arrays, metadata=about)
    begin = data.index(_CHECKSUM_MARK) + len(_CHECKSUM_MARK)
    end, view = begin + len(_NO_CHECKSUM), memoryview(data)
    write_atomic(Path(path), view[:begin], _checksum(data, begin), view[end:])


def load_checkpoint(
    path: Path, expect_graph: str | None, *also: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a checkpoint: (tensors by name, header). The arrays are writable and owned by the caller.

    `expect_graph` is the fingerprint of the graph to restore into, `also` are others that do; None skips that
    check. The header gains
    `format` (the version; see `unchecked`). Raises CheckpointError: absent, not a checkpoint, truncated,
    damaged, another format version, another graph, values that are not finite.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"cannot read checkpoint {path}: {error.strerror or error}; check the path"
        ) from error
    header = _checked_header(path, data)
    if header["format"] != _WITHOUT_CHECKSUM:
        _check_sum(path, data)
    if expect_graph is not None and header["graph"] not in (expect_graph, *also):
        raise CheckpointError(
            f"{path} belongs to another graph: it was saved from {header['graph']} "
            f"(model {header['model']}), this model is {expect_graph}; "
            "use the config saved with the checkpoint, device.tile included (tiles are nodes with names of "
            "their own), or start a new run"
        )
    _reserve(2 * len(data))
    try:
        tensors = _parse(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged ({error}); use an earlier checkpoint") from error
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(
                f"{path} holds a NaN or an infinite value in tensor {name!r}, which no run saves: it was "
                "damaged or changed; use an earlier checkpoint"
            )
    # The parser's arrays may be read-only views of the file's bytes; training writes into them.
    return {name: np.array(tensor) for name, tensor in tensors.items()}, header


def _reserve(size: int) -> None:
    """Raise MemoryError where there is no room for `size` bytes: safetensors would end the process."""
    np.empty(size, np.uint8)  # is not written, so that it takes none itself


def unchecked(path: Path, header: Mapping[str, Any]) -> str | None:
    """What to tell of a checkpoint that has no checksum; None for one whose checksum was right."""
    if header["format"] != _WITHOUT_CHECKSUM:
        return None
    return (
        f"{path} was saved before checkpoints had checksums: whether it is as it was saved cannot be told; "
        "what is saved from here on has one"
    )


def _checksum(data: bytes | bytearray, begin: int) -> bytes:
    """The checksum of a checkpoint, in hexadecimal, whose place in `data` begins there."""
    view = memoryview(data)
    found = hashlib.sha256(view[:begin])
    found.update(_NO_CHECKSUM)
    found.update(view[begin + len(_NO_CHECKSUM) :])
    return found.hexdigest().encode()


def _check_sum(path: Path, data: bytes) -> None:
    """Raise CheckpointError unless every byte of the checkpoint in `data` is as it was saved."""
    begin = data.find(_CHECKSUM_MARK) + len(_CHECKSUM_MARK)
    right = _CHECKSUM_MARK in data and data[begin : begin + len(_NO_CHECKSUM)] == _checksum(data, begin)
    if not right:
        raise CheckpointError(
            f"{path} is damaged: it does not have the checksum that it was saved with; use an earlier "
            "checkpoint, or copy it again"
        )


def _checked_header(path: Path, data: bytes) -> dict[str, Any]:
    """The header of the checkpoint in `data`, after every check that tells why a file cannot be used.

    safetensors has one message for all of these; a person needs to know whether the file is the wrong one,
    an unfinished copy or a damaged one. Layout: 8 bytes of little-endian length, that much JSON, the
    tensors' bytes.
    """
    if not data:
        raise CheckpointError(f"{path} is truncated: it is empty; use an earlier checkpoint or copy it again")
    if len(data) > 8 and data[8:9] != b"{":
        raise _not_ours(path, "it is not a safetensors file")
    length = int.from_bytes(data[:8], "little")
    if len(data) < 9 or 8 + length > len(data):
        raise _truncated(path, len(data), "inside its header")
    try:
        layout = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged (header: {error}); use an earlier checkpoint") from error
    about = layout.pop("__metadata__", None)
    if not isinstance(about, dict) or _VERSION_KEY not in about or _HEADER_KEY not in about:
        raise _not_ours(path, "it is a safetensors file without an amphw header")
    if about[_VERSION_KEY] not in (str(_WITHOUT_CHECKSUM), str(FORMAT_VERSION)):
        raise CheckpointError(
            f"{path} has checkpoint format {about[_VERSION_KEY]}, this amphw reads formats "
            f"{_WITHOUT_CHECKSUM} and {FORMAT_VERSION}; load it with the amphw that saved it"
        )
    try:
        header = dict(json.loads(about[_HEADER_KEY]))
        end = 8 + length + max((entry["data_offsets"][1] for entry in layout.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CheckpointError(f"{path} is damaged (header: {error}); use an earlier checkpoint") from error
    if len(data) < end:
        raise _truncated(path, len(data), f"of {end} bytes")
    absent = [key for key in REQUIRED if key not in header]
    if absent:
        raise CheckpointError(
            f"{path} is damaged: its header lacks {', '.join(absent)}; use an earlier checkpoint"
        )
    header["format"] = int(about[_VERSION_KEY])
    return header


def _not_ours(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is not an amphw checkpoint: {why}; pass a file that a run saved")


def _truncated(path: Path, size: int, where: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is truncated: it ends after {size} bytes {where}; use an earlier checkpoint or copy it again"
    )
