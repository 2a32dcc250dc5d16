"""What every command of a lane engine does, in numpy: the tests compare the gates with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from amphw.rtl.fixed.norm import norm_shift
from amphw.rtl.fixed.parameters import COEFFICIENT_BITS, LFSR_TAPS, MU_BITS, VELOCITY
from amphw.rtl.gateware.lanes.shape import LaneShape
from amphw.rtl.isa.commands import Bank, LaneOp
from amphw.rtl.numbers.arithmetic import narrow, round_shift, saturate
from amphw.rtl.numbers.formats import BITS

Command = dict[str, Any]

UNLIMITED = (1 << COEFFICIENT_BITS) - 1
"""The ceiling of a coefficient that no CLIP has limited."""


def select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


def results(command: Command) -> range:
    """Addresses that a command writes."""
    op = command["op"]
    width = command["columns"] if op in (LaneOp.FORWARD, LaneOp.TAKE) else 0
    if op == LaneOp.BACKWARD and command["want_dx"]:
        width = command["rows"]
    return range(command["y"], command["y"] + command["count"] * width)


class LaneModel:
    """Memories as arrays of Python integers: products exceed 64 bits. Banks are [beats, lanes]."""

    def __init__(self, shape: LaneShape) -> None:
        self.shape = shape
        self.banks = {bank: np.zeros((shape.beats, shape.lanes), object) for bank in Bank}
        self.memory = np.zeros(1 << shape.address_bits, object)
        self.responses: list[int] = []
        self.ceiling = UNLIMITED

    def run(self, command: Command) -> None:
        op = command["op"]
        if op in (LaneOp.FORWARD, LaneOp.BACKWARD):
            for r in range(command["count"]):
                self._layer(command, r)
        elif op in (LaneOp.TAKE, LaneOp.TAKE_GRADIENT):
            for r in range(command["count"]):
                self._take(command, r)
        elif op == LaneOp.UPDATE:
            self._update({**command, "scale": min(command["scale"], self.ceiling)})
            self.ceiling = UNLIMITED
        elif op == LaneOp.CLIP:
            self._clip(command)
        elif op == LaneOp.POKE:
            self.banks[command["bank"]][command["base"], command["lane"]] = command["data"]
        else:
            self.responses.append(int(self.banks[command["bank"]][command["base"], command["lane"]]))

    def row(self, bank: Bank, command: Command, row: int) -> np.ndarray:
        """View of the columns of one row."""
        at = command["base"] + row * command["blocks"]
        return self.banks[bank].reshape(-1)[at * self.shape.lanes :][: command["columns"]]

    def _layer(self, command: Command, r: int) -> None:
        formats = self.shape.formats
        rows, columns = command["rows"], command["columns"]
        forward = command["op"] == LaneOp.FORWARD
        x = self.memory[command["x"] + r * rows :][:rows]
        weights = [self.row(Bank.WEIGHT, command, k) for k in range(rows + 1)]
        if forward:
            total = np.zeros(columns, object)
            for k in range(rows):
                total += x[k] * weights[k]
            if command["bias"]:
                total += weights[rows] << formats.value.frac
            self.memory[command["y"] + r * columns :][:columns] = narrow(
                total, formats.weight.frac, 16, select
            )
            return
        dz = self.memory[command["dz"] + r * columns :][:columns]
        if command["want_dw"]:
            for k in range(rows):
                self._add(command, k, x[k] * dz)
            if command["bias"]:
                self._add(command, rows, dz << formats.value.frac)
        if command["want_dx"]:
            for k in range(rows):
                total = (dz * weights[k]).sum()
                self.memory[command["y"] + r * rows + k] = int(narrow(total, formats.weight.frac, 16, select))

    def _add(self, command: Command, row: int, products: np.ndarray) -> None:
        sums = self.row(Bank.GRADIENT, command, row)
        sums[:] = saturate(sums + products, self.shape.formats.sums, select)

    def _take(self, command: Command, r: int) -> None:
        formats, columns = self.shape.formats, command["columns"]
        row = int(self.memory[command["x"] + r]) & 0xFFFF
        if command["op"] == LaneOp.TAKE:
            taken = narrow(
                self.row(Bank.WEIGHT, command, row), formats.weight.frac - formats.value.frac, 16, select
            )
            self.memory[command["y"] + r * columns :][:columns] = taken
        else:
            dz = self.memory[command["dz"] + r * columns :][:columns]
            self._add(command, row, dz << formats.value.frac)

    def _clip(self, command: Command) -> None:
        """With integers of any length, apart from the model in `amphw.rtl.fixed.norm`."""
        shift, squares = norm_shift(self.shape.formats), 0
        for k in range(command["rows"]):
            for s in self.row(Bank.GRADIENT, command, k):
                squares += round_shift(int(s), shift) ** 2
        root = math.isqrt(squares)
        self.ceiling = min(command["scale"] * command["data"] // root, UNLIMITED) if root else UNLIMITED

    def _update(self, command: Command) -> None:
        shape, formats = self.shape, self.shape.formats
        low_bits = formats.low_bits
        noise = command["seed"]
        for k in range(command["rows"]):
            weight, low, sums, velocity = (self.row(bank, command, k) for bank in Bank)
            for j in range(command["columns"]):
                step = round_shift(int(sums[j]) * command["scale"], shape.s1)
                if shape.momentum:
                    kept = round_shift(int(velocity[j]) * shape.mu, MU_BITS)
                    velocity[j] = int(saturate(kept + step, VELOCITY.bits, _python))
                    step = round_shift(velocity[j] * command["rate"], shape.s2)
                master = (int(weight[j]) << low_bits) + (int(low[j]) if shape.keeps_low else 0) - step
                if not shape.keeps_low:
                    master += noise & ((1 << low_bits) - 1)
                    noise = (noise >> 1) ^ (LFSR_TAPS if noise & 1 else 0)
                master = _python_saturate(master, BITS + low_bits)
                weight[j] = master >> low_bits
                if shape.keeps_low:
                    low[j] = master & ((1 << low_bits) - 1)
                sums[j] = 0


def _python(condition: bool, a: int, b: int) -> int:
    return a if condition else b


def _python_saturate(x: int, bits: int) -> int:
    return saturate(x, bits, _python)
