"""What the workers did and when: collected while a run goes on, written for Perfetto or chrome://tracing.

The newest slices are kept rather than the first ones, so that utilisation over a recent window stays right
however long a run is. The file is the Chrome JSON trace format: a thread per worker, an "X" slice per frame,
an "s"/"f" flow per message batch, a "C" counter of the keys in flight.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count as numbers
from pathlib import Path
from typing import Any

from amphw.host.rank_trace import RankTrace, process_of, rank_events
from amphw.host.records import Slice
from amphw.host.run_folder import write_atomic


class Trace:
    """A bounded, thread-safe collection of slices and of keys-in-flight samples.

    `limit` bounds the slices and, apart from them, the samples; past it the oldest go and are counted in
    `dropped`. A slice takes about 200 bytes of memory, and as much in a plain trace file.
    """

    def __init__(self, limit: int = 200_000) -> None:
        if limit < 1:
            raise ValueError(
                f"trace limit is {limit}; it must be at least 1 slice (for no trace, make no Trace)"
            )
        self.limit = limit
        self._lock = threading.Lock()
        self._slices: deque[Slice] = deque()
        self._keys: deque[tuple[float, int]] = deque(maxlen=limit)
        self._dropped = 0
        self._gap_end_us = float("-inf")

    def add(self, piece: Slice) -> None:
        """Keep one slice; constant time."""
        self.extend((piece,))

    def extend(self, pieces: Iterable[Slice]) -> None:
        """Keep several slices for one lock: what a worker should call after a batch of frames."""
        with self._lock:
            kept = self._slices
            kept.extend(pieces)
            for _ in range(len(kept) - self.limit):
                lost = kept.popleft()
                self._dropped += 1
                self._gap_end_us = max(self._gap_end_us, lost.end_us)

    def count_keys(self, time_us: float, keys: int) -> None:
        """Note that `keys` instances are in flight from `time_us` on."""
        with self._lock:
            self._keys.append((time_us, keys))

    @property
    def dropped(self) -> int:
        """How many slices were let go to stay within the limit."""
        return self._dropped

    def __len__(self) -> int:
        return len(self._slices)

    def slices(self) -> list[Slice]:
        """The kept slices in the order in which they were added."""
        with self._lock:
            return list(self._slices)

    def utilisation(self, start_us: float, end_us: float, workers: int) -> list[float]:
        """Busy share (0..1) of workers 0..workers-1 in the window [start_us, end_us).

        Where slices of the window were dropped, the window is cut to the part that is known whole; an empty
        window gives zeros.
        """
        with self._lock:
            start_us = max(start_us, min(self._gap_end_us, end_us))
            pieces = list(self._slices)
        span = end_us - start_us
        if span <= 0:
            return [0.0] * workers
        busy = [0.0] * workers
        for piece in pieces:
            inside = min(piece.end_us, end_us) - max(piece.start_us, start_us)
            if inside > 0 and 0 <= piece.worker < workers:
                busy[piece.worker] += inside
        # Clocks are read at both ends of a slice; neighbours may overlap by a tick.
        return [min(1.0, time / span) for time in busy]

    def write(
        self,
        path: Path,
        name: str = "amphw",
        worker_names: Mapping[int, str] | None = None,
        ranks: Sequence[RankTrace] = (),
    ) -> None:
        """Write the trace to `path`, gzipped if it ends in .gz; `name` is shown as the process.

        ranks: those of a run that has several, the first of which this trace is of. Each is a process.

        Raises `run_folder.WriteError`.
        """
        with self._lock:
            pieces, keys, dropped = list(self._slices), list(self._keys), self._dropped
        document = {
            "traceEvents": list(_all_events(pieces, keys, name, worker_names or {}, ranks)),
            "displayTimeUnit": "ms",
            "otherData": {"slices": len(pieces), "dropped": dropped},
        }
        data = json.dumps(document, separators=(",", ":")).encode("utf-8")
        path = Path(path)
        # No timestamp in the gzip header: equal traces make equal files.
        write_atomic(path, gzip.compress(data, compresslevel=3, mtime=0) if path.suffix == ".gz" else data)


def _all_events(
    pieces: list[Slice],
    keys: list[tuple[float, int]],
    name: str,
    worker_names: Mapping[int, str],
    ranks: Sequence[RankTrace],
) -> Iterator[dict[str, Any]]:
    """Those of this process and, where there are several ranks, of all."""
    flows = numbers(1)
    first = f"rank 0, {name}" if ranks else name
    yield from _events(pieces, keys, first, worker_names, process_of(0), flows)
    for rank in ranks[1:]:
        moved = [replace(each, start_us=each.start_us - rank.offset_us) for each in rank.slices]
        called = f"rank {rank.rank}, {name}"
        yield from _events(moved, [], called, worker_names, process_of(rank.rank), flows)
    yield from rank_events(ranks, next(flows))


def _events(
    pieces: list[Slice],
    keys: list[tuple[float, int]],
    name: str,
    worker_names: Mapping[int, str],
    pid: int,
    flows: Iterator[int],
) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for worker in sorted({piece.worker for piece in pieces} | set(worker_names)):
        label = worker_names.get(worker, f"worker {worker}")
        thread = {"ph": "M", "pid": pid, "tid": worker + 1}
        yield thread | {"name": "thread_name", "args": {"name": label}}
        yield thread | {"name": "thread_sort_index", "args": {"sort_index": worker}}
    for piece in pieces:
        yield {
            "ph": "X",
            "pid": pid,
            "tid": piece.worker + 1,
            "ts": _us(piece.start_us),
            "dur": _us(piece.duration_us),
            "name": piece.node,
            "cat": piece.direction,
            "args": {"rows": piece.rows, "node": piece.node, "direction": piece.direction},
        }
    yield from _flows(pieces, pid, flows)
    for time_us, count in keys:
        yield {"ph": "C", "pid": pid, "ts": _us(time_us), "name": "keys in flight", "args": {"keys": count}}


def _flows(pieces: list[Slice], pid: int, flows: Iterator[int]) -> Iterator[dict[str, Any]]:
    """A pair of events for each consumer whose producer is still kept.

    An event belongs to the slice that encloses its time, so the start lies within the producer, not at its
    end, where the next slice begins. Each pair has an id of its own: a second "f" on one id would be
    ignored.
    """
    producers = {piece.flow_out: piece for piece in pieces if piece.flow_out is not None}
    for piece in pieces:
        producer = producers.get(piece.flow_in) if piece.flow_in is not None else None
        if producer is None or producer.start_us > piece.start_us:
            continue
        common = {"pid": pid, "id": next(flows), "cat": "message", "name": "message"}
        left_at = min(producer.start_us + 0.9 * producer.duration_us, piece.start_us)
        yield common | {"ph": "s", "tid": producer.worker + 1, "ts": _us(left_at)}
        yield common | {"ph": "f", "bp": "e", "tid": piece.worker + 1, "ts": _us(piece.start_us)}


def _us(value: float) -> float:
    """Microseconds to the nanosecond: more digits would be noise, and a third of the file."""
    return round(value, 3)
