"""A run's service log as a file: `amphw train --log` writes it, `amphw replay` reads it.

Lines of JSON, compressed: first what the log belongs to, then its events (`amphw.ir.service_log`) and,
between them, what the losses of each instance came to: ["report", instance, mode, {node: {name: sum}}].
Nothing in it is executed. A run that was killed leaves a file whose end is missing, which is read as far as
it goes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

from amphw.host.recent import Recent
from amphw.ir.device import Report
from amphw.ir.errors import AmphwError
from amphw.ir.instance import Instance
from amphw.ir.service_log import Event

LOG = "log.jsonl.gz"
"""Its name in a run folder."""
VERSION = 1
MARK = "amphw service log"

Reported = tuple[int, str, dict[str, dict[str, float]]]
"""Of one instance: its number, its mode, and sums by node and name."""


class LogError(AmphwError):
    """A log cannot be read or repeated; the message names it and says what to do."""


@dataclass(frozen=True)
class ServiceLogFile:
    """about: what stands in the first line: model, device. whole: whether the file has its end."""

    about: dict[str, Any]
    events: list[Event]
    reports: list[Reported]
    whole: bool


class LogWriter:
    """Writes a log while the run goes on; to be closed. The file comes with the first line. recent: its
    newest part, as a report shows it."""

    def __init__(self, path: Path, model: str, device: str) -> None:
        self._path, self._about = path, {MARK: VERSION, "model": model, "device": device}
        self._file: TextIO | None = None
        self.recent = Recent()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, log: list[Event]) -> None:
        """Write what a device has logged, which it then need not keep. Workers may be adding to it."""
        events = log[:]
        del log[: len(events)]
        for event in events:
            self._write(event)
        self.recent.take(events)

    def reported(self, report: Report, instance: Instance) -> None:
        self._write(("report", *_reported(report)))
        self.recent.reported(report, instance)

    def _write(self, line: Any) -> None:
        if self._file is None:
            # The fastest compression: the log is written while others compute.
            self._file = cast(TextIO, gzip.open(self._path, "wt", compresslevel=1, encoding="utf-8"))
            self._write(self._about)
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")


def _reported(report: Report) -> Reported:
    return report.number, report.mode.value, report.sums


def read_log(path: Path) -> ServiceLogFile:
    """Raises LogError for a file that is not there, or is no log that this version of amphw reads."""
    events: list[Event] = []
    reports: list[Reported] = []
    about: dict[str, Any] | None = None
    whole = False
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                found = json.loads(line)
                if about is None:
                    about = _checked(path, found)
                elif found[0] == "report":
                    reports.append((found[1], found[2], found[3]))
                else:
                    events.append(_event(found))
        whole = True
    except FileNotFoundError:
        raise LogError(
            f"{path} is not there: the run was trained without --log. Train it again with --log"
        ) from None
    except (EOFError, zlib.error):
        pass  # the run was killed
    except (OSError, ValueError, TypeError, IndexError, KeyError) as error:
        raise LogError(f"{path} is not a service log of amphw, or is damaged: {error}") from error
    if about is None:
        raise LogError(f"{path} is empty: the run was killed before anything was logged")
    return ServiceLogFile(about, events, reports, whole)


def _checked(path: Path, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict) or MARK not in found:
        raise ValueError(f"its first line is not that of an '{MARK}'")
    if found[MARK] != VERSION:
        raise LogError(
            f"{path} is of version {found[MARK]}, and this amphw reads version {VERSION}: use the amphw that "
            "wrote it"
        )
    return found


def _event(found: list[Any]) -> Event:
    """As devices have it: what JSON made lists of are tuples."""
    if found[0] == "start":
        kind, frame, node, direction, firings = found
        return kind, frame, node, direction, tuple((n, mode, tuple(state)) for n, mode, state in firings)
    return tuple(found)
