"""The C++ data plane: the engine with workers of its own.

Parameters live in the engine, in its own layout. `fetch` copies them into the `NodeParameters` that the host
sees; what the host writes there is taken over before anything else runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from amphw.engine.lowering.describe import Products
from amphw.engine.lowering.lower import Lowered, Observation
from amphw.engine.plane import EnginePlane
from amphw.engine.tiles.gemm_choice import GemmChoice
from amphw.ir.device import Direction
from amphw.ir.errors import AmphwError
from amphw.ir.exchange import Names, NodeGradient, Rows
from amphw.ir.precision import precision_of
from amphw.ir.program import ParamSpec
from amphw.ir.received import Received, checked
from amphw.ir.update import Applied, NodeParameters, no_parameters


class NativePlane(EnginePlane):
    """Same settings and methods as `NumpyPlane`."""

    name = "C++ data plane"

    def __init__(
        self,
        lowered: Lowered,
        params: dict[str, NodeParameters],
        *,
        settings: Mapping[str, Any],
        **options: Any,
    ):
        gemm = GemmChoice(settings.get("gemm", "auto"), precision=precision_of(settings))
        products = Products(gemm.use_blas, gemm.bf16)
        super().__init__(lowered, params, settings=settings, products=products, **options)
        elsewhere = options.get("regions", ())
        self._owned = [
            (u, params[u.name]) for u in lowered.units if u.name in params and u.index not in elsewhere
        ]
        self._written = True  # whether the host may have changed the parameters
        self._pushing = threading.Lock()  # of the pumping thread and one that exchanges beside it
        self._away: set[tuple[int, int]] = set()  # (unit, parameter) of tables that were let go of

    def update(self, nodes: Iterable[str]) -> None:
        """Reduce and publish on behalf of the controller."""
        self.check()
        self.push()
        for name in nodes:
            if name not in self.params or name not in self.lowered.by_name:
                raise AmphwError(no_parameters(name))
            self.engine.update(self.lowered.by_name[name], True)
            self.check()
        self.collect_log()

    def flush(self) -> None:
        """Reduce what is logged without publishing, so that the accumulated gradients are complete."""
        self.check()
        for u, _ in self._owned:
            self.engine.update(u.index, False)
        self.check()
        self.collect_log()

    def gradients(self, by_rows: Names) -> dict[str, NodeGradient]:
        """See `Exchanges`."""
        self.push()
        self.flush()
        found = {}
        for u, _ in self._owned:
            _, rows, _ = self.engine.parameter_state(u.index)
            found[u.name] = out = NodeGradient(rows, {})
            for i, spec in enumerate(self._specs(u.index)):
                asked = spec.name in by_rows.get(u.name, ())
                if self.engine.tracked(u.index, i) and (asked or (u.index, i) in self._away):
                    table = self._touched(u.index, i, spec.shape[1])
                    if asked:
                        out.tables[spec.name] = table
                        continue
                    array = np.empty(spec.shape, np.float32)
                    table.into(array)
                else:
                    array = np.empty(spec.shape, np.float32)
                    self.engine.store_gradient(u.index, i, _matrix(array))
                if asked:  # one that is folded
                    out.tables[spec.name] = Rows.touched(array)
                else:
                    out.arrays[spec.name] = array
        return found

    def _touched(self, unit: int, param: int, width: int) -> Rows:
        numbers = np.array(self.engine.touched(unit, param), np.int32)
        values = np.empty((len(numbers), width), np.float32)
        self.engine.store_rows(unit, param, numbers, values)
        return Rows(numbers, values)

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """See `Exchanges`."""
        self.push()
        for u, _ in self._owned:
            if (given := gradients.get(u.name)) is None:
                continue
            for i, spec in enumerate(self._specs(u.index)):
                rows, array = given.tables.get(spec.name), given.arrays.get(spec.name)
                if self.engine.tracked(u.index, i) and (array is None or (u.index, i) in self._away):
                    if array is not None:
                        rows = Rows.touched(array)
                    rows = rows or Rows.none(spec.shape[1], np.dtype(np.float32))
                    self.engine.load_rows(u.index, i, rows.numbers, _float32(rows.values))
                    continue
                if array is None:
                    array = np.zeros(spec.shape, np.float32)
                    if rows is not None:
                        rows.into(array)
                self.engine.load_gradient(u.index, i, _matrix(_float32(array)))
            self.engine.gave(u.index, given.rows)

    def keep(self, names: Names, away: Names) -> None:
        """See `Exchanges`."""
        self._let_go(away)
        self.push()
        for u, _ in self._owned:
            for i, spec in enumerate(self._specs(u.index)):
                if spec.name in names.get(u.name, ()):
                    self.engine.keep(u.index, i)

    def _let_go(self, away: Names) -> None:
        """Of tables whose rows somebody else has; but for the gradient that they may have gathered."""
        tables = [
            (u.index, i, spec.name, node)
            for u, node in self._owned
            for i, spec in enumerate(self._specs(u.index))
            if spec.name in away.get(u.name, ()) and self.engine.tracked(u.index, i)
        ]
        if any((unit, i) not in self._away for unit, i, _, _ in tables):
            self.flush()
            self.fetch()  # the host's copy is the newer one from here on, or is anyway
        for unit, i, name, node in tables:
            node.values = {n: value for n, value in node.values.items() if n != name}
            node.slots.pop(name, None)
            gradient = node.gradients.pop(name, None)
            if (unit, i) not in self._away:
                assert gradient is not None, name
                self._away.add((unit, i))
                self.engine.pool(unit, i)
                if node.rows:
                    rows = Rows.touched(gradient)
                    self.engine.load_rows(unit, i, rows.numbers, _float32(rows.values))

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """See `Exchanges`."""
        self.push()
        for u, node in self._owned:
            given = values.get(u.name, {})
            for i, spec in enumerate(self._specs(u.index)):
                new = given.get(spec.name)
                if isinstance(new, np.ndarray) and (u.index, i) in self._away:
                    new = Rows(np.arange(len(new), dtype=np.int32), new)
                if isinstance(new, Rows):
                    self.engine.put_rows(u.index, i, new.numbers, _float32(new.values))
                elif new is not None:
                    self.engine.put(u.index, i, _matrix(_float32(new)))
            if given:
                self.engine.has_put(u.index)
                node.version = -1  # what the host has seen of this node is old

    def tell(self) -> None:
        """See `Tells`."""
        self.push()
        for u, _ in self._owned:
            self.engine.tell(u.index)

    def told(self) -> dict[str, Applied]:
        """See `Tells`."""
        self.check()
        found = {}
        for u, _ in self._owned:
            arrays = {spec.name: np.empty(spec.shape, np.float32) for spec in self._specs(u.index)}
            rows, updates = self.engine.told(u.index, _matrices(arrays.values()))
            if updates:
                found[u.name] = Applied(rows, updates, arrays)
        self.check()
        return found

    def receive(self, ranges: Sequence[Received]) -> None:
        """See `Receives`."""
        given = checked(ranges)
        self.check()
        self.push()
        for u, node in self._owned:
            numbers = {spec.name: i for i, spec in enumerate(self._specs(u.index))}
            mine = [
                (numbers[each.name], each.inside.start, _float32(each.values), each.factor(node.rule))
                for each in given
                if each.node == u.name
            ]
            if mine:
                self.engine.receive(u.index, mine)
                node.version = -1  # what the host has seen of this node is old
        self.check()

    def latest(self, nodes: Iterable[str]) -> dict[str, dict[str, np.ndarray]]:
        """See `Moves`."""
        self.check()
        self.push()
        found: dict[str, dict[str, np.ndarray]] = {}
        for node in nodes:
            unit = self.lowered.by_name[node]
            for i, spec in enumerate(self._specs(unit)):
                array = found.setdefault(node, {})[spec.name] = np.empty(spec.shape, np.float32)
                self.engine.latest(unit, i, _matrix(array))
        return found

    def move(self, moves: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """See `Moves`."""
        self.check()
        self.push()
        for node, given in moves.items():
            unit = self.lowered.by_name[node]
            arrays = [_float32(given[spec.name]) for spec in self._specs(unit)]
            self.engine.move(unit, _matrices(arrays))
            self.params[node].version = -1  # what the host has seen of this node is old
        self.check()

    def pulled(self) -> dict[str, dict[str, Rows]]:
        """See `Exchanges`."""
        found: dict[str, dict[str, Rows]] = {}
        for unit, i in sorted(self._away):
            spec = self._specs(unit)[i]
            numbers = np.array(self.engine.pulled(unit, i), np.int32)
            values = np.empty((len(numbers), spec.shape[1]), np.float32)
            self.engine.store_pulled(unit, i, numbers, values)
            found.setdefault(self.lowered.units[unit].name, {})[spec.name] = Rows(numbers, values)
        return found

    def parameter_bytes(self) -> int:
        """Of what the engine has, beside `params`."""
        return sum(self.engine.parameter_bytes(u.index) for u, _ in self._owned)

    def observed(self, index: int) -> list[Observation]:
        """What the firings of the slot's last instance computed; it must have retired."""
        out: list[Observation] = []
        for u, direction, firing, values in self.engine.inspect(index):
            unit = self.lowered.units[u]
            program = unit.behaviour.program
            assert program is not None
            widths = [o.width if o.needs_gradient else 0 for o in unit.operands]
            if direction == Direction.FORWARD.value:
                widths = [t.width if t.kind == "float" else 0 for t in program.outputs_types]
            arrays = [
                np.array(v, np.float32).reshape(-1, w) if w else None
                for v, w in zip(values, widths, strict=False)
            ]
            out.append((u, Direction(direction), firing, arrays))
        return out

    # --- parameters -------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Bring `params` up to date; while nothing is in flight, what is written there takes effect."""
        for u, node in self._owned:
            version, rows, state = self.engine.parameter_state(u.index)
            if self._written:
                return  # the host's copy is the newer one
            fresh = version != node.version
            values = dict(node.values)
            for i, name in self._here(u.index):
                given = np.empty(node.values[name].shape, np.float32)
                self.engine.store_parameter(
                    u.index, i, _matrix(given), _matrix(node.gradients[name]), _matrices(node.slots[name])
                )
                if fresh:
                    values[name] = given
            if fresh:
                node.publish(values)
            node.version, node.rows = version, rows
            node.state = dict(zip(node.state, state, strict=False))
        # Only then is everything there: what is still in the log would be lost if this copy were taken over.
        self._written = bool(self.engine.settled())

    def push(self) -> None:
        """Take over what the host has written into `params`."""
        if self._written:
            with self._pushing:
                self._push()

    def _push(self) -> None:
        if not self._written:
            return  # another thread was faster
        for u, node in self._owned:
            for i, name in self._here(u.index):
                value = np.ascontiguousarray(node.values[name], np.float32)
                self._check_shapes(node, u.name, name)
                self.engine.load_parameter(
                    u.index, i, _matrix(value), _matrix(node.gradients[name]), _matrices(node.slots[name])
                )
            self.engine.loaded(u.index, node.version, node.rows, list(node.state.values()))
        self._written = False  # last: whoever finds it so goes on with what is there now

    def _check_shapes(self, node: NodeParameters, owner: str, name: str) -> None:
        wanted = next(p.shape for p in node.specs if p.name == name)
        for what, a in (("values", node.values[name]), ("gradients", node.gradients[name])):
            if a.shape != wanted:
                raise AmphwError(
                    f"node '{owner}': {what} of '{name}' have shape {a.shape}, expected {wanted}"
                )

    def _specs(self, unit: int) -> tuple[ParamSpec, ...]:
        program = self.lowered.units[unit].behaviour.program
        assert program is not None
        return program.params

    def _here(self, unit: int) -> list[tuple[int, str]]:
        """Numbers and names of the unit's parameters, but for tables that were let go of."""
        specs = enumerate(self._specs(unit))
        return [(i, spec.name) for i, spec in specs if (unit, i) not in self._away]

    # --- worker side ------------------------------------------------------------------------------

    def run(self, worker: int, budget: float) -> bool:
        """Serve frames for about `budget` seconds -> whether there was anything to do."""
        worked: bool = self.engine.run(worker, budget)
        self.hand_over_trace()
        return worked

    def wait(self, worker: int, timeout: float) -> None:
        """Sleep until a queue that the worker serves fills."""
        self.engine.wait(worker, timeout)


def _float32(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a, np.float32)


def _matrix(a: np.ndarray) -> np.ndarray:
    return a.reshape(1, -1) if a.ndim == 1 else a


def _matrices(arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
    return [_matrix(a) for a in arrays]
