"""A small model for the tests of the library: whether the ones in a list are odd in number."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw import frontend as fe

SPEC = fe.Record(bits=fe.Sequence(fe.Int(2), most=12), odd=fe.Int(2))
QUIET: dict[str, Any] = {"progress": False, "epochs": 2, "trace": False}


def model(hidden: int = 8) -> Any:
    embed, cell, head = fe.Embedding(2, 4), fe.GRU(hidden), fe.Linear(2)

    def parity(x: Any) -> None:
        fe.classify(head(fe.fold(cell, fe.constant(hidden), embed(x.bits))), x.odd)

    return parity


def instances(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    lists = [rng.integers(0, 2, rng.integers(1, 13)) for _ in range(count)]
    return [{"bits": bits, "odd": int(bits.sum() % 2)} for bits in lists]
