"""The C++ data plane: the engine with workers of its own.

Parameters live in the engine, in its own layout. `fetch` copies them into the `NodeParameters` that the host
sees; what the host writes there is taken over before anything else runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Lowered, Observation
from amphw.engine.plane import EnginePlane
from amphw.engine.tiles.gemm_choice import GemmChoice
from amphw.ir.device import Direction
from amphw.ir.errors import AmphwError
from amphw.ir.exchange import Names, NodeGradient, Rows
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
        gemm = GemmChoice(settings.get("gemm", "auto"))
        super().__init__(lowered, params, settings=settings, use_blas=gemm.use_blas, **options)
        elsewhere = options.get("regions", ())
        self._owned = [
            (u, params[u.name]) for u in lowered.units if u.name in params and u.index not in elsewhere
        ]
        self._written = True  # whether the host may have changed the parameters

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
        for u, node in self._owned:
            _, rows, _ = self.engine.parameter_state(u.index)
            found[u.name] = out = NodeGradient(rows, {})
            for i, name in enumerate(self._parameter_names(u.index)):
                if name in by_rows.get(u.name, ()) and self.engine.tracked(u.index, i):
                    numbers = np.array(self.engine.touched(u.index, i), np.int32)
                    values = np.empty((len(numbers), node.values[name].shape[1]), np.float32)
                    self.engine.store_rows(u.index, i, numbers, values)
                    out.tables[name] = Rows(numbers, values)
                    continue
                array = np.empty(node.values[name].shape, np.float32)
                self.engine.store_gradient(u.index, i, _matrix(array))
                if name in by_rows.get(u.name, ()):  # one that is folded
                    out.tables[name] = Rows.touched(array)
                else:
                    out.arrays[name] = array
        return found

    def give(self, gradients: Mapping[str, NodeGradient]) -> None:
        """See `Exchanges`."""
        self.push()
        for u, node in self._owned:
            if (given := gradients.get(u.name)) is None:
                continue
            for i, name in enumerate(self._parameter_names(u.index)):
                shape = node.values[name].shape
                rows = given.tables.get(name)
                if self.engine.tracked(u.index, i) and name not in given.arrays:
                    rows = rows or Rows.none(shape[1], np.dtype(np.float32))
                    self.engine.load_rows(u.index, i, rows.numbers, _float32(rows.values))
                    continue
                array = given.arrays.get(name)
                if array is None:
                    array = np.zeros(shape, np.float32)
                    if rows is not None:
                        rows.into(array)
                self.engine.load_gradient(u.index, i, _matrix(_float32(array)))
            self.engine.gave(u.index, given.rows)

    def keep(self, names: Names) -> None:
        """See `Exchanges`."""
        self.push()
        for u, _ in self._owned:
            for i, name in enumerate(self._parameter_names(u.index)):
                if name in names.get(u.name, ()):
                    self.engine.keep(u.index, i)

    def put(self, values: Mapping[str, Mapping[str, np.ndarray | Rows]]) -> None:
        """See `Exchanges`."""
        self.push()
        for u, node in self._owned:
            given = values.get(u.name, {})
            for i, name in enumerate(self._parameter_names(u.index)):
                if isinstance(new := given.get(name), Rows):
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
        found = {}
        for u, node in self._owned:
            rows, updates = self.engine.take_told(u.index)
            if not updates:
                continue
            arrays = {}
            for i, name in enumerate(self._parameter_names(u.index)):
                arrays[name] = np.empty(node.values[name].shape, np.float32)
                self.engine.store_told(u.index, i, _matrix(arrays[name]))
            found[u.name] = Applied(rows, updates, arrays)
        return found

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
            values = {n: np.empty_like(v) if fresh else v for n, v in node.values.items()}
            for i, name in enumerate(self._parameter_names(u.index)):
                shape = node.values[name].shape
                given = np.empty(shape, np.float32) if fresh else np.empty_like(values[name])
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
        if not self._written:
            return
        self._written = False
        for u, node in self._owned:
            for i, name in enumerate(self._parameter_names(u.index)):
                value = np.ascontiguousarray(node.values[name], np.float32)
                self._check_shapes(node, u.name, name)
                self.engine.load_parameter(
                    u.index, i, _matrix(value), _matrix(node.gradients[name]), _matrices(node.slots[name])
                )
            self.engine.loaded(u.index, node.version, node.rows, list(node.state.values()))

    def _check_shapes(self, node: NodeParameters, owner: str, name: str) -> None:
        wanted = next(p.shape for p in node.specs if p.name == name)
        for what, a in (("values", node.values[name]), ("gradients", node.gradients[name])):
            if a.shape != wanted:
                raise AmphwError(
                    f"node '{owner}': {what} of '{name}' have shape {a.shape}, expected {wanted}"
                )

    def _parameter_names(self, unit: int) -> list[str]:
        program = self.lowered.units[unit].behaviour.program
        assert program is not None
        return [p.name for p in program.params]

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
