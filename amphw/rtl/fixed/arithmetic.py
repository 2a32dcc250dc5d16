"""The hardware's arithmetic on the numpy data plane: payloads are int64 arrays whose numbers are int16.

The same bits as the hardware that serves the same messages in the same order, with one instance of a frame's
rows after another: sums of products are exact and rounded once, weights' gradients are saturated after each
row, and what comes back for an output is added up before it is saturated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.numpy_plane.arithmetic import Entry, Kernels, Kind, Part, stacked
from amphw.ir.derive import GradientTerm
from amphw.ir.update import NodeParameters
from amphw.rtl.fixed.clipping import tell_clipped
from amphw.rtl.fixed.kernel import FixedKernel
from amphw.rtl.fixed.lowering import FixedDerivative
from amphw.rtl.fixed.meters import Meter, Meters
from amphw.rtl.fixed.parameters import VELOCITY, FixedParameters, in_floats
from amphw.rtl.fixed.sums import Term, accumulate, total
from amphw.rtl.numbers.formats import Format, Formats


class FixedArithmetic:
    """fixed: each unit in fixed point. exponent: of learning rates. strict: refuse weights outside of their
    format rather than clip them."""

    dtype = np.dtype(np.int64)

    def __init__(
        self, formats: Formats, fixed: Mapping[int, FixedDerivative], exponent: int, strict: bool = False
    ):
        self.formats, self.fixed, self.exponent, self.strict = formats, fixed, exponent, strict
        self.meters = Meters(formats)
        self._sent = {"value": self.meters.add("", "data of the sources", "value")}
        self._sent["gradient"] = self.meters.add("", "gradients of the losses", "gradient")
        self._returned = self.meters.add("", "gradients of several receivers", "gradient")

    def kernels(self, unit: Unit) -> Kernels:
        d = self.fixed[unit.index]
        forward = FixedKernel(d.forward, self.meters.narrows(unit.name, "forward", d.forward))
        inference = FixedKernel(d.inference)  # what is lost there is lost in training too
        backward = None
        if d.backward.outputs:
            backward = FixedKernel(d.backward, self.meters.narrows(unit.name, "backward", d.backward))
        return Kernels(forward, inference, backward)

    def parameters(self, unit: Unit, params: NodeParameters) -> HeldParameters:
        return HeldParameters(self, unit, params)

    def to_payload(self, values: np.ndarray, kind: Kind) -> np.ndarray:
        """Nearest and saturated. NaN becomes 0, infinity the largest number."""
        return self._sent[kind].quantise(values)

    def to_float(self, payload: np.ndarray, kind: Kind) -> np.ndarray:
        return self._format(kind).real(payload)

    def total(self, parts: Sequence[Part], rows: int, width: int) -> np.ndarray:
        if len(parts) == 1 and parts[0][1] < 0:
            return parts[0][0]
        return self._returned(total(parts, rows, width))

    def _format(self, kind: Kind) -> Format:
        return self.formats.value if kind == "value" else self.formats.gradient


class HeldParameters:
    """A node's parameters as integers. `params`, the host's copy, is float64, which holds all of them
    exactly: what the host leaves alone, or has from a checkpoint, comes back to the bit."""

    def __init__(self, arithmetic: FixedArithmetic, unit: Unit, params: NodeParameters):
        self.node, self.params = unit.name, params
        self._arithmetic, self._formats = arithmetic, arithmetic.formats
        self._terms: dict[str, list[tuple[int, GradientTerm]]] = {}
        for k, term in enumerate(arithmetic.fixed[unit.index].terms):
            self._terms.setdefault(term.param, []).append((k, term))
        self._meters = {name: self._places(name) for name in params.values}
        self._values: dict[str, np.ndarray] = {}
        self.fixed: FixedParameters

    def _places(self, name: str) -> dict[str, Meter]:
        f, add = self._formats, self._arithmetic.meters.add
        made = {
            "weight": add(self.node, f"weight {name}", "weight"),
            "sum": add(self.node, f"summed gradient {name}", "sum", Format(f.sums_frac, f.sums)),
            "update": add(self.node, f"update {name}", "update", Format(f.master_frac, f.master)),
        }
        if self.params.rule.optimizer == "momentum":
            made["velocity"] = add(self.node, f"velocity {name}", "sum", VELOCITY)
        return made

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        """Visible weights, whole numbers in float64, as products take them."""
        return self._values

    def accumulate(self, entries: Sequence[Entry]) -> None:
        for name, terms in self._terms.items() if entries else ():
            a = self.fixed.arrays[name]
            # A frame's rows of one term come before those of the next, so several frames may be stacked only
            # where there is one term.
            pieces: list[Term] = (
                [(terms[0][1].kind, *stacked(entries, terms[0][0]))]
                if len(terms) == 1
                else [(term.kind, *made[k]) for _, made in entries for k, term in terms]
            )
            a.sums, saturated = accumulate(a.sums, pieces, self._formats)
            self._meters[name]["sum"].add_saturated(saturated)

    def prepare(self) -> dict[str, np.ndarray]:
        self.fixed.rows, self.params.rows = self.params.rows, 0
        return self.fixed.prepare()

    def publish(self, values: dict[str, np.ndarray]) -> None:
        self.fixed.publish(values)
        self._see(values)
        self.params.version = self.fixed.version

    def _see(self, visible: Mapping[str, np.ndarray]) -> None:
        self._values = {name: w.astype(np.float64) for name, w in visible.items()}

    def fetch(self) -> None:
        found = in_floats(self.fixed, self.params)
        self.params.values = found.values
        for name, gradient in found.gradients.items():
            self.params.gradients[name][...] = gradient
            for own, other in zip(self.params.slots[name], found.slots[name], strict=True):
                own[...] = other

    def push(self) -> None:
        """Warns of weights that are clipped; GraphError with `strict`."""
        fixed = FixedParameters.of(self.node, self._formats, self._arithmetic.exponent, self.params)
        tell_clipped(fixed, self.params, self._arithmetic.strict)
        fixed.watch = self._watch
        self.fixed = fixed
        self._see(fixed.visible)

    def _watch(self, param: str, what: str, exact: np.ndarray, shift: int, whole: np.ndarray) -> None:
        self._meters[param][what].see(exact, shift, whole)
