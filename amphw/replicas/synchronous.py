"""Ranks in step: after every window all make the update that one process makes with all of their instances.

Dense parameters are added up in a ring (AllReduce) or by servers, tables that are looked up by rows are
gathered (AllGatherv) or served: Parallax's three architectures (arXiv 1808.02621, section 2.2 and 3.1), of
which `hybrid`, AllReduce for what is dense and servers for what is sparse, moves the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from amphw.host.gradients import accumulated, give, keep, put
from amphw.ir.clipping import clip_factor, scale, squares
from amphw.ir.device import Device
from amphw.ir.exchange import NodeGradient, Rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.sparse import SparseParameter, rows_read, sparse_parameters
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.replicas.packed import Traffic, add_up, all_reduce_packed
from amphw.replicas.rows import gather_rows, plan_rows
from amphw.replicas.servers import Servers
from amphw.replicas.strategy import Strategy
from amphw.replicas.table3 import gathered, reduced, served
from amphw.replicas.transport import Transport


class Synchronous(Strategy):
    """serves_dense, serves_sparse: whether servers own those parameters. servers: the last so many ranks
    serve and do not train; 0: all do both. machine: so many neighbours are on one machine, which adds up rows
    before they go to a server. average_dense, average_sparse: a rule's mean is over all ranks, as in one
    process; otherwise the ranks' means are added up. sparse_from: `replicas.sparse_from`. clip_norm:
    `train.clip_norm`, over what all ranks have accumulated together.
    """

    in_step = True

    def __init__(
        self,
        name: str,
        serves_dense: bool,
        serves_sparse: bool,
        servers: int = 0,
        machine: int = 1,
        average_dense: bool = True,
        average_sparse: bool = True,
        sparse_from: int = 0,
        clip_norm: float = 0.0,
    ):
        self.name = name
        self._serves_dense, self._serves_sparse = serves_dense, serves_sparse
        self.serves = serves_dense or serves_sparse
        self.servers_only, self._per_machine = servers, machine
        self._average_dense, self._average_sparse = average_dense, average_sparse
        self._least_unread, self._clip_norm = max(sparse_from, 1), clip_norm
        self._placed = False
        self._sparse: dict[str, SparseParameter] = {}
        self._by_rows: dict[str, list[str]] = {}
        self._servers: Servers | None = None

    def begin(
        self, device: Device, transport: Transport, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> None:
        self._graph, self._rules = graph, rules

    def place(self, device: Device, transport: Transport, instances: Iterable[Instance]) -> None:
        """What is sparse is decided by these instances, those of a rank's first window: to tell rows apart
        takes time, which is to be saved where others do not go over the network."""
        if self._placed:
            self._let_go(device)  # of what was there to be saved
            return
        self._placed = True
        parameters = device.parameters()
        tables = sparse_parameters(self._graph)
        sparse = self._worth_it(transport, parameters, tables, instances)
        self._looked_up = {f"{p.node}.{p.name}" for p in tables}
        why = f"of its node's tables a rank leaves less than {self._least_unread} bytes unread in a window"
        self.whole = {f"{p.node}.{p.name}": why for p in tables if p not in sparse}
        self._sparse = {f"{p.node}.{p.name}": p for p in sparse}
        for p in sparse:
            self._by_rows.setdefault(p.node, []).append(p.name)
        trains = len(self.working(transport.ranks))
        self._times = {
            f"{node}.{name}": trains if p.rule.reduce == "mean" and not self._averages(node, name) else 1
            for node, p in parameters.items()
            for name in p.values
        }
        if self.serves:
            self._serve(device, transport, parameters, sparse)

    def _worth_it(
        self,
        transport: Transport,
        parameters: Mapping[str, NodeParameters],
        sparse: Sequence[SparseParameter],
        instances: Iterable[Instance],
    ) -> list[SparseParameter]:
        """Those of nodes of whose tables a rank leaves enough unread, on average over all ranks."""
        reads = rows_read(sparse, instances) if sparse else []
        counts = np.array([len(found) for found in reads], np.int64)
        add_up(transport, counts)
        trains = len(self.working(transport.ranks))
        saved: dict[str, float] = {}
        for p, n in zip(sparse, counts.tolist(), strict=True):
            row = parameters[p.node].values[p.name].nbytes / p.shape[0]
            saved[p.node] = saved.get(p.node, 0.0) + row * (p.shape[0] - n / trains)
        return [p for p in sparse if saved[p.node] >= self._least_unread]

    def _serve(
        self,
        device: Device,
        transport: Transport,
        parameters: Mapping[str, NodeParameters],
        sparse: Sequence[SparseParameter],
    ) -> None:
        """Some ranks own these tables from now on, or all parameters."""
        # Replicas of a node inside the graph are averaged by each rank, on what it holds.
        averaged = {node for group in self._graph.replicas for node in group}
        tables = [p for p in sparse if self._serves_sparse and p.node not in averaged]
        dense = [
            (node, name)
            for node, p in sorted(parameters.items())
            for name in p.values
            if self._serves_dense and node not in averaged and f"{node}.{name}" not in self._sparse
        ]
        if not (tables or dense):
            return
        n, working = transport.ranks, self.working(transport.ranks)
        here = transport.rank // self._per_machine * self._per_machine
        machine = [r for r in range(here, here + self._per_machine) if r in working]
        self._servers = Servers(transport, parameters, dense, tables, self.serving(n), working, machine)
        self._served: dict[str, set[str]] = {}
        for node, name in [*dense, *((t.node, t.name) for t in tables)]:
            self._served.setdefault(node, set()).add(name)
        self._tables = tables
        self._let_go(device)

    def _let_go(self, device: Device) -> None:
        if self._servers is None:
            return
        away: dict[str, list[str]] = {}
        for t in self._tables:
            away.setdefault(t.node, []).append(t.name)
        keep(device, self._served, away)

    @property
    def owned_bytes(self) -> int:  # type: ignore[override]
        owned = self._servers.owned.values() if self._servers is not None else ()
        return sum(array.nbytes for o in owned for array in (o.values, *o.slots))

    def moves(self, ranks: int, size: float, alpha: float | None) -> float | None:
        working = len(self.working(ranks))
        if self._serves_dense if alpha is None else self._serves_sparse:
            # Neighbours on one machine share rows, which the formula does not know.
            alone = self._per_machine == 1
            return served(size, 1.0 if alpha is None else alpha, ranks, working) if alone else None
        return reduced(size, ranks) if alpha is None else gathered(size, alpha, ranks, working)

    def _averages(self, node: str, name: str) -> bool:
        return self._average_sparse if f"{node}.{name}" in self._looked_up else self._average_dense

    def look_ahead(self, upcoming: Sequence[Instance]) -> None:
        if self._servers is not None:
            self._upcoming = self._wanted(upcoming)

    def plan(self, device: Device, transport: Transport) -> np.ndarray:
        """Rows of each node's gradient, and how many rows of tables go where."""
        self._gradients = accumulated(device, self._by_rows)
        parts = [np.array([self._gradients[node].rows for node in sorted(self._gradients)], np.int64)]
        parts.append(plan_rows(transport, self._gathered()))
        if self._servers is not None:
            parts.append(self._servers.plan(self._gradients, self._upcoming))
        self._shapes = [part.shape for part in parts]
        return np.concatenate([part.reshape(-1) for part in parts])

    def exchange(self, device: Device, transport: Transport, traffic: Traffic, planned: np.ndarray) -> None:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(planned, ends[:-1])
        counts, gathering, *serving = (p.reshape(s) for p, s in zip(parts, self._shapes, strict=True))
        rows = dict(zip(sorted(self._gradients), counts.tolist(), strict=True))
        for full, p in self._sparse.items():
            share = len(self._gradients[p.node].tables[p.name].numbers) / p.shape[0]
            traffic.touched[full] = traffic.touched.get(full, 0.0) + share
        if self._servers is not None:
            self._servers.push(serving[0], traffic)
            self._servers.reduce(rows, self._times)
        rest = {node: self._rest(node, g, rows[node]) for node, g in self._gradients.items()}
        self._reduce(rest, transport, gathering, traffic)
        self._clip(rest)
        if self._servers is not None:
            self._servers.update(rows)
        give(device, rest)
        device.update()
        if self._servers is not None:
            put(device, self._servers.pull(True, traffic))

    def _clip(self, rest: Mapping[str, NodeGradient]) -> None:
        """By the norm of everything, of which servers have a part."""
        if not self._clip_norm:
            return
        total = squares(rest, self._rules)  # the same bits on all ranks
        if self._servers is not None:
            total += self._servers.squares()
        factor = clip_factor(total, self._clip_norm)
        scale(rest, factor)
        if self._servers is not None:
            self._servers.scale(factor)

    def _gathered(self) -> dict[str, Rows]:
        """Tables that all ranks hold: their rows with a gradient."""
        served = self._served if self._servers is not None else {}
        return {
            full: self._gradients[p.node].tables[p.name]
            for full, p in self._sparse.items()
            if p.name not in served.get(p.node, ())
        }

    def _rest(self, node: str, gradient: NodeGradient, rows: int) -> NodeGradient:
        """What no server has."""
        served = self._served.get(node, set()) if self._servers is not None else set()
        return NodeGradient(
            rows,
            {name: g for name, g in gradient.arrays.items() if name not in served},
            {name: g for name, g in gradient.tables.items() if name not in served},
        )

    def _reduce(
        self,
        gradients: Mapping[str, NodeGradient],
        transport: Transport,
        gathering: np.ndarray,
        traffic: Traffic,
    ) -> None:
        """In place: what all ranks have accumulated together."""
        dense = {f"{node}.{name}": a for node, g in gradients.items() for name, a in g.arrays.items()}
        all_reduce_packed(transport, dense, traffic, traffic.wire)
        for full, found in gather_rows(transport, self._gathered(), gathering, traffic).items():
            sparse = self._sparse[full]
            gradients[sparse.node].tables[sparse.name] = found
            dense[full] = found.values
        for full, a in dense.items():
            a *= a.dtype.type(self._times[full])

    def fetch(
        self, device: Device, transport: Transport, traffic: Traffic, instances: Iterable[Instance]
    ) -> None:
        if self._servers is None:
            return
        put(device, self._servers.fetch(self._wanted(instances), traffic))
        if traffic.wire != "full":  # ranks train with what they would have pulled
            put(device, self._servers.narrowed(device.parameters(), traffic.wire))

    def _wanted(self, instances: Iterable[Instance]) -> dict[str, np.ndarray]:
        """By served table the rows that these instances may look up."""
        rows = rows_read(self._tables, instances) if self._tables else []
        return {f"{t.node}.{t.name}": found for t, found in zip(self._tables, rows, strict=True)}

    def gather(self, device: Device, transport: Transport) -> None:
        if self._servers is not None:
            device.drain()
            self._servers.gather(device.parameters() if transport.rank == 0 else None)
