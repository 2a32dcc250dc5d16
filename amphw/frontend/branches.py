"""Choices: by what the instance says, or by what the network computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.decide import observe
from amphw.frontend.index import Captures, Choice, Context, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, called
from amphw.frontend.spec import items_of
from amphw.frontend.tensor import Tensor, group, messages, spread, ungroup
from amphw.frontend.trace import current
from amphw.frontend.values import leaves, like, pack, shape, unpack
from amphw.ir.expr import Const
from amphw.ir.routing import Phi

Branch = Callable[..., Any]

_OF_COND = ("`otherwise`", "`then`")  # the branches by their numbers, as the author knows them


def cond(condition: Integer | Tensor, then: Branch, otherwise: Branch, *operands: Any) -> Any:
    """`then(*operands)` where the condition holds, else `otherwise(*operands)`, as `jax.lax.cond`.

    condition: an Integer (not 0), or one number a row that the network computes (above 0). Only the branch
    that is chosen is computed.
    """
    condition = items_of(condition)
    if isinstance(condition, Integer):
        return _chosen(condition != 0, [otherwise, then], operands, _OF_COND)
    if isinstance(condition, Tensor) and condition.width != 1:
        raise FrontendError(f"a condition is one number a row, got {condition.width}; `switch` takes more")
    return _chosen(condition, [otherwise, then], operands, _OF_COND)


def switch(index: Integer | Tensor, branches: Sequence[Branch], *operands: Any) -> Any:
    """`branches[index](*operands)`, as `jax.lax.switch`; all branches return the same widths.

    index: an Integer; or scores that the network computes, one for each branch, of which the largest wins.
    The choice itself has no gradient. What gives the scores one is to use them, as a mixture of experts
    multiplies its expert's answer by the probability of the choice.
    """
    names = [f"branch {k}" for k in range(len(branches))]
    return _chosen(index, branches, operands, names)


def _chosen(
    index: Integer | Tensor, branches: Sequence[Branch], operands: tuple[Any, ...], names: Sequence[str]
) -> Any:
    """names: of the branches, for errors."""
    if len(branches) < 2:
        raise FrontendError(f"a choice needs two branches or more, got {len(branches)}")
    index, operands = items_of(index), tuple(items_of(x) for x in operands)
    if isinstance(index, Integer):
        return _known(index, branches, operands, names)
    if not isinstance(index, Tensor):
        raise FrontendError(f"a choice is made by an Integer or by scores, got {index!r}")
    if index.width not in (1, len(branches)) or (index.width == 1 and len(branches) != 2):
        raise FrontendError(f"{index.width} scores choose among {len(branches)} branches; give one for each")
    return _decided(index, branches, operands, names)


def _known(
    index: Integer, branches: Sequence[Branch], operands: tuple[Any, ...], names: Sequence[str]
) -> Any:
    if isinstance(index.high, Const) and index.high.value > len(branches):
        most = index.high.value - 1
        raise FrontendError(
            f"{len(branches)} branches for an Integer of up to {most}; give one for each value"
        )
    trace = current()
    known = trace.net.made
    key = ("choice", index.expr, len(branches))
    if key not in known:
        made = trace.choice("case", index.expr, len(branches), index.context)
        for choice in made:
            choice.proven = isinstance(index.high, Const)
        known[key] = made
    choices: list[Choice] = known[key]
    results = []
    with trace.region("branches", "branch"):
        for choice, branch in zip(choices, branches, strict=True):
            placed = [_brought(value, choice, ()) for value in operands]
            with trace.within(choice):
                results.append(called("a branch", branch, *placed))
        return _merged(results, choices, index.context, names)


def _brought(value: Any, choice: Choice, context: Context) -> Any:
    """A value as it is in a branch, and where a context says."""
    inside = union((choice,))
    parts = leaves(value)
    rows = [None if x.rows in inside else x.rows for x in parts]
    wide = [union(x.context, context, inside) for x in parts]
    return like(value, [spread(x, w, r) for x, w, r in zip(parts, wide, rows, strict=True)])


def _decided(
    scores: Tensor, branches: Sequence[Branch], operands: tuple[Any, ...], names: Sequence[str]
) -> Any:
    trace = current()
    if scores.rows is not None:
        scores = ungroup(scores)
    context = union(scores.context, trace.surroundings)
    # What is there for more positions than the decision gets into a branch on its own, as what it captures.
    given = [x for value in operands for x in leaves(value) if set(messages(x)) <= set(context)]
    widths = [x.width for x in given]
    captures = Captures(lambda x, choice: _routed(x, choice, scores), context)
    choices = trace.choice("chosen", Const(0), len(branches), (), captures)
    # What is inside depends on what is around from the first trial on: captures go by it.
    for choice in choices:
        choice.needs = trace.surroundings
    with trace.capturing(captures), trace.region("branches", "branch"):
        with trace.trial():
            for choice, branch in zip(choices, branches, strict=True):
                dealt = _stand_ins(choice, widths, union(context, (choice,)))
                captures.enter((choice,), dealt[-1])
                with trace.within(choice):
                    _brought(called("a branch", branch, *_placed(operands, given, dealt, choice)), choice, ())
            found = list(captures.found.values())
        captures.found = {}
        for choice in choices:
            choice.needs = context
        widths += [x.width for x in found]
        decided = trace.name("decided?")
        results = []
        for choice, branch in zip(choices, branches, strict=True):
            width = sum(widths) or scores.width
            through = Tensor((decided, f"case{choice.branch}"), width, union(context, (choice,)))
            parts = unpack(through, widths)
            captures.enter((choice,), through, parts[len(given) :])
            with trace.within(choice):
                results.append(_brought(branch(*_placed(operands, given, parts, choice)), choice, context))
        merged = _merged(results, choices, context, names)
        # Only now all values that the branches read are known: they take part in the decision.
        payload = pack([*given, *captures.found.values()], context) if widths else spread(scores, context)
        observe(payload, spread(scores, context), len(branches), decided)
    return merged


def _routed(x: Tensor, choice: Choice, scores: Tensor) -> Tensor:
    """A value for each of several positions, where the decision on all of them chose this branch.

    The decision is taken again at each position: it comes out the same, and needs no wider message.
    """
    known = current().net.made
    key = ("routed", x.port, choice.decision)
    if key not in known:
        with current().outside(choice):
            apart = ungroup(x) if x.rows else x
            context = union(apart.context, scores.context)
            payload, decisive = spread(apart, context), spread(scores, context)
            ports = observe(payload, decisive, choice.branches, current().name("decided?"))
        known[key] = ports, context
    ports, context = known[key]
    inside = Tensor(ports[choice.branch], x.width, union(context, (choice,)))
    return group(inside, x.rows) if x.rows else inside


def _stand_ins(choice: Choice, widths: list[int], context: Context) -> list[Tensor]:
    """For the operands, and one to set off what reads none of them."""
    name = f"{choice.name}.{choice.branch}"
    return [Tensor(("stand-in", f"{name}.{i}"), w, context) for i, w in enumerate([*widths, 1])]


def _placed(
    operands: tuple[Any, ...], given: Sequence[Tensor], inside: Sequence[Tensor], choice: Choice
) -> list[Any]:
    """The operands as a branch gets them; of those that are `given` with the decision, what is inside."""
    known = {id(x): y for x, y in zip(given, inside, strict=False)}

    def placed(x: Tensor) -> Tensor:
        return known[id(x)] if id(x) in known else leaves(_brought(x, choice, ()))[0]

    return [like(value, [placed(x) for x in leaves(value)]) for value in operands]


def _merged(results: list[Any], choices: list[Choice], context: Context, names: Sequence[str]) -> Any:
    """What the branches return, as one: each value comes from the branch that was taken."""
    trace = current()
    first = results[0]
    for k, result in enumerate(results):
        if shape(result) != shape(first):
            raise FrontendError(
                f"{names[0]} returns widths {shape(first)}, {names[k]} returns {shape(result)}; "
                "they must agree"
            )
    merged = []
    for values in map(list, zip(*(leaves(r) for r in results), strict=True)):
        rows = values[0].rows if len({x.rows for x in values}) == 1 else None
        values = [ungroup(x) if x.rows and rows is None else x for x in values]
        outer = union(context, *(without(x.context, *choices) for x in values))
        if rows in outer:
            rows, values = None, [ungroup(x) if x.rows else x for x in values]
        sources = {
            f"case{c.branch}": spread(x, union(outer, (c,)), rows).port
            for x, c in zip(values, choices, strict=True)
        }
        phi = trace.emit(Phi(trace.name("merge"), tuple(sources)), sources)
        merged.append(Tensor((phi, "out"), values[0].width, outer, rows))
    return like(first, merged)
