"""A unit's tile code as kernels: forward, inference and backward, each a list to run in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from amphw.engine.tiles.code import ATTENTION, Code, Phase, PhaseKind, TiledUnit
from amphw.ir.program import ParamSpec
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.attention import attention_kernel
from amphw.opencl.codegen.finish import Finish, finish
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.liveness import Liveness
from amphw.opencl.codegen.moves import move_kernel
from amphw.opencl.codegen.pointers import Pointers, frame_kernel
from amphw.opencl.codegen.prelude import prelude
from amphw.opencl.codegen.product import product_kernel
from amphw.opencl.codegen.rows import Part, rows_kernel
from amphw.opencl.layout import Layouts, layouts

Product = Callable[[str, Code, Phase, Form, Finish | None, str, Layouts], Kernel]


@dataclass(frozen=True)
class UnitSource:
    """A unit's kernels by direction. Directions with the same code share theirs."""

    name: str
    form: Form
    forward: tuple[Kernel, ...]
    inference: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Each kernel once."""
        return tuple({k.name: k for k in (*self.forward, *self.inference, *self.backward)}.values())

    @property
    def text(self) -> str:
        """The text of a program of this unit alone."""
        return program_text([self], self.form)


def program_text(sources: Iterable[UnitSource], form: Form) -> str:
    """The text of an OpenCL program of some units, whose names differ."""
    return "\n".join([prelude(form), *(k.text for source in sources for k in source.kernels)])


def generate(
    unit_name: str,
    tiled: TiledUnit,
    params: Sequence[ParamSpec],
    form: Form,
    product: Product = product_kernel,
) -> UnitSource:
    """The kernels of a unit; params: its parameters, without the folded tables."""
    laid = layouts(tiled, params, form)

    def kernels(direction: str, code: Code, log_ints: Sequence[int] = ()) -> tuple[Kernel, ...]:
        pointers = Pointers(code, laid)
        return tuple(_Generator(unit_name, direction, pointers, form, product).kernels(log_ints))

    forward = kernels("forward", tiled.forward)
    same = tiled.inference == tiled.forward
    return UnitSource(
        unit_name,
        form,
        forward,
        forward if same else kernels("inference", tiled.inference),
        () if tiled.backward is None else kernels("backward", tiled.backward, tiled.log_ints),
    )


def identifier(unit: str) -> str:
    """A unit's name as a part of names in C."""
    return re.sub(r"[^A-Za-z0-9_]", lambda m: f"_{ord(m[0]):x}_", unit)


class _Generator:
    """Writes the kernels of one code."""

    def __init__(self, unit: str, direction: str, pointers: Pointers, form: Form, product: Product):
        self.unit, self.direction, self.form, self.product = unit, direction, form, product
        self.pointers, self.code = pointers, pointers.code
        self.liveness = Liveness(self.code)
        self.out: list[Kernel] = []

    def kernels(self, log_ints: Sequence[int]) -> list[Kernel]:
        phases = self.code.phases
        number = skip = 0  # the next phase, and how many of its instructions a product has taken
        while number < len(phases):
            phase = phases[number]
            if phase.kind == PhaseKind.Gemm:
                taken, skip = finish(self.code, number, self.form, self.liveness)
                finished = self.pointers.lines(phases[number + 1])[:skip] if skip else []
                name, comment = self._next("a product", [*self.pointers.lines(phase), *finished])
                self.out.append(
                    self.product(name, self.code, phase, self.form, taken, comment, self.pointers.layouts)
                )
                number += 1
            elif phase.kind == PhaseKind.Rows:
                end = number
                while (
                    end < len(phases) and phases[end].kind == phase.kind and phases[end].space == phase.space
                ):
                    end += 1
                parts = [Part(n, skip if n == number else 0) for n in range(number, end)]
                self._rows([p for p in parts if p.skip < len(phases[p.phase].code)])
                number, skip = end, 0
            else:
                what, kernel = "a move of rows", move_kernel
                if phase.kind in ATTENTION:
                    what, kernel = "attention", attention_kernel
                name, comment = self._next(what, self.pointers.lines(phase))
                self.out.append(kernel(name, self.pointers, phase, self.form, comment))
                number += 1
        self._log(log_ints)
        return self.out

    def _next(self, what: str, lines: Sequence[str] = ()) -> tuple[str, str]:
        """Name and comment of the next kernel. lines: its tile code, where the text does not show it."""
        unit = identifier(self.unit)
        comment = "\n".join([f"Unit {self.unit}, {self.direction}: {what}.", *(f"  {x}" for x in lines)])
        return f"{self.direction}_{unit}_{len(self.out)}", comment

    def _rows(self, parts: list[Part]) -> None:
        if parts:
            name, comment = self._next("rows")
            self.out.append(rows_kernel(name, self.pointers, parts, self.form, self.liveness, comment))

    def _log(self, log_ints: Sequence[int]) -> None:
        """Kernels that copy integers to the gradient log, one for each space that they are in."""
        code = self.code
        first = len(code.bases) + len(code.int_operands)
        for space in sorted({code.int_spaces[s] for s in log_ints}):
            name, comment = self._next("integers for the gradient log")
            body = [
                f"    INTS({first + i})[r] = {self.pointers.integers(slot)}[r];  // i{slot}"
                for i, slot in enumerate(log_ints)
                if code.int_spaces[slot] == space
            ]
            body = ["for (int r = first; r < end; r++) {", *body, "}"]
            rows = self.form.rows_per_item if self.form.lanes == 1 else 1
            self.out.append(frame_kernel(name, (), comment, space, body, rows_per_group=rows))
