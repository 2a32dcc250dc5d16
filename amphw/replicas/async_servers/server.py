"""One server: what it owns of all parameters, which pushes it has applied, and who may have an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from amphw.ir.update import NodeParameters
from amphw.replicas.ako.flat import Flat, Piece
from amphw.replicas.served import NodeClock, Owned


class Server:
    """Pure accounting: it is given pushes, and says which of them are to be answered.

    A push is an update by the rules of its nodes. It is answered once its sender may go on: when it is at
    most `bound` rounds ahead of the slowest other worker that makes more of them.

    part: the numbers of all parameters (`flat`) that are its own. workers: the ranks that push.
    """

    def __init__(
        self,
        flat: Flat,
        part: slice,
        parameters: Mapping[str, NodeParameters],
        workers: Iterable[int],
        bound: int,
    ):
        self._flat, self._pieces, self._bound = flat, list(flat.inside(part)), bound
        self._workers = list(workers)
        self.own(parameters)
        self.begin()

    def own(self, parameters: Mapping[str, NodeParameters]) -> None:
        """Go on from these values, with the optimisers' arrays, versions and scalars beside them."""
        self._owned = []
        for piece in self._pieces:
            p = parameters[self._flat.nodes[piece.node]]
            slots = [slot.reshape(-1)[piece.inside].copy() for slot in p.slots[piece.name]]
            values = p.values[piece.name].reshape(-1)[piece.inside].copy()
            self._owned.append(Owned(self._flat.nodes[piece.node], piece.name, values, slots))
        self.updates = {n: NodeClock(p.rule, p.version, p.state) for n, p in parameters.items()}

    def begin(self) -> None:
        """All have met, and every push has been answered."""
        self._rounds = dict.fromkeys(self._workers, 0)
        self._finished: set[int] = set()
        self._waiting: dict[int, float] = {}  # whose push is not answered yet, and since when

    # --- pushes -------------------------------------------------------------------------------------

    def push(self, worker: int, round: int, rows: np.ndarray, values: np.ndarray | None, now: float) -> None:
        """Apply a worker's next round. rows: of each node. values: of this server's part, summed over rows;
        None: all zero. Raises NonFiniteError."""
        assert round == self._rounds[worker] + 1 and worker not in self._waiting, (worker, round)
        counted = dict(zip(self._flat.nodes, rows.tolist(), strict=True))
        scalars = {node: self.updates[node].tick() for node, n in counted.items() if n}
        for piece, o in zip(self._pieces, self._owned, strict=True):
            if o.node not in scalars:
                continue
            assert values is not None, (worker, round)
            rule, gradient = self.updates[o.node].rule, values[piece.at]
            mean = rule.reduce == "mean"
            o.gradient = gradient / gradient.dtype.type(counted[o.node]) if mean else gradient
            o.check()
            o.step(rule, scalars[o.node])
        self._rounds[worker] = round
        self._waiting[worker] = now

    def finish(self, worker: int) -> None:
        """It makes no more rounds until all have met, and nobody waits for it."""
        self._finished.add(worker)

    def answers(self, now: float) -> list[tuple[int, int, float]]:
        """Whose pushes are to be answered now: the worker, its round, and for how many seconds the bound has
        held it."""
        free = [worker for worker in self._waiting if self._may_go_on(worker)]
        return [(worker, self._rounds[worker], now - self._waiting.pop(worker)) for worker in free]

    def _may_go_on(self, worker: int) -> bool:
        others = [n for w, n in self._rounds.items() if w != worker and w not in self._finished]
        ahead = self._rounds[worker] - min(others, default=self._rounds[worker])
        return worker in self._finished or ahead <= self._bound

    # --- what it has --------------------------------------------------------------------------------

    @property
    def clocks(self) -> np.ndarray:
        """int64: the rounds of each worker that have been applied here, in their order."""
        return np.array(list(self._rounds.values()), np.int64)

    @property
    def values(self) -> np.ndarray:
        """Of its part."""
        return np.concatenate([np.empty(0, self._flat.kind), *(o.values for o in self._owned)])

    @property
    def bytes(self) -> int:
        """Of values and of the optimisers' arrays."""
        return sum(array.nbytes for o in self._owned for array in (o.values, *o.slots))

    def into(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Write values and the optimisers' arrays into those of whole parameters, by NODE.NAME and, of the
        optimiser's, NODE.NAME#slotI."""
        for piece, o in zip(self._pieces, self._owned, strict=True):
            name = self._flat.name(piece)
            for full, array in ((name, o.values), *((f"{name}#slot{i}", s) for i, s in enumerate(o.slots))):
                tensors[full].reshape(-1)[piece.inside] = array


def needs_values(pieces: Iterable[Piece], rows: np.ndarray) -> bool:
    """Whether anything in these pieces has a gradient. rows: of each node."""
    return any(rows[piece.node] for piece in pieces)
