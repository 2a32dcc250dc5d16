"""The `fixed` device: trains whole models in the hardware's arithmetic, at the speed of numpy.

`fixed:q4.12` and, in full, `fixed:q4.12,w=q3.13,g=q1.15,master=24,round=stochastic`; see `Formats.parse`.
Losses run on the host, in floats. Needs no hardware tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.engine.lowering.lower import Lowered, Unit, lower
from amphw.engine.numpy_plane import NumpyPlane, Replay
from amphw.engine.parts.kernel import KernelPart, KernelSetting
from amphw.engine.plane_device import PlaneDevice
from amphw.engine.policy import check_settings
from amphw.ir.config_fields import picked
from amphw.ir.device import Capabilities, DeviceOptions, Findings
from amphw.ir.graph import Graph
from amphw.ir.precision import only_float32
from amphw.ir.service_log import ServiceLog
from amphw.ir.update import NodeParameters, UpdateRule, initial_parameters
from amphw.rtl.fixed.arithmetic import FixedArithmetic
from amphw.rtl.fixed.findings import findings
from amphw.rtl.fixed.lowering import FixedDerivative
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.fixed.units import DeviceRules, fixed_units, mapped
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.options import HardwareOptions


class FixedDevice(PlaneDevice):
    """FixedDevice("q4.12", replay=log) repeats a logged run in the calling thread.

    settings: strict (refuse weights outside of their format rather than clip them), and those of NumpyPlane.
    The host's copies of parameters are float64: masters, sums and velocities fit in exactly.
    """

    def __init__(self, formats: str = "", replay: ServiceLog | None = None) -> None:
        super().__init__(replay)
        self.formats = Formats.parse(formats)
        self.arithmetic = FixedArithmetic(self.formats, {}, 0)  # of nothing yet

    def capabilities(self) -> Capabilities:
        notes = "losses run in floats; formats are chosen as in fixed:q4.12,g=q2.14"
        return Capabilities(
            f"fixed:{self.formats}", "fixed", formats=(str(self.formats),), optimizers=UPDATES, notes=notes
        )

    def check(self, graph: Graph, rules: Mapping[str, UpdateRule]) -> None:
        """See `ChecksAhead`."""
        self._planned(graph, rules)

    def _planned(
        self, graph: Graph, rules: Mapping[str, UpdateRule]
    ) -> tuple[Lowered, dict[int, FixedDerivative], DeviceRules]:
        # Not fused: each node is a unit of the hardware.
        lowered = lower(graph)
        return (
            lowered,
            fixed_units(mapped(lowered), self.formats),
            DeviceRules.of(graph.parameterised, rules, self.formats),
        )

    def part(self) -> KernelPart:
        """See `OffersPart`."""
        return KernelPart(self.capabilities(), self._chosen)

    def _chosen(
        self,
        graph: Graph,
        units: Sequence[Unit],
        rules: Mapping[str, UpdateRule],
        options: DeviceOptions,
    ) -> KernelSetting:
        owners = [u.name for u in units if u.owns]
        shared = DeviceRules.of(owners, rules, self.formats)
        strict = picked(HardwareOptions, options.settings).strict
        arithmetic = FixedArithmetic(self.formats, fixed_units(units, self.formats), shared.exponent, strict)
        return KernelSetting(arithmetic, _in_float64(graph, owners, rules, options.seed))

    def load(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        self.close()
        settings = options.settings
        check_settings(settings, "frame_cap", "frame_rows", "min_rows")
        only_float32(settings, self.capabilities().name)
        lowered, fixed, shared = self._planned(graph, rules)
        strict = picked(HardwareOptions, settings).strict
        self.arithmetic = FixedArithmetic(self.formats, fixed, shared.exponent, strict)
        self.params = _in_float64(graph, graph.parameterised, rules, options.seed)
        self.log: list[Any] = []
        plane = NumpyPlane(
            lowered,
            self.params,
            updates=options.updates,
            workers=1,
            placement=None,
            settings=settings,
            log=self.log if options.log else None,
            keys=options.max_active_keys,
            arithmetic=self.arithmetic,
        )
        plane.push()  # what does not fit is told now
        self.start(plane, Replay, workers=1)

    def findings(self) -> Findings:
        """What the formats have lost since `load`: formats.json, formats.png and a table."""
        return findings(self.formats, self.arithmetic.meters)


def _in_float64(
    graph: Graph, nodes: Sequence[str], rules: Mapping[str, UpdateRule], seed: int
) -> dict[str, NodeParameters]:
    """From the values that every device starts at."""
    initial = initial_parameters({n: graph.nodes[n].params for n in nodes}, dict(rules), seed)
    return {
        n: NodeParameters.of(p.specs, p.rule, {k: v.astype(np.float64) for k, v in p.values.items()})
        for n, p in initial.items()
    }
