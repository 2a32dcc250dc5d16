"""Parameters over the link: written at the start, read when asked for, written again where the host wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from amphw.ir.config_fields import picked
from amphw.ir.update import NodeParameters
from amphw.rtl.fixed.clipping import tell_clipped
from amphw.rtl.fixed.parameters import FixedParameters, in_floats
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.counters import NAMES
from amphw.rtl.isa.wire import Kind, Register
from amphw.rtl.options import HardwareOptions

if TYPE_CHECKING:
    from amphw.rtl.driver.device import HardwareDevice


class ParameterLink:
    """The parameters of a device. `fixed`: what was last written or read, as integers."""

    def __init__(self, device: HardwareDevice):
        self.device = device
        self.fixed = {n: self._fixed(n, p) for n, p in device.given.items()}
        self._shown: dict[str, NodeParameters] = {}

    def _fixed(self, name: str, given: NodeParameters) -> FixedParameters:
        """As integers; warns of weights that are clipped, GraphError with the setting `strict`."""
        fixed = FixedParameters.of(name, self.device.formats, self.device.plan.exponent, given)
        tell_clipped(fixed, given, picked(HardwareOptions, self.device.options.settings).strict)
        return fixed

    def write(self) -> None:
        """Everything, to the device."""
        d = self.device
        low_bits = d.formats.low_bits
        for name, fixed in self.fixed.items():
            unit = d.plan.partition.number[d.plan.lowered.by_name[name]]
            for parameter, a in fixed.arrays.items():
                self._memory(name, parameter, Bank.WEIGHT, a.master >> low_bits)
                if d.formats.rounding == "nearest":
                    self._memory(name, parameter, Bank.LOW, a.master & ((1 << low_bits) - 1))
                self._memory(name, parameter, Bank.GRADIENT, a.sums)
                if a.velocity is not None:
                    self._memory(name, parameter, Bank.VELOCITY, a.velocity)
            d.watcher.retirement.loads(unit, fixed.version)
            d.send(Kind.POKE, place=Register.VERSION, unit=unit, state=fixed.version)
            d.send(Kind.POKE, place=Register.ROWS, unit=unit, state=fixed.rows)

    def _cells(self, name: str, parameter: str, shape: tuple[int, ...]) -> list[tuple[int, int]]:
        """(beat, lane) of each number of a parameter, row by row."""
        place = self.device.plan.stack.places[name][parameter]
        lanes = self.device.plan.sizes.lanes
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        return [
            (place.base + k * place.blocks + j // lanes, j % lanes)
            for k in range(rows)
            for j in range(columns)
        ]

    def _memory(self, name: str, parameter: str, memory: int, values: np.ndarray) -> None:
        for (beat, lane), value in zip(
            self._cells(name, parameter, values.shape), values.reshape(-1).tolist(), strict=True
        ):
            word = value & 0xFFFFFFFFF
            self.device.send(
                Kind.POKE, place=memory, payload=beat, firing=lane, state=word & 0xFFFFFFFF, copy=word >> 32
            )

    def read(self) -> dict[str, NodeParameters]:
        """Everything, from the device, in floats."""
        d = self.device
        low_bits, nearest = d.formats.low_bits, d.formats.rounding == "nearest"
        for name, fixed in self.fixed.items():
            for parameter, a in fixed.arrays.items():
                weight = self._ask(name, parameter, Bank.WEIGHT, a.master.shape)
                low = self._ask(name, parameter, Bank.LOW, a.master.shape) if nearest else 0
                a.master = (weight << low_bits) + (low & ((1 << low_bits) - 1) if nearest else 0)
                a.sums = self._ask(name, parameter, Bank.GRADIENT, a.master.shape)
                if a.velocity is not None:
                    a.velocity = self._ask(name, parameter, Bank.VELOCITY, a.master.shape)
            unit = d.plan.partition.number[d.plan.lowered.by_name[name]]
            fixed.version = self._answer(Kind.PEEK, place=Register.VERSION, unit=unit)
            if d.watched:
                d.watcher.retirement.told(unit, fixed.version)
            fixed.rows = self._answer(Kind.PEEK, place=Register.ROWS, unit=unit)
            fixed.visible = fixed.look()
            self._shown[name] = in_floats(fixed, d.given[name])
        return self._shown

    def differing(self) -> list[str]:
        """Nodes whose weights, read back, are not those written last."""
        low_bits = self.device.formats.low_bits
        found = []
        for name, fixed in self.fixed.items():
            kept = [
                np.array_equal(self._ask(name, parameter, Bank.WEIGHT, a.master.shape), a.master >> low_bits)
                for parameter, a in fixed.arrays.items()
            ]
            found += [] if all(kept) else [name]
        return found

    def push(self) -> None:
        """Write what the host has changed since it was shown the parameters."""
        changed = False
        for name, shown in self._shown.items():
            now = in_floats(self.fixed[name], self.device.given[name])
            same = shown.version == now.version and shown.rows == now.rows
            for parameter, values in now.values.items():
                same &= np.array_equal(values, shown.values[parameter])
                same &= np.array_equal(now.gradients[parameter], shown.gradients[parameter])
                pairs = zip(now.slots[parameter], shown.slots[parameter], strict=True)
                same &= all(np.array_equal(x, y) for x, y in pairs)
            if not same:
                changed = True
                self.fixed[name] = self._fixed(name, shown)
        self._shown = {}
        if changed:
            self.write()

    def update(self, name: str) -> None:
        """Have a node apply what it has summed up."""
        self._answer(
            Kind.UPDATE, unit=self.device.plan.partition.number[self.device.plan.lowered.by_name[name]]
        )

    def counters(self) -> dict[str, int]:
        """What the device has done since it was reset: cycles by what they went into, messages by path."""
        d = self.device
        names = list(NAMES)
        for path in d.plan.lowered.paths:
            ends = [d.plan.lowered.units[u].name for u in (path.source, path.target)]
            names.append(f"{ends[0]} -> {ends[1]} #{path.index}")
        asked = [{"kind": int(Kind.PEEK), "place": Register.COUNTER, "payload": k} for k in range(len(names))]
        return {n: h["state"] for n, h in zip(names, self._answers(asked), strict=True)}

    def _answer(self, kind: Kind, **fields: int) -> int:
        (header,) = self._answers([{"kind": int(kind), **fields}])
        return header["state"]

    def _ask(self, name: str, parameter: str, memory: int, shape: tuple[int, ...]) -> np.ndarray:
        cells = self._cells(name, parameter, shape)
        asked = [
            {"kind": int(Kind.PEEK), "place": memory, "payload": beat, "firing": lane} for beat, lane in cells
        ]
        words = [h["state"] | h["copy"] << 32 for h in self._answers(asked)]
        values = np.array(words, np.int64)
        return np.where(values >> 47 & 1, values - (1 << 48), values).reshape(shape)

    def _answers(self, asked: list[dict[str, int]]) -> list[dict[str, int]]:
        d = self.device
        for fields in asked:
            d.send(Kind(fields.pop("kind")), **fields)
        found: list[dict[str, int]] = []
        while len(found) < len(asked):
            d.turn()
            found += d._answers
            d._answers = []
        return found
