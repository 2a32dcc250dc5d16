"""Losses run on the host, in floats: each firing by itself, as soon as its operands are there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.lowering.plan import Plan, integers
from amphw.engine.numpy_plane.kernel import Kernel
from amphw.ir.device import Mode, Report
from amphw.ir.instance import Instance
from amphw.ir.primitives import RowContext


@dataclass
class _Waiting:
    """A loss's operands of one instance: by operand and position."""

    operands: list[list[np.ndarray | None]]
    left: np.ndarray
    ints: list[tuple[np.ndarray, np.ndarray]]
    parts: dict[str, list[tuple[int, np.ndarray]]] = field(default_factory=dict)


class LossUnit:
    """One loss of the graph: `arrive` takes an operand, and gives gradients once a firing has them all."""

    def __init__(self, unit: Unit):
        d = unit.derivative
        assert d is not None and unit.inference is not None and unit.behaviour.program is not None
        self.unit, self.derivative = unit, d
        self.forward, self.inference = Kernel(d.forward), Kernel(unit.inference)
        self.backward = Kernel(d.backward) if d.backward.outputs else None
        self._waiting: dict[int, _Waiting] = {}

    def begin(self, slot: int, plan: Plan, instance: Instance) -> None:
        table = plan.units[self.unit.index]
        operands: list[list[np.ndarray | None]] = [
            [None] * (table.space.size if m is None else int(m[-1])) for m in table.members
        ]
        ints, _ = integers(self.unit, table, instance)
        self._waiting[slot] = _Waiting(operands, table.need.copy(), ints)

    def end(self, slot: int, report: Report) -> None:
        """Put what a PREDICT instance has predicted into its report."""
        for label, parts in self._waiting.pop(slot).parts.items():
            parts.sort(key=lambda item: item[0])
            report.outputs.setdefault(self.unit.name, {})[label] = np.concatenate([v for _, v in parts])

    def arrive(
        self,
        slot: int,
        plan: Plan,
        firing: int,
        operand: int,
        position: int,
        payload: np.ndarray,
        report: Report,
    ) -> list[tuple[int, int, np.ndarray | None]] | None:
        """-> None while operands are missing, else (operand, position, gradient or None) of each."""
        waiting = self._waiting[slot]
        waiting.operands[operand][position] = payload
        waiting.left[firing] -= 1
        if waiting.left[firing]:
            return None
        return self._fire(waiting, plan, firing, report)

    def _fire(
        self, waiting: _Waiting, plan: Plan, firing: int, report: Report
    ) -> list[tuple[int, int, np.ndarray | None]]:
        table, b = plan.units[self.unit.index], self.unit.behaviour
        counts = {s: c if isinstance(c, int) else int(c[firing]) for s, c in table.spaces.items()}
        context = RowContext(1, counts)  # type: ignore[arg-type]
        places, inputs = [], []
        for k, members in enumerate(table.members):
            low, high = (
                (firing, firing + 1) if members is None else (int(members[firing]), int(members[firing + 1]))
            )
            arrays = [a for a in waiting.operands[k][low:high] if a is not None]
            width = self.unit.operands[k].width
            inputs.append(np.concatenate(arrays) if arrays else np.zeros((0, width), np.float32))
            places.append((low, [len(a) for a in arrays]))
        ints = [values[starts[firing] : starts[firing + 1]] for values, starts in waiting.ints]
        train = report.mode is Mode.TRAIN
        with np.errstate(all="ignore"):
            got = (self.forward if train else self.inference).run(context, inputs, ints, {})
            own = len(b.program.outputs) if b.program else 0
            self._report(waiting, firing, got[:own], report)
            if not train:
                return [
                    (k, low + j, None) for k, (low, sizes) in enumerate(places) for j in range(len(sizes))
                ]
            found = self._gradients(context, inputs, got, own, ints)
        out: list[tuple[int, int, np.ndarray | None]] = []
        for k, (low, sizes) in enumerate(places):
            g, at = found.get(k), 0
            for j, rows in enumerate(sizes):
                out.append((k, low + j, None if g is None else g[at : at + rows]))
                at += rows
        return out

    def _gradients(
        self,
        context: RowContext,
        inputs: list[np.ndarray],
        got: list[np.ndarray],
        own: int,
        ints: list[np.ndarray],
    ) -> dict[int, np.ndarray]:
        d, program = self.derivative, self.unit.behaviour.program
        assert program is not None
        if self.backward is None:
            return {}
        kept = {"input": inputs, "output": got[:own], "value": got[own:]}
        residuals = [kept[kind][i] for kind, i in d.residuals]
        dy = [(np.ones_like if k == 0 else np.zeros_like)(got[k], dtype=np.float32) for k in d.float_outputs]
        by_key = dict(zip(program.ints, ints, strict=True))
        outputs = self.backward.run(context, [*dy, *residuals], [by_key[key] for key in d.backward.ints], {})
        return dict(zip(d.wrt, outputs, strict=False))

    def _report(self, waiting: _Waiting, firing: int, outputs: list[np.ndarray], report: Report) -> None:
        name, labels = self.unit.name, self.unit.behaviour.report
        sums = report.sums.setdefault(name, dict.fromkeys(labels, 0.0))
        for label, value in zip(labels, outputs, strict=True):
            sums[label] += float(value.sum(dtype=np.float64))
            if report.mode is Mode.PREDICT:
                waiting.parts.setdefault(label, []).append((firing, value))
        report.rows[name] = report.rows.get(name, 0) + len(outputs[0])
