"""One side of a comparison of throughputs, in processes of its own.

    python -m amphw.bench.replicas.side '{"model": ..., "settings": [...], "ranks": 1}'

Under `mpiexec` all of its processes are the ranks. The first one prints, as JSON, the instances per second of
the second half of the epochs: in the first routes are planned, and data is encoded when a rank first meets
it; and what the ranks have told of the run. With `{"wait": SECONDS}` nobody trains: all but the
first wait for a message that comes after so many seconds, and what they meanwhile use of a core is printed.
With `{"carry": SECONDS, "bytes": N}` the first sends messages of N bytes to the second for so long.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from amphw.host.config import resolve
from amphw.models import get_model
from amphw.replicas.ako.strategy import UNDER_WAY
from amphw.replicas.mpi import mpi_transport, world_size
from amphw.replicas.run import in_threads
from amphw.replicas.runner import HERE, get_runner
from amphw.replicas.transport import Transport


def main() -> None:
    spec = json.loads(sys.argv[1])
    found: dict[str, Any] | None
    if "wait" in spec:
        found = waiting(float(spec["wait"]))
    elif "carry" in spec:
        found = carrying(float(spec["carry"]), int(spec["bytes"]))
    else:
        found = training(spec)
    if found is not None:
        print(json.dumps(found))


def training(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """None on other ranks than the first."""
    model = get_model(spec["model"])
    cfg = resolve(model.config, model.defaults, None, spec["settings"])
    runner = get_runner(model, {HERE: ["cpu"] * int(spec["ranks"])}, cfg)
    summary = runner.run()
    if summary is None:
        return None
    epochs = summary.history[len(summary.history) // 2 - 1 :]
    rates = [
        (b.instances - a.instances) / (b.seconds - a.seconds)
        for a, b in zip(epochs, epochs[1:], strict=False)
    ]
    together = runner.synchronised
    return {
        "rates": rates,
        "seconds": together.seconds if together else None,
        "epochs": [{"seconds": e.seconds, "valid": e.valid[model.metric]} for e in summary.history],
        "own": together.own if together else {},
    }


def waiting(seconds: float) -> dict[str, Any] | None:
    transport = mpi_transport()
    try:
        got = np.zeros(transport.ranks, np.float64)
        if transport.rank == 0:
            time.sleep(seconds)
            for rank in range(1, transport.ranks):
                transport.send(rank, got[:1])
            for rank in range(1, transport.ranks):
                transport.receive(rank, got[rank : rank + 1])
            return {"waiting_cores": float(got.max())}
        began, used = time.perf_counter(), time.process_time()
        transport.receive(0, got[:1])
        got[0] = (time.process_time() - used) / (time.perf_counter() - began)
        transport.send(0, got[:1])
        return None
    finally:
        transport.close()


def carrying(seconds: float, size: int) -> dict[str, Any] | None:
    """None on the second rank."""
    if world_size() > 1:
        transport = mpi_transport()
        try:
            return _carry(transport, seconds, size)
        finally:
            transport.close()

    def follow(other: Transport) -> None:
        _carry(other, seconds, size)

    with in_threads(2, follow) as first:
        return _carry(first, seconds, size)


def _carry(transport: Transport, seconds: float, size: int) -> dict[str, Any] | None:
    """As many messages as partial gradient exchange has under way at once; a last one, of a byte, ends it."""
    if transport.rank > 0:
        while True:
            message = transport.poll(0)
            if message is not None and message.size == 1:
                transport.send(0, np.zeros(1))
                return None
    message, began, count = np.zeros(size, np.uint8), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        if transport.posted(1) < UNDER_WAY:
            transport.post(1, message)
            count += 1
    transport.post(1, message[:1])
    transport.receive(1, np.zeros(1))
    return {"bytes_per_s": count * size / (time.perf_counter() - began)}


if __name__ == "__main__":
    main()
