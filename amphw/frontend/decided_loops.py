"""Loops that go on as long as the network wants: `while_loop`.

Nobody knows beforehand how many turns there will be, so nothing from outside can be sent to each of them.
What the body reads travels with the carry instead. A value that has more positions than the carry, such as
one for each word, travels beside it, in a message for each position, and the decision is taken again at each
of them: it comes out the same, since it is computed from the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amphw.frontend.decide import observe
from amphw.frontend.index import Captures, Choice, Context, Dim, dims_of, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, called
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Tensor, group, messages, spread, ungroup
from amphw.frontend.trace import current
from amphw.frontend.values import leaves, like, pack, shape, unpack
from amphw.ir.expr import Const
from amphw.ir.graph import PortRef
from amphw.ir.routing import Cond, Isu, Phi

Body = Callable[..., Any]
_TRIALS = 8


def while_loop(condition: Body, body: Body, init: Any, *, most: int | None = None) -> Any:
    """`body(carry) -> carry` as long as `condition(carry)`, one number a row, is above 0 -> the last carry.

    The network decides, so the loop has a bound: after `most` turns it ends whatever the condition says.
    Values from outside that the condition or the body reads travel with the carry; they may have positions
    that it does not have, as the keys and values of an attention.
    """
    if not isinstance(most, int) or most < 1:
        raise FrontendError(f"a loop whose end the network decides needs a bound of 1 or more: most={most!r}")
    trace = current()
    captures = Captures()
    k = trace.dim("k", most, most, "the turn of a loop that the network ends", capture=captures)
    given = leaves(init)
    (on,) = trace.choice("go", Const(0), 2, (k,), captures)[1:]
    # What is inside depends on what is around from the first trial on: captures go by it.
    k.needs = trace.surroundings
    trace.captures.append(captures)
    with trace.region("while", "loop", k.name), trace.turning(k):
        context = union(k.needs, *(messages(x) for x in given))
        for _ in range(_TRIALS):
            k.needs = captures.around = context
            with trace.trial():
                grown = _tried(condition, body, init, k, on, captures, context)
                found = list(captures.found.values())
            captures.found.clear()
            if set(grown) <= set(context):
                break
            context = grown
        loop = _Loop(init, k, on, captures, context, found)
        end = loop.traced(condition, body)
    trace.captures.remove(captures)
    k.closed = on.closed = True
    return like(init, unpack(end, loop.widths)[: loop.carried])


def _tried(
    condition: Body, body: Body, init: Any, k: Dim, on: Choice, captures: Captures, context: Context
) -> Context:
    """What the carry depends on behind one turn; on the way the captures are found."""

    def stand_ins(stage: str, entered: Context) -> Any:
        made = [
            Tensor(("stand-in", f"{k.name}{stage}.{i}"), x.width, union(context, entered))
            for i, x in enumerate(leaves(init))
        ]
        captures.enter(entered, made[0])
        return like(init, made)

    flag = _decision(called("a condition", condition, stand_ins("", (k,))))
    spread(ungroup(flag) if flag.rows else flag, union(messages(flag), context, (k,)))
    result = called("the body of a loop", body, stand_ins(".go", (k, on)))
    _same(init, result)
    for x in leaves(result):
        spread(ungroup(x) if x.rows else x, union(messages(x), (k, on)))
    carried = [messages(x) for x in (flag, *leaves(result))]
    read = [x.context for x in captures.found.values() if not _has_more(x, context)]
    return union(context, *(without(c, k, on) for c in (*carried, *read)))


def _has_more(x: Tensor, context: Context) -> bool:
    """Whether a value has positions that the carry does not have."""
    return x.rows is not None or not set(dims_of(x.context)) <= set(context)


class _Loop:
    """The nodes of a loop whose carry has the given context.

    found: what its body reads from outside, as a trial has found it; the outputs may have other names now.
    """

    def __init__(
        self, init: Any, k: Dim, on: Choice, captures: Captures, context: Context, found: Sequence[Tensor]
    ) -> None:
        self.init, self.k, self.on, self.captures, self.context = init, k, on, captures, context
        self.found = found
        self.carried = len(leaves(init))
        self.with_it = [i for i, x in enumerate(found) if not _has_more(x, context)]
        self.widths = [x.width for x in (*leaves(init), *(found[i] for i in self.with_it))]
        # All that have the same positions go round in one message.
        beside: dict[Context, list[int]] = {}
        for i, x in enumerate(found):
            if i not in self.with_it:
                beside.setdefault(union(context, messages(x)), []).append(i)
        self.beside = [_Beside(at, [found[i] for i in numbers], numbers) for at, numbers in beside.items()]

    def traced(self, condition: Body, body: Body) -> Tensor:
        """The nodes around and within the body -> what is carried at the end."""
        trace, k = current(), self.k
        turning, running = union(self.context, (k,)), union(self.context, (k, self.on))
        phi = trace.name("turn")
        packed = Tensor((phi, "out"), sum(self.widths), turning)
        parts = self._enter(packed, (k,), [each.phi for each in self.beside])
        flag = _decision(condition(like(self.init, parts[: self.carried])))
        stopped, go = observe(packed, spread(flag, turning), 2, trace.name("decided?"))
        gone = [each.decided(flag, k) for each in self.beside]
        parts = self._enter(Tensor(go, packed.width, running), (k, self.on), gone)
        result = body(like(self.init, parts[: self.carried]))
        _same(self.init, result)
        again = pack([*leaves(result), *parts[self.carried :]], running)
        step, last = self._next(again.port, turning)
        dims = dims_of(turning)
        bound = trace.emit(Isu(trace.name("bound"), reordered(dims, drop={k: None})), {"in": last})
        stop = trace.emit(Isu(trace.name("stop"), reordered(dims, store=(k,))), {"in": stopped})
        # Only now all values from outside are known: they begin with the first turn.
        outside = list(self.captures.found.values())
        for each, port in zip(self.beside, gone, strict=True):
            # The loop's end has no use for them: what is left over there is discarded.
            start = each.packed([outside[i] for i in each.numbers])
            _begin(each.phi, start, k, self._next(port, union(each.context, (k,)))[0])
        inside = [outside[i] for i in self.with_it]
        _begin(phi, pack([*leaves(self.init), *inside], self.context), k, step)
        ended = Phi(trace.name("ended"), ("stop", "bound"))
        end = trace.emit(ended, {"stop": (stop, "out"), "bound": (bound, "out")})
        return Tensor((end, "out"), packed.width, self.context)

    def _enter(self, packed: Tensor, entered: Context, ports: Sequence[PortRef]) -> list[Tensor]:
        """The parts of what is carried; what follows is traced where this, and what is beside it, has got."""
        parts = unpack(packed, self.widths)
        self.captures.enter(entered, packed)
        inside = dict(zip(self.with_it, parts[self.carried :], strict=True))
        for each, port in zip(self.beside, ports, strict=True):
            inside |= dict(zip(each.numbers, each.unpacked(port, entered), strict=True))
        self.captures.inside = [inside[i] for i in range(len(inside))]
        return parts

    def _next(self, port: PortRef, turning: Context) -> tuple[PortRef, PortRef]:
        """Into the next turn, and out of the last one that there may be."""
        trace, k = current(), self.k
        full = trace.emit(Cond(trace.name("most?"), k.at.eq(k.extent - 1)), {"in": port})
        map = reordered(dims_of(turning), set={k: k.at + 1})
        step = trace.emit(Isu(trace.name("next"), map), {"in": (full, "no")})
        return (step, "out"), (full, "yes")


class _Beside:
    """Values with the same positions, more than the carry has. numbers: which of the captures they are."""

    def __init__(self, context: Context, values: Sequence[Tensor], numbers: Sequence[int]) -> None:
        self.context, self.numbers, self.rows = context, numbers, [x.rows for x in values]
        self.widths = [x.width for x in values]
        self.phi: PortRef = (current().name("beside"), "out")

    def packed(self, outside: Sequence[Tensor]) -> Tensor:
        return pack([ungroup(x) if x.rows else x for x in outside], self.context)

    def unpacked(self, port: PortRef, entered: Context) -> list[Tensor]:
        inside = unpack(Tensor(port, sum(self.widths), union(self.context, entered)), self.widths)
        return [group(x, rows) if rows else x for x, rows in zip(inside, self.rows, strict=True)]

    def decided(self, flag: Tensor, k: Dim) -> PortRef:
        """The way on, taken at each position where the carry takes it too."""
        context = union(self.context, (k,))
        packed = Tensor(self.phi, sum(self.widths), context)
        return observe(packed, spread(flag, context), 2, current().name("decided?"))[1]


def _begin(phi: str | PortRef, start: Tensor, k: Dim, step: PortRef) -> None:
    """Into the first turn, where the others come as well."""
    trace = current()
    name = phi if isinstance(phi, str) else phi[0]
    map = reordered(dims_of(start.context), add={k: Const(0)})
    first = trace.emit(Isu(trace.name("first"), map), {"in": start.port})
    trace.emit(Phi(name, ("first", "next")), {"first": (first, "out"), "next": step})


def _decision(flag: Any) -> Tensor:
    if not isinstance(flag, Tensor) or flag.width != 1:
        hint = "; what the instance says is for `fold` and `cond`" if isinstance(flag, Integer) else ""
        raise FrontendError(f"a condition that the network decides is one number a row, got {flag!r}{hint}")
    return flag


def _same(init: Any, result: Any) -> None:
    if shape(result) != shape(init):
        raise FrontendError(f"a loop begins with widths {shape(init)}, and its body returns {shape(result)}")
