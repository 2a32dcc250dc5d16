"""Parameter servers in step: ranks push gradients to whoever owns a parameter, and pull what it has become.

As in Parallax (Kim et al., arXiv 1808.02621, sections 2.2 and 3): of a table, ranks push the rows that have a
gradient and pull those that they are about to read, by their numbers; nothing else of it moves. A rank never
reads a row that it has not pulled since the last update. Servers add up in the order of the ranks, so that a
run does not depend on who is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from amphw.ir.clipping import clip_factor
from amphw.ir.exchange import NodeGradient, Rows, added
from amphw.ir.sparse import SparseParameter
from amphw.ir.update import NodeParameters
from amphw.replicas.collectives import all_reduce
from amphw.replicas.packed import Traffic, add_up, packed, unpacked
from amphw.replicas.placement import place_dense, place_tables
from amphw.replicas.served import NodeClock, Owned
from amphw.replicas.transport import Transport
from amphw.replicas.wire import coded_kind, decode, encode


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
        self._narrowed = False  # whether ranks hold dense values that are rounded for the wire
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

    # --- what goes where --------------------------------------------------------------------------

    def plan(
        self, gradients: Mapping[str, NodeGradient] | None, wanted: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Sort this rank's rows by their servers. wanted: by table the rows that it is about to read.
        gradients: none between steps.

        -> int64 [ranks, servers, tables, 2]: how many rows it pushes and pulls; zeros for the other ranks, so
        that the sum over ranks tells all of them how long every message is.
        """
        sizes = np.zeros((self._transport.ranks, len(self._serving), len(self._tables), 2), np.int64)
        self._gradients = {}
        tables = {n: Rows.none(s.shape[1], self._kind) for n, s in self._tables.items()}
        if gradients is not None:
            self._gradients = {n: gradients[node].arrays[name] for n, (node, name) in self._dense.items()}
            tables = {n: gradients[s.node].tables[s.name] for n, s in self._tables.items()}
        if self._transport.rank not in self._working:
            return sizes
        if gradients is not None:
            tables = self._on_machine(tables)
        self._pushed = [self._part(tables, k) for k in range(len(self._serving))]
        self._asked = [
            {n: m[self._places[n].server_of(m) == k] for n, m in wanted.items()}
            for k in range(len(self._serving))
        ]
        for k in range(len(self._serving)):
            for j, n in enumerate(self._tables):
                sizes[self._transport.rank, k, j] = len(self._pushed[k][n].numbers), len(self._asked[k][n])
        return sizes

    def _part(self, tables: Mapping[str, Rows], server: int) -> dict[str, Rows]:
        """A server's part of rows, by their places among those that it owns."""
        out = {}
        for n, found in tables.items():
            there = self._places[n].server_of(found.numbers) == server
            numbers = self._places[n].local(found.numbers[there], server).astype(np.int32)
            out[n] = Rows(numbers, found.values[there])
        return out

    def _on_machine(self, tables: dict[str, Rows]) -> dict[str, Rows]:
        """The rows of all ranks of this machine at the first of them, and none at the others."""
        t, (chief, *others) = self._transport, self._machine
        if not others:
            return tables
        if t.rank != chief:
            t.send(chief, np.array([len(r.numbers) for r in tables.values()], np.int64))
            numbers, values = ([getattr(r, of) for r in tables.values()] for of in ("numbers", "values"))
            t.send(chief, packed([*numbers, *values]))
            return {n: Rows.none(r.values.shape[1], r.values.dtype) for n, r in tables.items()}
        pieces = {n: [rows] for n, rows in tables.items()}
        for other in others:
            counts = np.empty(len(tables), np.int64)
            t.receive(other, counts)
            sizes = dict(zip(tables, counts.tolist(), strict=True))
            all_numbers = {n: self._numbers_of(n, count) for n, count in sizes.items()}
            found, rows = self._unpacked(other, sizes, all_numbers)
            for n in tables:
                pieces[n].append(Rows(found[n], self._rows(n, rows[n])))
        return {n: added(of_all) for n, of_all in pieces.items()}

    def _numbers_of(self, table: str, rows: int) -> int:
        return rows * self._tables[table].shape[1]

    def _rows(self, table: str, values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, self._tables[table].shape[1])

    def _unpacked(
        self, source: int, *sizes: Mapping[str, int], traffic: Traffic | None = None
    ) -> tuple[dict[str, np.ndarray], ...]:
        """What `packed` has put together: all but the last are of row numbers, the last is of values.

        traffic: counts the values, and says how they were coded; None: in full, and they do not count."""
        wire = traffic.wire if traffic is not None else "full"
        kinds = [*([np.dtype(np.int32)] * (len(sizes) - 1)), coded_kind(self._kind, wire)]
        parts = [(kind, size) for kind, each in zip(kinds, sizes, strict=True) for size in each.values()]
        everything = np.empty(sum(kind.itemsize * size for kind, size in parts), np.uint8)
        self._transport.receive(source, everything)
        found = iter(unpacked(everything, parts))
        *numbers, values = [{n: next(found) for n in each} for each in sizes]
        if traffic is not None:
            for n, v in values.items():
                traffic.count(n, 0, v.nbytes)
        return *numbers, {n: decode(v, wire, self._kind) for n, v in values.items()}

    # --- gradients --------------------------------------------------------------------------------

    def push(self, sizes: np.ndarray, traffic: Traffic, gradients: bool = True) -> None:
        """Bring all ranks' gradients, and which rows they want, to the owners, which add up.

        sizes: the sum of all ranks' `plan`s. gradients: false where they were planned without.
        """
        t = self._transport
        if t.rank in self._working:
            for k, server in enumerate(self._serving):
                if server != t.rank:
                    self._push_to(k, server, traffic)
        if self._me < 0:
            return
        sums: dict[str, np.ndarray] = {}
        pieces: dict[str, list[Rows]] = {n: [] for n in self._tables}
        self._wanted: dict[int, dict[str, np.ndarray]] = {}
        for worker in self._working:
            there = sizes[worker, self._me]
            parts, rows, self._wanted[worker] = self._pushed_by(worker, there, gradients, traffic)
            for n, g in parts.items():
                sums[n] = sums[n] + g if n in sums else g.copy()
            for n, found in rows.items():
                pieces[n].append(found)
        if not gradients:
            return
        for n, g in sums.items():
            self.owned[n].gradient = g
        for n, of_all in pieces.items():
            self.owned[n].gradient = added(of_all)

    def _push_to(self, k: int, server: int, traffic: Traffic) -> None:
        rows, asked = self._pushed[k], self._asked[k]
        dense = {n: g.reshape(-1)[self._ranges[n][k]] for n, g in self._gradients.items()}
        there = [self._places[n].local(m, k).astype(np.int32) for n, m in asked.items()]
        values = {**dense, **{n: r.values for n, r in rows.items()}}
        values = {n: encode(v, traffic.wire) for n, v in values.items()}
        self._transport.send(server, packed([*(r.numbers for r in rows.values()), *there, *values.values()]))
        for n, v in values.items():
            traffic.count(n, v.nbytes, 0)

    def _pushed_by(
        self, worker: int, sizes: np.ndarray, gradients: bool, traffic: Traffic
    ) -> tuple[dict[str, np.ndarray], dict[str, Rows], dict[str, np.ndarray]]:
        """What a rank has for this server: dense gradients, rows, and the rows that it wants (places)."""
        if worker == self._transport.rank:
            dense = {n: g.reshape(-1)[self._ranges[n][self._me]] for n, g in self._gradients.items()}
            asked = {n: self._places[n].local(m, self._me) for n, m in self._asked[self._me].items()}
            return dense, self._pushed[self._me], asked
        pushed = dict(zip(self._tables, sizes[:, 0].tolist(), strict=True))
        asked_for = dict(zip(self._tables, sizes[:, 1].tolist(), strict=True))
        dense_sizes = {n: r[self._me].stop - r[self._me].start for n, r in self._ranges.items()}
        values = dense_sizes if gradients else {}
        values = values | {n: self._numbers_of(n, count) for n, count in pushed.items()}
        numbers, wanted, found = self._unpacked(worker, pushed, asked_for, values, traffic=traffic)
        rows = {n: Rows(m, self._rows(n, found[n])) for n, m in numbers.items()}
        return {n: v for n, v in found.items() if n in self._dense}, rows, wanted

    # --- updates ----------------------------------------------------------------------------------

    def reduce(self, rows: Mapping[str, int], times: Mapping[str, float]) -> None:
        """Make of the sums what rules call the gradient: a mean over all rows where they say so; then so many
        times that, by parameter."""
        for full, o in self.owned.items():
            o.check()
            mean = self._clocks[o.node].rule.reduce == "mean"
            o.scale(times[full] / (max(1, rows[o.node]) if mean else 1))

    def squares(self) -> float:
        """Of the numbers in all reduced gradients, whoever owns them."""
        total = np.array([sum(o.squares() for o in self.owned.values())], np.float64)
        all_reduce(self._transport, total)
        return float(total[0])

    def scale(self, factor: float) -> None:
        if factor != 1.0:
            for o in self.owned.values():
                o.scale(factor)

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
        for n, total in zip(clipped, squares.tolist(), strict=True):
            if n in self.owned:
                self.owned[n].scale(clip_factor(total, limits[n]))

    # --- values -----------------------------------------------------------------------------------

    def pull(self, dense: bool, traffic: Traffic) -> dict[str, dict[str, np.ndarray | Rows]]:
        """The rows that ranks have asked for. dense: and all of the other parameters -> by node and name.

        With 16 bits on the wire all ranks, the owner too, get what has been rounded, to compute with; what is
        owned stays in full."""
        t = self._transport
        if dense:
            self._narrowed = traffic.wire != "full"
        if self._me >= 0:
            for worker in self._working:
                if worker != t.rank:
                    self._answer(worker, dense, traffic)
        if t.rank not in self._working:
            return {}
        flat = {n: np.empty(int(np.prod(s)), self._kind) for n, s in self._shapes.items()} if dense else {}
        of_tables = {n: self._room_for(n) for n in self._tables}
        for k, server in enumerate(self._serving):
            if server == t.rank:
                coded = self._values_for(t.rank, dense, traffic.wire)
                found = {n: decode(v, traffic.wire, self._kind) for n, v in coded.items()}
            else:
                sizes = {n: self._ranges[n][k].stop - self._ranges[n][k].start for n in flat}
                sizes |= {n: self._numbers_of(n, len(m)) for n, m in self._asked[k].items()}
                (found,) = self._unpacked(server, sizes, traffic=traffic)
            for n, values in found.items():
                if n in of_tables:
                    rows = of_tables[n]
                    rows.values[np.searchsorted(rows.numbers, self._asked[k][n])] = self._rows(n, values)
                else:
                    flat[n][self._ranges[n][k]] = values
        out: dict[str, dict[str, np.ndarray | Rows]] = {}
        for n, values in flat.items():
            node, name = self._dense[n]
            out.setdefault(node, {})[name] = values.reshape(self._shapes[n])
        for n, table in self._tables.items():
            out.setdefault(table.node, {})[table.name] = of_tables[n]
        return out

    def _room_for(self, table: str) -> Rows:
        """The rows that this rank has asked for, whoever owns them; their values are to come."""
        numbers = np.sort(np.concatenate([asked[table] for asked in self._asked]))
        return Rows(numbers, np.empty((len(numbers), self._tables[table].shape[1]), self._kind))

    def _values_for(self, worker: int, dense: bool, wire: str) -> dict[str, np.ndarray]:
        values = {n: self.owned[n].values for n in self._dense} if dense else {}
        values |= {n: self.owned[n].values[m] for n, m in self._wanted[worker].items()}
        return {n: encode(v, wire) for n, v in values.items()}

    def _answer(self, worker: int, dense: bool, traffic: Traffic) -> None:
        values = self._values_for(worker, dense, traffic.wire)
        self._transport.send(worker, packed(list(values.values())))
        for n, v in values.items():
            traffic.count(n, v.nbytes, 0)

    def fetch(
        self, wanted: Mapping[str, np.ndarray], traffic: Traffic
    ) -> dict[str, dict[str, np.ndarray | Rows]]:
        """Rows, between steps; all ranks call this. What is dense comes with them where ranks do not have it
        in full: what they validate with is what is saved."""
        dense = self._narrowed
        if not self._tables and not dense:
            return {}
        sizes = self.plan(None, wanted)
        add_up(self._transport, sizes.reshape(-1))
        self.push(sizes, traffic, gradients=False)
        return self.pull(dense, traffic)

    def gather(self, parameters: Mapping[str, NodeParameters] | None) -> None:
        """All that servers own, with the optimisers' state, into the first rank's parameters."""
        t = self._transport
        if t.rank == 0:
            assert parameters is not None
            self._make_room(parameters)
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

    def _make_room(self, parameters: Mapping[str, NodeParameters]) -> None:
        """New arrays, as whoever holds a version keeps it, also of tables that the device has let go of."""
        served = {**self._dense, **{n: (t.node, t.name) for n, t in self._tables.items()}}
        for full, (node, name) in served.items():
            p = parameters[node]
            shape = self._tables[full].shape if full in self._tables else self._shapes[full]
            p.values = {**p.values, name: np.empty(shape, self._kind)}
            if name not in p.slots:
                p.slots[name] = [np.empty(shape, self._kind) for _ in range(p.rule.slots())]

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
