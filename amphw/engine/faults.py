"""What the data planes say when something goes wrong: which node, which instance, which firing, and why."""

from __future__ import annotations

from amphw.engine.lowering.lower import Trap, Unit
from amphw.ir.errors import ExecutionError, InstanceError, StateError
from amphw.ir.instance import Instance
from amphw.ir.state import KeySpace

OUTSIDE_A_TABLE = "an expression on the way reads outside a table; check its index"


def trapped(trap: Trap) -> str:
    """Why no route takes a message."""
    return f"no out-port of node '{trap.node}' takes the message; check its index"


def state_of(unit: Unit, instance: Instance, firing: int) -> str:
    """A firing's state, such as (n=2)."""
    columns = KeySpace(unit.behaviour.state, instance).columns
    return "(" + ", ".join(f"{name}={int(column[firing])}" for name, column in columns.items()) + ")"


def undeliverable(unit: Unit, instance: Instance, firing: int, reason: str) -> StateError:
    state = state_of(unit, instance, firing)
    return StateError(f"node '{unit.name}', instance {instance.number}, firing {state}: {reason}")


def unreadable(unit: Unit, instance: Instance, firing: int, what: str = "") -> StateError:
    detail = f" ({what})" if what else ""
    return undeliverable(
        unit, instance, firing, f"its program reads outside a table{detail}; check its indices"
    )


def not_pulled(unit: Unit, instance: Instance, firing: int, table: str, row: int) -> StateError:
    return undeliverable(
        unit,
        instance,
        firing,
        f"it reads row {row} of '{table}', which its owner has not sent since the last update; put the rows "
        "of every instance before it is pumped",
    )


def outside_domain(unit: Unit, target: Unit, instance: Instance) -> StateError:
    return StateError(
        f"node '{unit.name}' sends a state outside its domain to '{target.name}' "
        f"(instance {instance.number}); check the extents and the guards before it"
    )


def twice(target: Unit, operand: int, instance: Instance) -> ExecutionError:
    return ExecutionError(
        f"node '{target.name}' port '{target.operands[operand].port}': instance {instance.number} "
        "brings one state a second time; a loop or region must add a field that tells the two apart"
    )


def short_data(unit: Unit, instance: Instance, wanted: int) -> InstanceError:
    name = unit.behaviour.emits[0].data
    assert name is not None
    return InstanceError(
        f"instance {instance.number}: data array '{name}' has {len(instance.data[name])} rows, "
        f"node '{unit.name}' sends {wanted}"
    )


def undecided(unit: Unit, number: int, value: int, extent: int) -> StateError:
    name = unit.behaviour.decides[number][0].name
    return StateError(
        f"node '{unit.name}': decided {name} = {value}, outside 0..{extent - 1}; "
        "give the field the extent of what its program decides"
    )


def waiting(unit: Unit, left: int, operands: list[int], instance: Instance, firing: int) -> str:
    """What one firing still lacks."""
    ports = ", ".join(f"'{unit.operands[k].port}'" for k in operands)
    return (
        f"node '{unit.name}' waits for {left} more message(s) at {ports}, "
        f"instance {instance.number}, firing {state_of(unit, instance, firing)}"
    )


def stuck(in_flight: int, lines: list[str]) -> ExecutionError:
    what = "; ".join(lines[:6]) or "no operand is pending"
    return ExecutionError(f"nothing moves any more, but {in_flight} instance(s) are in flight: {what}")


def occupied(index: int, instance: Instance) -> ExecutionError:
    return ExecutionError(f"slot {index} still holds instance {instance.number}")
