"""Append-only files of JSON lines, which several processes may read while one writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from amphw.host.records import json_safe
from amphw.host.run_folder import WriteError

_CUT = b" (cut off)\n"
"""Ends a line that was cut off. It is none then, even where nothing but its end is missing."""


_BLOCK = 1 << 16
"""Bytes that are read at once from the end."""


class Journal:
    """The file at `path`. Whoever writes is the only one; a line that was cut off, as its writer was killed
    within it, is passed over by readers, and the next writer begins behind it."""

    def __init__(self, path: Path):
        self.path = path
        self._at = 0  # read so far
        self._file: int | None = None
        self._whole = True  # whether the file ends with a line

    def append(self, *events: Mapping[str, Any]) -> None:
        """All of these at once; what was appended survives the death of this process. Raises WriteError."""
        lines = (json.dumps(json_safe(event), separators=(",", ":")) + "\n" for event in events)
        text = "".join(lines).encode()
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                size = os.fstat(self._file).st_size
                self._whole = not size or os.pread(self._file, 1, size - 1) == b"\n"
            if not self._whole:
                text = _CUT + text
            self._whole = False
            while text:
                text = text[os.write(self._file, text) :]
            self._whole = True
        except OSError as error:
            raise WriteError(
                f"cannot write {self.path}: {error.strerror}; free space there, or choose another run folder",
                error.errno,
            ) from error

    def read(self) -> list[dict[str, Any]]:
        """What has been appended since the last call; nothing where there is no such file yet."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line)) is not None]

    def backwards(self) -> Iterator[dict[str, Any]]:
        """All that has been appended, the last first, without reading more than is asked for."""
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:
            return
        with file:
            at, rest = file.seek(0, os.SEEK_END), b""
            whole = False  # whether what comes next ends with a line's end
            while at:
                size = min(at, _BLOCK)
                at -= size
                file.seek(at)
                rest = file.read(size) + rest
                if not whole and b"\n" not in rest:
                    continue
                if not whole:
                    rest, whole = rest[: rest.rindex(b"\n") + 1], True
                lines = rest.splitlines(keepends=True)
                rest = lines.pop(0) if at else b""
                yield from (event for line in reversed(lines) if (event := _event(line)) is not None)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
