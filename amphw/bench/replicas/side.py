"""One side of a comparison of throughputs, in processes of its own.

    python -m amphw.bench.replicas.side '{"model": ..., "settings": [...], "ranks": 1}'

Under `mpiexec` all of its processes are the ranks. The first one prints, as JSON, the instances per second of
the second half of the epochs: in the first routes are planned, and data is encoded when a rank first meets
it. With `{"wait": SECONDS}` nobody trains: all but the
first wait for a message that comes after so many seconds, and what they meanwhile use of a core is printed.
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
from amphw.replicas.mpi import mpi_transport
from amphw.replicas.runner import HERE, get_runner


def main() -> None:
    spec = json.loads(sys.argv[1])
    found = waiting(float(spec["wait"])) if "wait" in spec else training(spec)
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
    return {"rates": rates, "seconds": runner.synchronised.seconds if runner.synchronised else None}


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


if __name__ == "__main__":
    main()
