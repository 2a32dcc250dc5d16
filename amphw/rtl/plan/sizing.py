"""How large a device's memories must be: what an instance takes of each, at most, times the keys in flight.

The bounds are static, from the schema and the declared bounds of state fields, so that every instance that
the schema admits has room. Where extents depend on each other, as edges on nodes, they are larger than what
instances take; the host packs instances by what they really take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from amphw.engine.lowering.lower import Expand, Operand, Path, Unit
from amphw.ir.expr import Expr
from amphw.ir.state import StateType
from amphw.rtl.plan.hardware import HardwarePlan, Sizes
from amphw.rtl.plan.records import interval, state_bounds

PAYLOAD_STEP = 1 << 10
"""Words of payload memory that a block memory of ECP5 holds."""


@dataclass(frozen=True)
class Needs:
    """Words of each memory that an instance takes, at most. fan_in: messages that an output sends."""

    firings: int
    places: int
    payload: int
    table: int
    fan_in: int


def needs(plan: HardwarePlan) -> Needs:
    """Of the instances of the plan's graph."""
    partition, units = plan.partition, plan.lowered.units
    firings = places = payload = 0
    for unit in partition.units:
        code, states = plan.codes[unit.index], unit.behaviour.state.bound
        firings += states
        places += sum(states * _members(plan, unit, o) for o in unit.operands)
        payload += states * code.record.size.of(code.most_rows)
    payload += sum(_deliveries(plan, p)[1] for p in partition.inbound)
    for path in partition.outbound:
        messages, words = _deliveries(plan, path)
        places, payload = places + messages, payload + words
    fan_in = max((_sent(plan, units[p.source], p.value) for p in plan.lowered.paths), default=1)
    return Needs(firings, places, payload, _table(plan), fan_in)


def memory_sizes(plan: HardwarePlan, keys: int, infer_keys: int = 0) -> Sizes:
    """The plan's sizes with memories for so many keys that train, and slots for `infer_keys` more.

    Keys that train and keys that infer share the memories.
    """
    one, slots = needs(plan), keys + infer_keys
    return replace(
        plan.sizes,
        payload=-(-(plan.reserved + keys * one.payload) // PAYLOAD_STEP) * PAYLOAD_STEP,
        firings=_power(keys * one.firings),
        places=_power(keys * one.places),
        table=_power(plan.control.directory.size * slots + keys * one.table),
        slots=slots,
        fan_in=_power(one.fan_in),
    )


def _power(n: int) -> int:
    return 1 << max(2, (n - 1).bit_length())


def _most(plan: HardwarePlan, unit: Unit, e: Expr) -> int:
    """The largest value of an expression over the unit's state."""
    return max(0, interval(e, plan.graph.schema, state_bounds(unit.behaviour.state.fields))[1])


def _members(plan: HardwarePlan, unit: Unit, o: Operand) -> int:
    return 1 if o.count is None else _most(plan, unit, o.count)


def _deliveries(plan: HardwarePlan, path: Path) -> tuple[int, int]:
    """(messages, words of payload) that cross the border along a path: as many as its target waits for."""
    target = plan.lowered.units[path.target]
    o = target.operands[path.operand]
    messages = target.behaviour.state.bound * _members(plan, target, o)
    rows = 1 if path.by_row is not None else _most(plan, target, o.rows)
    return messages, messages * rows * o.width


def _sent(plan: HardwarePlan, unit: Unit, value: int) -> int:
    """Messages that one output of a firing becomes."""
    total = 0
    for path in unit.out:
        if path.value == value:
            known = state_bounds(unit.behaviour.state.fields)
            messages = 1
            for step in path.steps:
                if isinstance(step, Expand):
                    most = max(0, interval(step.extent, plan.graph.schema, known)[1])
                    known[step.name] = (0, max(0, most - 1))
                    messages *= most
            total += messages
    return total


def _table(plan: HardwarePlan) -> int:
    """Words beside the slot's directory: structure tables, places of members, prefix sums."""
    words, schema = 0, plan.graph.schema
    for kind, *about in plan.control.directory.offsets:
        if kind == "table":
            words += prod(interval(e, schema, {})[1] for e in schema.tables[str(about[0])].shape)
        elif kind == "members":
            words += plan.lowered.units[about[0]].behaviour.state.bound + 1  # type: ignore[call-overload]
        elif kind == "starts":
            state = about[0]
            assert isinstance(state, StateType)
            words += prod(f.bound for f in state.fields[:-1]) + 1
    return words
