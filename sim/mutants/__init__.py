"""All of the gateware, circuit by circuit, with what its benches do: for `amphw bench rtl-mutation`.

A share is about the number of cells that are judged, in tens.
"""

from __future__ import annotations

from typing import Any


def subjects() -> list[Any]:
    from sim.mutants.device import NETWORKS, PONDER, TREES, device
    from sim.mutants.engines import MOMENTUM, lanes, vector
    from sim.mutants.parts import parts

    return [
        *parts(),
        lanes("lane engine", "q4.12", 12_000, 170, **MOMENTUM),
        lanes("lane engine, stochastic", "q6.10,w=q3.13,round=stochastic", 12_000, 50, lanes=8),
        vector("vector unit", "q4.12", 10, 4000, 120),
        device("device", NETWORKS, "momentum", 0.02, 130),
        device("device that decides", PONDER, "sgd", 0.0, 70),
        device("device of trees", TREES, "sgd", 0.02, 80),
    ]
