"""Loops that go on as long as the network wants: `while_loop`.

Nobody knows beforehand how many turns there will be, so nothing from outside can be sent to each of them.
What the body reads travels with the carry instead. What has more positions than the decision, such as a value
for each word or for each node of a graph, travels beside it, in a message for each position, and the decision
is taken again at each of them: it comes out the same, since it is computed from the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from amphw.frontend.decide import observe
from amphw.frontend.index import Captures, Choice, Context, Dim, dims_of, union, without
from amphw.frontend.integer import Integer
from amphw.frontend.source import FrontendError, called
from amphw.frontend.states import reordered
from amphw.frontend.tensor import Constant, Tensor, constant, group, messages, spread, ungroup
from amphw.frontend.trace import current, trials
from amphw.frontend.values import leaves, like, pack, shape, unpack
from amphw.ir.expr import Const
from amphw.ir.graph import PortRef
from amphw.ir.routing import Cond, Isu, Phi

Body = Callable[..., Any]


def while_loop(condition: Body, body: Body, init: Any, *, most: int | None = None) -> Any:
    """`body(carry) -> carry` as long as `condition(carry)`, one number a row, is above 0 -> the last carry.

    The network decides, so the loop has a bound: after `most` turns it ends whatever the condition says.
    Values from outside that the condition or the body reads travel with the carry. They, and parts of the
    carry, may have positions that the condition does not have, such as the words of an attention or the
    nodes of a graph: all of these go on together.
    """
    if not isinstance(most, int) or most < 1:
        raise FrontendError(f"a loop whose end the network decides needs a bound of 1 or more: most={most!r}")
    trace = current()
    captures = Captures()
    k = trace.dim("k", most, most, "the turn of a loop that the network ends", capture=captures)
    (on,) = trace.choice("go", Const(0), 2, (k,), captures)[1:]
    # What is inside depends on what is around from the first trial on: captures go by it.
    k.needs = trace.surroundings
    found = _Found(init, k.needs)
    with trace.capturing(captures), trace.region("while", "loop", k.name), trace.turning(k):
        for _ in trials(len(found.contexts) + 1):
            k.needs = captures.around = found.context
            with trace.trial():
                settled = found.tried(condition, body, k, on, captures)
            captures.found.clear()
            if settled:
                break
        else:
            raise FrontendError(
                "what this loop carries depends on more at every turn, such as on the positions of a loop in "
                "its body; reduce it to what it began with"
            )
        end = _Loop(found, k, on, captures).traced(condition, body)
    k.closed = on.closed = True
    return like(init, end)


class _Found:
    """What trials find of a loop.

    context: of the decision. contexts: of each part of the carry, which may have more positions, and has a
    message for each. outside: what is read from outside; the outputs may have other names in the end.
    """

    def __init__(self, init: Any, around: Context) -> None:
        self.init, self.context = init, around
        self.contexts = [union(around, messages(x)) for x in leaves(init)]
        self.outside: list[Tensor] = []

    def tried(self, condition: Body, body: Body, k: Dim, on: Choice, captures: Captures) -> bool:
        """Trace a turn, and let the contexts grow by what it depends on -> whether they had it all."""
        before = [self.context, *self.contexts]
        try:
            flag = _decision(called("a condition", condition, self._stand_ins((k,), k.name, captures)))
        except FrontendError as error:
            # It may ask for positions that the body alone gives the carry; else it is wrong as it is.
            with suppress(FrontendError):
                self._grow(self._result(body, k, on, captures), k, on)
            if before == [self.context, *self.contexts]:
                raise error from None
            return False
        spread(ungroup(flag) if flag.rows else flag, union(messages(flag), self.context, (k,)))
        result = self._result(body, k, on, captures)
        self.outside = list(captures.found.values())
        read = [x.context for x in self.outside if not self.has_more(x)]
        self.context = union(self.context, *(without(c, k, on) for c in (messages(flag), *read)))
        self._grow(result, k, on)
        return before == [self.context, *self.contexts]

    def _result(self, body: Body, k: Dim, on: Choice, captures: Captures) -> list[Tensor]:
        carry = self._stand_ins((k, on), f"{k.name}.go", captures)
        return _inside(_same(self.init, called("the body of a loop", body, carry)), (k, on))

    def _grow(self, result: Sequence[Tensor], k: Dim, on: Choice) -> None:
        self.contexts = [
            union(self.context, context, without(messages(x), k, on))
            for context, x in zip(self.contexts, result, strict=True)
        ]

    def has_more(self, x: Tensor) -> bool:
        """Whether a value has positions that the decision does not have."""
        return x.rows is not None or not set(dims_of(x.context)) <= set(self.context)

    def carry(self, parts: Sequence[Tensor]) -> Any:
        """The carry of its parts: in rows what was given in rows, unless something hangs on each of them."""
        carried = []
        for x, given, context in zip(parts, leaves(self.init), self.contexts, strict=True):
            bound = given.rows in self.context or any(given.rows in e.needs for e in context)
            carried.append(x if given.rows is None or bound else group(x, given.rows))
        return like(self.init, carried)

    def _stand_ins(self, entered: Context, stem: str, captures: Captures) -> Any:
        captures.enter(entered, Tensor(("stand-in", stem), 1, union(self.context, entered)))
        parts = [
            Tensor(("stand-in", f"{stem}.{i}"), x.width, union(context, entered))
            for i, (x, context) in enumerate(zip(leaves(self.init), self.contexts, strict=True))
        ]
        return self.carry(parts)


class _Part:
    """What has the same positions, and so goes round in one message: parts of the carry, and of what the body
    reads from outside, by their numbers."""

    def __init__(
        self, stem: str, context: Context, k: Dim, carried: dict[int, Tensor], read: dict[int, Tensor]
    ) -> None:
        self.context, self.k, self.carried, self.read = context, k, carried, read
        port = (current().name(stem), "out")
        self.turning = Tensor(port, sum(self.widths), union(context, (k,)))

    @property
    def widths(self) -> list[int]:
        """Of what is in the message; the decision's own has a number where there is nothing else for it."""
        return [x.width for x in (*self.carried.values(), *self.read.values())] or [1]

    def decided(self, flag: Tensor) -> list[PortRef]:
        """Out of the loop, and the way on, taken at each position where the others take it too."""
        x = self.turning
        return observe(x, spread(flag, x.context), 2, current().name("decided?"))

    def next(self, port: PortRef) -> tuple[PortRef, PortRef]:
        """Into the next turn, and out of the last one that there may be."""
        trace, k = current(), self.k
        full = trace.emit(Cond(trace.name("most?"), k.at.eq(k.extent - 1)), {"in": port})
        map = reordered(dims_of(self.turning.context), set={k: k.at + 1})
        step = trace.emit(Isu(trace.name("next"), map), {"in": (full, "no")})
        return (step, "out"), (full, "yes")

    def begin(self, outside: Sequence[Tensor], step: PortRef) -> None:
        """Into the first turn, where the others come as well."""
        trace = current()
        given = [*self.carried.values(), *(outside[i] for i in self.read)]
        start = pack([ungroup(x) if x.rows else x for x in given] or [constant(1)], self.context)
        map = reordered(dims_of(start.context), add={self.k: Const(0)})
        first = trace.emit(Isu(trace.name("first"), map), {"in": start.port})
        trace.emit(Phi(self.turning.port[0], ("first", "next")), {"first": (first, "out"), "next": step})

    def ended(self, stopped: PortRef, last: PortRef) -> list[Tensor]:
        """What is carried behind the loop, where either way out leads."""
        trace, k = current(), self.k
        dims = dims_of(self.turning.context)
        bound = trace.emit(Isu(trace.name("bound"), reordered(dims, drop={k: None})), {"in": last})
        stop = trace.emit(Isu(trace.name("stop"), reordered(dims, store=(k,))), {"in": stopped})
        both = Phi(trace.name("ended"), ("stop", "bound"))
        end = trace.emit(both, {"stop": (stop, "out"), "bound": (bound, "out")})
        return unpack(Tensor((end, "out"), self.turning.width, self.context), self.widths)


class _Loop:
    """The nodes of a loop: those of the decision, and of what has more positions, beside."""

    def __init__(self, found: _Found, k: Dim, on: Choice, captures: Captures) -> None:
        self.found, self.k, self.on, self.captures = found, k, on, captures
        at: dict[Context, tuple[dict[int, Tensor], dict[int, Tensor]]] = {found.context: ({}, {})}
        for i, (x, context) in enumerate(zip(leaves(found.init), found.contexts, strict=True)):
            at.setdefault(context, ({}, {}))[0][i] = x
        for i, x in enumerate(found.outside):
            context = union(found.context, messages(x)) if found.has_more(x) else found.context
            at.setdefault(context, ({}, {}))[1][i] = x
        stems = ("turn" if context == found.context else "beside" for context in at)
        self.parts = [_Part(stem, context, k, *at[context]) for stem, context in zip(stems, at, strict=True)]

    def traced(self, condition: Body, body: Body) -> list[Tensor]:
        """The nodes around and within the body -> what is carried at the end."""
        turning = [part.turning for part in self.parts]
        flag = _decision(condition(self._enter((self.k,), turning)[0]))
        ways = [part.decided(flag) for part in self.parts]
        gone = [
            Tensor(go, x.width, union(x.context, (self.on,)))
            for x, (_, go) in zip(turning, ways, strict=True)
        ]
        carry, read = self._enter((self.k, self.on), gone)
        result = _inside(_same(self.found.init, body(carry)), (self.k, self.on))
        # Only now all values from outside are known: they begin with the first turn.
        outside = list(self.captures.found.values())
        end: dict[int, Tensor] = {}
        for part, (stopped, _), x in zip(self.parts, ways, gone, strict=True):
            if part.carried:
                x = pack([*(result[i] for i in part.carried), *(read[i] for i in part.read)], x.context)
            step, last = part.next(x.port)
            part.begin(outside, step)
            if part.carried:  # else what is left over at the end is discarded
                values = part.ended(stopped, last)[: len(part.carried)]
                end |= zip(part.carried, values, strict=True)
        return [end[i] for i in range(len(end))]

    def _enter(self, entered: Context, got: Sequence[Tensor]) -> tuple[Any, dict[int, Tensor]]:
        """The carry where it has got to, and what is read from outside, in messages; what follows is traced
        there."""
        carried: dict[int, Tensor] = {}
        read: dict[int, Tensor] = {}
        for part, packed in zip(self.parts, got, strict=True):
            values = unpack(packed, part.widths)
            count = len(part.carried)
            carried |= zip(part.carried, values[:count], strict=True)
            read |= zip(part.read, values[count : count + len(part.read)], strict=True)
        self.captures.enter(entered, got[0])
        outside = self.found.outside
        self.captures.inside = [group(read[i], x.rows) if x.rows else read[i] for i, x in enumerate(outside)]
        return self.found.carry([carried[i] for i in range(len(carried))]), read


def _inside(result: Sequence[Tensor], entered: Context) -> list[Tensor]:
    """The parts of what a body returns, each where the body has got; those from outside come in last."""
    return [
        x if isinstance(x, Constant) else spread(ungroup(x) if x.rows else x, union(messages(x), entered))
        for x in result
    ]


def _decision(flag: Any) -> Tensor:
    if not isinstance(flag, Tensor) or flag.width != 1:
        hint = "; what the instance says is for `fold` and `cond`" if isinstance(flag, Integer) else ""
        raise FrontendError(f"a condition that the network decides is one number a row, got {flag!r}{hint}")
    return flag


def _same(init: Any, result: Any) -> list[Tensor]:
    """The parts of what a body returns, which are those of the carry."""
    if shape(result) != shape(init):
        raise FrontendError(f"a loop begins with widths {shape(init)}, and its body returns {shape(result)}")
    return leaves(result)
