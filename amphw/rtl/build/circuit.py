"""What a built circuit is, for the host that drives it: written beside its bitstream, compared before a run.

The hardware says nothing of what it was built from, so that the file must be that of the bitstream.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from amphw.ir.errors import AmphwError
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import HardwarePlan, Sizes

FILE = "circuit.json"
RUN = "run.toml"
"""The settings of a run on a circuit, in its folder."""
VERSION = 2


class CircuitError(AmphwError):
    """A circuit's file that cannot be read, or that is of another circuit than is wanted."""


@dataclass(frozen=True)
class Circuit:
    """keys: that train at once, beside those that infer. programs, updates: digests of what lies in the
    circuit beside its sizes: what its nodes compute, and rules of update with their learning rates."""

    board: str
    baud: int
    keys: int
    formats: str
    nodes: tuple[str, ...]
    sizes: Sizes
    programs: str
    updates: str

    @classmethod
    def of(cls, plan: HardwarePlan, board: str = "", baud: int = 0, keys: int = 0) -> Circuit:
        codes = [plan.codes[u.index] for u in plan.partition.units]
        return cls(
            board,
            baud,
            keys,
            str(plan.formats),
            tuple(u.name for u in plan.partition.units),
            plan.sizes,
            _digest([[c.forward.words, c.inference.words, c.backward.words] for c in codes], plan.control),
            _digest(list(plan.rules.values()), plan.exponent, plan.shifts),
        )

    @property
    def identity(self) -> int:
        """A digest of 64 bits of all that a run has to agree with, by which a circuit in a network tells what
        it is."""
        parts = (self.formats, self.nodes, self.sizes, self.programs, self.updates)
        return int(_digest(*parts), 16)

    @classmethod
    def read(cls, where: Path) -> Circuit:
        """Of a folder that `amphw rtl` has written, or of the file in it. Raises CircuitError."""
        path = where / FILE if where.is_dir() else where
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if found.pop("version") != VERSION:
                raise CircuitError(f"{path} was written by another version of amphw: build the circuit anew")
            found["sizes"], found["nodes"] = Sizes(**found["sizes"]), tuple(found["nodes"])
            return cls(**found)
        except OSError as error:
            raise CircuitError(
                f"{path} cannot be read ({error.strerror}): name the folder that amphw rtl has written"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CircuitError(f"{path} is no circuit's file ({error!r})") from error

    def text(self) -> str:
        """What the file holds."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n"

    def check(self, plan: HardwarePlan) -> None:
        """CircuitError unless the circuit is that of the plan. It says what differs."""
        wanted, wrong = Circuit.of(plan), []
        ours, theirs = Formats.parse(self.formats), plan.formats
        if replace(ours, accumulator=theirs.accumulator) != theirs:
            wrong.append(f"number formats: {ours} instead of {theirs}")
        elif ours.accumulator_bits != theirs.accumulator_bits:
            wrong.append(
                f"layers whose sums take {theirs.accumulator_bits} bits, where the circuit has "
                f"{ours.accumulator_bits} (--set model.*)"
            )
        if self.nodes != wanted.nodes:
            wrong.append(f"nodes: {', '.join(self.nodes)} instead of {', '.join(wanted.nodes)}")
        for field in fields(Sizes):
            has, wants = getattr(self.sizes, field.name), getattr(wanted.sizes, field.name)
            if has != wants:
                wrong.append(f"{field.name}: {has:,} instead of {wants:,}")
        if not wrong and self.programs != wanted.programs:
            wrong.append("the model or its sizes (--set model.*)")
        if self.updates != wanted.updates:
            wrong.append("rules of update: optimizer, learning rates or intervals (--set update.*)")
        if wrong:
            raise CircuitError(
                "the circuit was built for something else than this run: "
                + "; ".join(wrong)
                + ". Choose what it was built for, or build another one (amphw rtl)"
            )


def _digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
