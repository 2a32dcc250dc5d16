"""Parameter servers in step: ranks push gradients to whoever owns a parameter, and pull what it has become.

As in Parallax (Kim et al., arXiv 1808.02621, sections 2.2 and 3): of a table, ranks push the rows that have a
gradient and pull those that they are about to read, by their numbers; nothing else of it moves. A rank never
reads a row that it has not pulled since the last update. Servers add up in the order of the ranks, so that a
run does not depend on who is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from amphw.ir.exchange import NodeGradient, Rows, added
from amphw.ir.sparse import SparseParameter
from amphw.ir.update import NodeParameters
from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import Traffic
from amphw.replicas.placement import place_dense, place_tables
from amphw.replicas.served import NodeClock, Owned
from amphw.replicas.transport import Transport


class Servers:
    """One rank's view: what it pushes to and pulls from the servers, and what it owns if it is one itself.

    parameters: as all ranks hold them at the beginning. dense: names of those that are served as a whole,
    NODE.NAME. tables: those that are served by rows. serving: the ranks that are servers. working: those that
    train. machine: the ranks of this one's machine, which add up rows before anything goes to a server.
    """

    def __init__(
        self,
        transport: Transport,
        parameters: Mapping[str, NodeParameters],
        dense: Sequence[tuple[str, str]],
        tables: Sequence[SparseParameter],
        serving: Sequence[int],
        working: Sequence[int],
        machine: Sequence[int],
    ):
        self._transport, self._serving, self._working = transport, serving, working
        self._machine = machine
        self._tables = {f"{t.node}.{t.name}": t for t in tables}
        self._dense = {f"{node}.{name}": (node, name) for node, name in sorted(dense)}
        of = {n: parameters[node].values[name] for n, (node, name) in self._dense.items()}
        self._shapes = {n: v.shape for n, v in of.items()}
        self._ranges = place_dense({n: v.size for n, v in of.items()}, len(serving))
        self._places = place_tables({n: t.shape[0] for n, t in self._tables.items()}, len(serving))
        nodes = {node for node, _ in dense} | {t.node for t in tables}
        kinds = {v.dtype for node in nodes for v in parameters[node].values.values()}
        assert len(kinds) <= 1, kinds
        self._kind = kinds.pop() if kinds else np.dtype(np.float32)
        self._clocks = {
            n: NodeClock(parameters[n].rule, parameters[n].version, parameters[n].state) for n in nodes
        }
        self._me = serving.index(transport.rank) if transport.rank in serving else -1
        self.owned = dict(self._own(parameters)) if self._me >= 0 else {}

    def _own(self, parameters: Mapping[str, NodeParameters]) -> Iterator[tuple[str, Owned]]:
        for full, (node, name) in self._dense.items():
            p, part = parameters[node], self._ranges[full][self._me]
            slots = [slot.reshape(-1)[part].copy() for slot in p.slots[name]]
            yield full, Owned(node, name, p.values[name].reshape(-1)[part].copy(), slots)
        for full, t in self._tables.items():
            p, rows = parameters[t.node], self._places[full].owned(self._me)
            slots = [slot[rows].copy() for slot in p.slots[t.name]]
            yield full, Owned(t.node, t.name, p.values[t.name][rows].copy(), slots)

    # --- gradients --------------------------------------------------------------------------------

    def push(self, gradients: Mapping[str, NodeGradient], traffic: Traffic) -> None:
        """Bring all ranks' gradients to their owners, which add them up."""
        t = self._transport
        dense = {n: gradients[node].arrays[name] for n, (node, name) in self._dense.items()}
        tables = {n: gradients[s.node].tables[s.name] for n, s in self._tables.items()}
        if t.rank in self._working:
            tables = self._on_machine(tables, traffic)
            for k, server in enumerate(self._serving):
                rows, numbers = {}, {}
                for n, found in tables.items():
                    there = self._places[n].server_of(found.numbers) == k
                    numbers[n] = self._places[n].local(found.numbers[there], k).astype(np.int32)
                    rows[n] = Rows(numbers[n], found.values[there])
                parts = {n: g.reshape(-1)[self._ranges[n][k]] for n, g in dense.items()}
                if server == t.rank:
                    mine = parts, rows
                else:
                    self._send(server, parts, rows, traffic)
        if self._me < 0:
            return
        sums: dict[str, np.ndarray] = {}
        pieces: dict[str, list[Rows]] = {n: [] for n in tables}
        for worker in self._working:
            parts, rows = mine if worker == t.rank else self._received(worker, traffic)
            for n, g in parts.items():
                sums[n] = sums[n] + g if n in sums else g.copy()
            for n, found in rows.items():
                pieces[n].append(found)
        for n, g in sums.items():
            self.owned[n].gradient = g
        for n, of_all in pieces.items():
            self.owned[n].gradient = added(of_all)

    def _on_machine(self, tables: dict[str, Rows], traffic: Traffic) -> dict[str, Rows]:
        """The rows of all ranks of this machine at the first of them, and none at the others."""
        chief, *others = self._machine
        if not others:
            return tables
        if self._transport.rank != chief:
            self._send(chief, {}, tables, traffic)
            return {n: Rows.none(r.values.shape[1], r.values.dtype) for n, r in tables.items()}
        pieces = {n: [rows] for n, rows in tables.items()}
        for other in others:
            for n, rows in self._received(other, traffic, dense=False)[1].items():
                pieces[n].append(rows)
        return {n: added(found) for n, found in pieces.items()}

    def _send(
        self, to: int, parts: Mapping[str, np.ndarray], tables: Mapping[str, Rows], traffic: Traffic
    ) -> None:
        """Numbers of rows, then their numbers, then all values in one message."""
        if tables:
            self._transport.send(to, np.array([len(r.numbers) for r in tables.values()], np.int64))
            self._transport.send(to, np.concatenate([r.numbers for r in tables.values()]))
        values = {**parts, **{n: r.values.reshape(-1) for n, r in tables.items()}}
        self._transport.send(to, np.concatenate(list(values.values())))
        for n, v in values.items():
            traffic.count(n, v.nbytes, 0)

    def _received(
        self, source: int, traffic: Traffic, dense: bool = True
    ) -> tuple[dict[str, np.ndarray], dict[str, Rows]]:
        """What `_send` has sent to this rank, as a server (dense) or as the first of a machine."""
        numbers = self._numbers(source)
        sizes = {n: r[self._me].stop - r[self._me].start for n, r in self._ranges.items()} if dense else {}
        sizes |= {n: len(m) * self._tables[n].shape[1] for n, m in numbers.items()}
        values = self._values(source, sizes, traffic)
        parts = {n: values[n] for n in sizes if n not in numbers}
        return parts, {n: Rows(m, self._rows(n, values[n])) for n, m in numbers.items()}

    def _rows(self, table: str, values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, self._tables[table].shape[1])

    def _numbers(self, source: int) -> dict[str, np.ndarray]:
        if not self._tables:
            return {}
        counts = np.empty(len(self._tables), np.int64)
        self._transport.receive(source, counts)
        everything = np.empty(int(counts.sum()), np.int32)
        self._transport.receive(source, everything)
        return dict(zip(self._tables, np.split(everything, np.cumsum(counts)[:-1]), strict=True))

    def _values(self, source: int, sizes: Mapping[str, int], traffic: Traffic) -> dict[str, np.ndarray]:
        everything = np.empty(sum(sizes.values()), self._kind)
        self._transport.receive(source, everything)
        parts = np.split(everything, np.cumsum(list(sizes.values()))[:-1])
        for n, part in zip(sizes, parts, strict=True):
            traffic.count(n, 0, part.nbytes)
        return dict(zip(sizes, parts, strict=True))

    # --- updates ----------------------------------------------------------------------------------

    def reduce(self, rows: Mapping[str, int], times: float = 1.0) -> None:
        """Make of the sums what rules call the gradient: a mean over all rows where they say so."""
        for o in self.owned.values():
            o.check()
            mean = self._clocks[o.node].rule.reduce == "mean"
            o.scale(times / max(1, rows[o.node]) if mean else times)

    def update(self, rows: Mapping[str, int]) -> None:
        """Apply what was pushed and reduced; a node that has no rows stays as it is."""
        self._clip()
        scalars = {n: clock.tick() for n, clock in self._clocks.items() if rows[n]}
        for o in self.owned.values():
            if o.node in scalars:
                o.step(self._clocks[o.node].rule, scalars[o.node])

    def _clip(self) -> None:
        """By the norms of whole parameters, of which each server knows a part."""
        limits = {n: self._clocks[node].rule.clip for n, (node, _) in self._dense.items()}
        limits |= {n: self._clocks[t.node].rule.clip for n, t in self._tables.items()}
        clipped = [n for n, limit in limits.items() if limit > 0.0]
        if not clipped:
            return
        squares = np.array([self.owned[n].squares() if n in self.owned else 0.0 for n in clipped])
        all_reduce(self._transport, squares)
        for n, norm in zip(clipped, np.sqrt(squares).tolist(), strict=True):
            if n in self.owned and norm > limits[n]:
                self.owned[n].scale(limits[n] / norm)

    # --- values -----------------------------------------------------------------------------------

    def pull(
        self, wanted: Mapping[str, np.ndarray], dense: bool, traffic: Traffic
    ) -> dict[str, dict[str, np.ndarray | Rows]]:
        """wanted: row numbers by table. dense: whether all others are wanted, too -> by node and name."""
        t, works = self._transport, self._transport.rank in self._working
        asked: dict[int, dict[str, np.ndarray]] = {}
        for k, server in enumerate(self._serving):
            asked[server] = {n: wanted[n][self._places[n].server_of(wanted[n]) == k] for n in self._tables}
            if works and server != t.rank and self._tables:
                there = [self._places[n].local(m, k).astype(np.int32) for n, m in asked[server].items()]
                t.send(server, np.array([len(m) for m in there], np.int64))
                t.send(server, np.concatenate(there))
        if self._me >= 0:
            for worker in self._working:
                if worker != t.rank:
                    self._answer(worker, dense, traffic)
        if not works:
            return {}
        flat = {n: np.empty(int(np.prod(s)), self._kind) for n, s in self._shapes.items()} if dense else {}
        pieces: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {n: [] for n in self._tables}
        for k, server in enumerate(self._serving):
            if server == t.rank:
                parts = {n: self.owned[n].values for n in flat}
                rows = {
                    n: self.owned[n].values[self._places[n].local(m, k)] for n, m in asked[server].items()
                }
            else:
                sizes = {n: self._ranges[n][k].stop - self._ranges[n][k].start for n in flat}
                sizes |= {n: len(m) * self._tables[n].shape[1] for n, m in asked[server].items()}
                parts = self._values(server, sizes, traffic) if sizes else {}
                rows = {n: self._rows(n, parts[n]) for n in asked[server]}
            for n in flat:
                flat[n][self._ranges[n][k]] = parts[n]
            for n, values in rows.items():
                pieces[n].append((asked[server][n], values))
        out: dict[str, dict[str, np.ndarray | Rows]] = {}
        for n, values in flat.items():
            node, name = self._dense[n]
            out.setdefault(node, {})[name] = values.reshape(self._shapes[n])
        for n, table in self._tables.items():
            numbers = np.concatenate([m for m, _ in pieces[n]])
            order = np.argsort(numbers)
            found = np.concatenate([v for _, v in pieces[n]])
            out.setdefault(table.node, {})[table.name] = Rows(numbers[order], found[order])
        return out

    def _answer(self, worker: int, dense: bool, traffic: Traffic) -> None:
        values = {n: self.owned[n].values for n in self._dense} if dense else {}
        values |= {n: self.owned[n].values[m].reshape(-1) for n, m in self._numbers(worker).items()}
        if not values:
            return
        self._transport.send(worker, np.concatenate(list(values.values())))
        for n, v in values.items():
            traffic.count(n, v.nbytes, 0)

    def gather(self, parameters: Mapping[str, NodeParameters] | None) -> None:
        """All that servers own, with the optimisers' state, into the first rank's parameters."""
        t = self._transport
        if t.rank == 0:
            assert parameters is not None
            for node in self._clocks:
                p = parameters[node]
                p.values = {name: v.copy() for name, v in p.values.items()}
        for k, server in enumerate(self._serving):
            if server == t.rank == 0:
                found = {n: [o.values, *o.slots] for n, o in self.owned.items()}
            elif server == t.rank:
                for o in self.owned.values():
                    for array in (o.values, *o.slots):
                        t.send(0, np.ascontiguousarray(array).reshape(-1))
                continue
            elif t.rank != 0:
                continue
            for n in [*self._dense, *self._tables]:
                targets = self._targets(n, k, parameters)
                for j, target in enumerate(targets):
                    if server == 0:
                        target[...] = found[n][j]
                    else:
                        room = np.empty(target.size, self._kind)
                        t.receive(server, room)
                        target[...] = room.reshape(target.shape)

    def _targets(
        self, full: str, server: int, parameters: Mapping[str, NodeParameters] | None
    ) -> list[np.ndarray]:
        """Views of a server's part in whole parameters: of the values, then of the optimiser's arrays."""
        assert parameters is not None
        if full in self._tables:
            table = self._tables[full]
            p, rows = parameters[table.node], self._places[full].owned(server)
            return [a[rows] for a in (p.values[table.name], *p.slots[table.name])]
        node, name = self._dense[full]
        p, part = parameters[node], self._ranges[full][server]
        return [a.reshape(-1)[part] for a in (p.values[name], *p.slots[name])]
