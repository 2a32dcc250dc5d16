"""Kernels of several heights: a product of one row wants another form than one of a hundred.

A unit's source is generated once for each class of frame heights, with the form of product that was measured
to be the fastest there. Everything else is the same text, and is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from amphw.engine.tiles.code import Code, Phase, PhaseKind, TiledUnit
from amphw.ir.program import ParamSpec
from amphw.opencl.abi import Kernel
from amphw.opencl.codegen.finish import Finish
from amphw.opencl.codegen.forms import Form
from amphw.opencl.codegen.generate import Product, UnitSource, generate
from amphw.opencl.codegen.product import product_kernel
from amphw.opencl.layout import Layouts
from amphw.opencl.tuning import HEIGHTS, Forms

Tune = Callable[[int, int], Forms]
"""The forms of products with a matrix [depth, width]."""


def untuned(form: Form) -> Tune:
    """One form for everything."""
    return lambda depth, width: Forms((form,) * len(HEIGHTS), form)


def unit_sources(
    name: str, tiled: TiledUnit, params: Sequence[ParamSpec], form: Form, tune: Tune
) -> list[UnitSource]:
    """A unit's source for each class of heights; kernels of the same name are the same."""
    codes = [c for c in (tiled.forward, tiled.inference, tiled.backward) if c is not None]
    shapes = [_shape(p) for c in codes for p in c.phases if p.kind == PhaseKind.Gemm]
    known: dict[tuple[Form, ...], UnitSource] = {}
    sources = []
    for height in range(len(HEIGHTS)):
        forms = tuple(tune(*shape).products[height] for shape in shapes)
        if forms not in known:
            known[forms] = generate(name, tiled, params, form, _product(tune, height))
        sources.append(known[forms])
    return sources


def _shape(product: Phase) -> tuple[int, int]:
    """Rows and columns of the matrix that a phase multiplies with."""
    return sum(s.width for s in product.a), product.width


def apart_heights(code: Code, tune: Tune) -> list[bool]:
    """By class of heights, whether the phases of a code are launched one by one, for one of its products."""
    shapes = [_shape(p) for p in code.phases if p.kind == PhaseKind.Gemm]
    return [any(tune(*shape).apart[height] for shape in shapes) for height in range(len(HEIGHTS))]


def gradient_form(params: Sequence[ParamSpec], form: Form, tune: Tune) -> Form:
    """The form of a unit's gradients: what suits its largest matrix."""
    largest = max((p.shape for p in params if len(p.shape) == 2), key=lambda s: s[0] * s[1], default=None)
    if largest is None:
        return form
    found = tune(*largest).gradient
    return found if (found.vector, found.lanes) == (form.vector, form.lanes) else form


def _product(tune: Tune, height: int) -> Product:
    def product(
        name: str,
        code: Code,
        phase: Phase,
        form: Form,
        finish: Finish | None,
        comment: str,
        layouts: Layouts,
    ) -> Kernel:
        found = tune(*_shape(phase)).products[height]
        # The program's vectors are those of its form.
        shape_of = found.product if found.vector == form.vector else form.product
        tag = f"{shape_of.rows}x{shape_of.vectors}" + ("_local" if shape_of.local else "")
        chosen = replace(form, product=shape_of)
        return product_kernel(f"{name}_{tag}", code, phase, chosen, finish, comment, layouts)

    return product
