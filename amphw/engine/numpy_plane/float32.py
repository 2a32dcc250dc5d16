"""The arithmetic of the CPU device: float32, and parameters that live where the host sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from amphw.engine.lowering.lower import Unit
from amphw.engine.numpy_plane.arithmetic import Entry, Kernels, Kind, Part, stacked
from amphw.engine.numpy_plane.kernel import Kernel
from amphw.ir.derive import GradientTerm, accumulate
from amphw.ir.errors import NonFiniteError
from amphw.ir.precision import PRECISIONS
from amphw.ir.primitives.base import Product, product
from amphw.ir.update import NodeParameters


class FloatParameters:
    """`NodeParameters` as they are. product: as of `accumulate`."""

    def __init__(
        self, node: str, params: NodeParameters, terms: tuple[GradientTerm, ...], product: Product = product
    ):
        self.node, self.params, self._terms, self._product = node, params, terms, product

    @property
    def values(self) -> Mapping[str, np.ndarray]:
        return self.params.values

    def accumulate(self, entries: Sequence[Entry]) -> None:
        """One product a term."""
        for k, term in enumerate(self._terms if entries else ()):
            a, dz = stacked(entries, k)
            accumulate(term.kind, self.params.gradients[term.param], a, dz, self._product)

    def prepare(self) -> dict[str, np.ndarray]:
        """Raises NonFiniteError, and the old version stays, if a gradient is not finite."""
        bad = self.params.note()
        if bad is not None:
            raise NonFiniteError(self.node, "backward", f"the gradient of '{bad}'")
        return self.params.prepare()

    def publish(self, values: dict[str, np.ndarray]) -> None:
        self.params.publish(values)

    def fetch(self) -> None:
        """Nothing to do: there is no other copy."""

    def push(self) -> None:
        """Nothing to do: there is no other copy."""


class Float32:
    """As `amphw.ir` defines programs and updates. precision: of products, see `amphw.ir.precision`."""

    dtype = np.dtype(np.float32)

    def __init__(self, precision: str = "float32"):
        self._product = PRECISIONS[precision]
        self._plain = precision == "float32"

    def kernels(self, unit: Unit) -> Kernels:
        d = unit.derivative
        assert d is not None and unit.inference is not None
        product = None if self._plain else self._product
        backward = Kernel(d.backward, product) if d.backward.outputs else None
        return Kernels(Kernel(d.forward, product), Kernel(unit.inference, product), backward)

    def parameters(self, unit: Unit, params: NodeParameters) -> FloatParameters:
        assert unit.derivative is not None
        return FloatParameters(unit.name, params, unit.derivative.terms, self._product)

    def to_payload(self, values: np.ndarray, kind: Kind) -> np.ndarray:
        return np.asarray(values, dtype=np.float32)

    def to_float(self, payload: np.ndarray, kind: Kind) -> np.ndarray:
        return payload

    def total(self, parts: Sequence[Part], rows: int, width: int) -> np.ndarray:
        if len(parts) == 1 and parts[0][1] < 0:
            return parts[0][0]
        total = np.zeros((rows, width), dtype=np.float32)
        for g, row in parts:
            if row < 0:
                total += g
            else:
                total[row : row + 1] += g
        return total


FLOAT32 = Float32()
