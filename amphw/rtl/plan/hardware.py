"""Everything that is known of a device before it is built: its units, programs, memories and their sizes.

The generator of the hardware and the driver on the host read the same plan; it needs no hardware tools.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from amphw.engine.lowering.lower import Lowered, lower
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.lowering import FixedDerivative
from amphw.rtl.fixed.parameters import FixedRule, UpdateShifts
from amphw.rtl.fixed.units import DeviceRules, fixed_units, mapped, widest_sum
from amphw.rtl.isa.steps import Step
from amphw.rtl.isa.wire import WORD
from amphw.rtl.microcode.compile import UnitCode, compile_unit
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.control import ControlPlan, Partition, control_plan, gradient_room
from amphw.rtl.plan.stack import Stack

MOST_WORDS = 1 << 16
"""Of payload memory: addresses have 16 bits."""

JOBS = 64
"""Messages that wait to be sent."""

BLOCK_BITS = 1 << 14
"""Of a block memory of ECP5, without parity."""


def payload_part(words: int) -> int:
    """Bits of the parts that a word of payload memory is split into, so that each bit comes from one of no
    more than eight block memories: the choice from many would take longer than the memories themselves."""
    part = WORD
    while part > 1 and words * part > 8 * BLOCK_BITS:
        part //= 2
    return part


@dataclass(frozen=True)
class Sizes:
    """What may be chosen of a device.

    lanes: multipliers of the lane engine. payload: words of payload memory. firings, places, table: words of
    the controller's memories. slots: keys that train, and behind them keys that infer. fan_in: messages whose
    gradients are added up, at most. counters: 1 to count what it does.
    """

    lanes: int = 16
    payload: int = 1 << 14
    firings: int = 1 << 10
    places: int = 1 << 10
    table: int = 1 << 10
    slots: int = 17
    fan_in: int = 64
    counters: int = 1


@dataclass(frozen=True)
class HardwarePlan:
    """partition, control: units, and what happens around them. stack: where parameters lie. fixed: programs.

    reserved: words of payload memory that no instance gets (scratch, and sums of gradients from `sums` on).
    exponent: of learning rates.
    """

    graph: Graph
    lowered: Lowered
    formats: Formats
    sizes: Sizes
    partition: Partition
    control: ControlPlan
    stack: Stack
    fixed: dict[int, FixedDerivative]
    rules: dict[int, FixedRule]
    exponent: int
    shifts: UpdateShifts
    sums: int
    reserved: int

    @property
    def codes(self) -> dict[int, UnitCode]:
        return self.partition.codes

    @property
    def elsewhere(self) -> list[str]:
        """Nodes that compute on other devices."""
        return [u.name for u in mapped(self.lowered) if u.index not in self.partition.number]

    @property
    def table_reserved(self) -> int:
        """Words of table memory that the slots' directories take."""
        return self.control.directory.size * self.sizes.slots


def hardware_plan(
    graph: Graph,
    rules: Mapping[str, UpdateRule],
    formats: Formats,
    sizes: Sizes,
    nodes: Collection[str] | None = None,
) -> HardwarePlan:
    """Plan a device for the nodes of a graph that are placed on it: all but sources and losses, if not said.

    A node that only routes goes with whoever sends to it. GraphError names a node that the hardware cannot
    run, and why, before anything is built.
    """
    lowered = lower(graph)
    units = mapped(lowered, nodes)
    fixed = fixed_units(units, formats)
    formats = formats.accumulating(widest_sum(fixed.values()))
    stack = Stack.of([(u.name, fixed[u.index].forward) for u in units if u.owns], sizes.lanes)
    codes = {
        u.index: compile_unit(
            u.name,
            fixed[u.index],
            stack.places.get(u.name, {}),
            u.behaviour.spaces,
            graph.schema,
            u.behaviour.state.fields,
            [i for i, o in enumerate(u.operands) if o.count is not None],
        )
        for u in units
    }
    partition = Partition(lowered, units, codes)
    control = control_plan(partition)
    shared = DeviceRules.of([u.name for u in units if u.owns], rules, formats)
    found = {u.index: shared.by_node[u.name] for u in units if u.owns}
    scratch = max((c.scratch.of(c.most_rows) for c in codes.values()), default=0)
    room = max(
        (
            sum(gradient_room(partition, u, k) for k in u.derivative.float_outputs)
            for u in units
            if u.derivative
        ),
        default=0,
    )
    return HardwarePlan(
        graph, lowered, formats, sizes, partition, control, stack, fixed, found,
        shared.exponent, shared.shifts, scratch, scratch + room,
    )  # fmt: skip


def widest(steps: list[Step]) -> tuple[int, int]:
    """(words read, loops within each other) of the control programs, at most."""
    reads = max((s.n + 1 for s in steps if s.op.name == "READ"), default=0)
    loops = max((s.n + 1 for s in steps if s.op.name == "LOOP"), default=0)
    return reads, loops
