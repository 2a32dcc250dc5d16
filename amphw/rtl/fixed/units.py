"""A graph's units in fixed point, and what they share: all that can be refused before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from amphw.engine.lowering.lower import Lowered, Unit
from amphw.ir.errors import GraphError
from amphw.ir.update import UpdateRule
from amphw.rtl.fixed.curves import curve
from amphw.rtl.fixed.lowering import FixedDerivative, lower_unit
from amphw.rtl.fixed.parameters import FixedRule, UpdateShifts, exponent_of, fixed_rule
from amphw.rtl.numbers.formats import BITS, MOST_ACCUMULATOR, FormatError, Formats


@dataclass(frozen=True)
class DeviceRules:
    """Update rules as integers, by node. exponent: of learning rates. shifts: of the update unit."""

    by_node: dict[str, FixedRule]
    exponent: int
    shifts: UpdateShifts

    @classmethod
    def of(cls, owners: Sequence[str], rules: Mapping[str, UpdateRule], formats: Formats) -> DeviceRules:
        """rules: by node, "*" for the others. GraphError for what the update unit cannot do."""
        given = {n: rules.get(n, rules.get("*", UpdateRule())) for n in owners}
        exponent = exponent_of(given.values())
        found = {n: fixed_rule(n, rule, exponent, formats) for n, rule in given.items()}
        momentum = {rule.mu for rule in found.values()}
        if len(momentum) > 1:
            raise GraphError(
                "the nodes of one device share the momentum's coefficient; give all the same rule"
            )
        return cls(found, exponent, UpdateShifts.of(formats, exponent, momentum not in ({None}, set())))


def mapped(lowered: Lowered, nodes: Collection[str] | None = None) -> list[Unit]:
    """The units that are computed in fixed point: all but sources and what reports to the host.

    nodes: only those of these names. GraphError for a name that is none of theirs.
    """
    units = [u for u in lowered.units if u.behaviour.program is not None and not u.behaviour.report]
    if nodes is None:
        return units
    able = [u.name for u in units]
    for name in nodes:
        if name not in able:
            reason = "stays on the host" if name in lowered.graph.nodes else "is not in the graph"
            raise GraphError(f"it {reason}; the hardware can have: {', '.join(able)}", node=name)
    if not nodes:
        raise GraphError(f"no node is placed on the hardware; it can have: {', '.join(able)}")
    return [u for u in units if u.name in nodes]


def fixed_units(units: Iterable[Unit], formats: Formats) -> dict[int, FixedDerivative]:
    """Each unit by number. GraphError names a node that the hardware cannot run, and what to do."""
    found = {}
    for u in units:
        assert u.derivative is not None and u.inference is not None
        found[u.index] = lower_unit(u.name, u.derivative, u.inference, formats)
        _accumulator_holds(u.name, found[u.index], formats)
        _curves_exist(u.name, found[u.index])
    return found


def widest_sum(units: Iterable[FixedDerivative]) -> int:
    """Bits that the longest sum of products takes."""
    return max((_bits_of_sum(_longest_sum(fixed)) for fixed in units), default=0)


def _accumulator_holds(node: str, fixed: FixedDerivative, formats: Formats) -> None:
    """GraphError where a sum of products may leave the accumulator, saying how many bits it takes."""
    terms = _longest_sum(fixed)
    needed, there = _bits_of_sum(terms), formats.accumulator or MOST_ACCUMULATOR
    if needed > there:
        do = "choose" if needed > MOST_ACCUMULATOR else f"give it acc={needed} in the number formats, or"
        raise GraphError(
            f"sums of {terms} products take {needed} bits, the accumulator has {there}: {do} a narrower "
            "layer",
            node=node,
        )


def _longest_sum(fixed: FixedDerivative) -> int:
    """How many products are summed up at most."""
    found = 0
    for program in (fixed.forward, fixed.backward):
        for _, o in program.numbered():
            if o.op in ("affine", "affine_t") and o.args:
                rows, columns = program.param(o.attr()["param"]).shape
                found = max(found, rows + 1 if o.op == "affine" else columns)
    return found


def _bits_of_sum(terms: int) -> int:
    return 2 * BITS - 1 + max(0, terms - 1).bit_length()


def _curves_exist(node: str, fixed: FixedDerivative) -> None:
    for program in (fixed.forward, fixed.inference):
        for _, o in program.numbered():
            if o.op == "curve":
                try:
                    curve(o.attr()["curve"], o.attr()["frac"])
                except FormatError as error:
                    raise GraphError(str(error), node=node) from None
