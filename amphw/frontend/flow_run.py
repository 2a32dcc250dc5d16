"""A program that was written elsewhere becomes part of a model: its loops, decisions and blocks.

A symbol of the program is a dimension of the model: the positions that an operand depends on. What is
computed for each position is a value that depends on it, so a step that leaves positions alone costs no more
than its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from amphw.frontend.attention import attention, softmax
from amphw.frontend.branches import cond
from amphw.frontend.convolution1d import windows
from amphw.frontend.decided_loops import while_loop
from amphw.frontend.flow import OPENS, Flow, Step, along, crossing, is_same, number
from amphw.frontend.flow_blocks import base, is_row
from amphw.frontend.flow_integers import Integers
from amphw.frontend.flow_layers import Blocks
from amphw.frontend.functions import exp, log, stop_gradient
from amphw.frontend.functions import number as as_value
from amphw.frontend.gather import pick, reduce, take
from amphw.frontend.index import Dim, union
from amphw.frontend.integer import Integer, integer
from amphw.frontend.loops import scan
from amphw.frontend.source import FrontendError
from amphw.frontend.spec import SequenceValue
from amphw.frontend.tensor import Tensor, constant, messages, spread
from amphw.frontend.values import Rename, at_position, looking

Lengths = Mapping[str, Dim | None]


class Flipped:
    """A value whose positions are gone through from the end."""

    def __init__(self, value: Any, dim: Dim) -> None:
        self.value, self.dim = value, dim


class Run(Integers):
    """One use of a flow, or of the body of a loop or a branch within another one."""

    def __init__(self, blocks: Blocks, lengths: Lengths, most: int | None, outer: Run | None = None) -> None:
        self.blocks, self.lengths, self.most, self.outer = blocks, lengths, most, outer
        self.known: dict[Step, Any] = {}

    def results(self, flow: Flow, given: Sequence[Any]) -> list[Any]:
        """What the flow gives for these inputs: values and Integers."""
        self.known |= dict(zip(flow.inputs, given, strict=True))
        self._refuse_pairs(flow)
        for step in flow.steps:
            if step in self.blocks.live and (step.op in OPENS or crossing(step)):
                self.value(step)
        return [None if x is None else self.plain(x) for x in flow.outputs]

    def _refuse_pairs(self, flow: Flow) -> None:
        """Two lengths of one step are two positions; that they are those of one sequence would be lost."""
        for step in flow.steps:
            dims = [d for s in step.symbols if (d := self.lengths.get(s)) is not None]
            if step in self.blocks.live and len(set(dims)) < len(dims):
                raise step.error(f"is of every pair of positions of {dims[0].name} ({dims[0].why})")

    def body(self, flow: Flow, given: Sequence[Any]) -> list[Any]:
        return Run(self.blocks, self.lengths, self.most, self).results(flow, given)

    # --- values -------------------------------------------------------------------------------------

    def value(self, step: Step) -> Any:
        """A value, an Integer, a number, a list of them, or what is flipped."""
        run: Run | None = self
        while run is not None:
            if step in run.known:
                return run.known[step]
            run = run.outer
        if (constant_ := number(step)) is not None:
            return constant_
        if is_same(step):
            return self.value(step.args[0])
        if is_row(step):
            self.known |= self.blocks.computed(step, self.operand)
        else:
            try:
                self.known[step] = self._made(step)
            except FrontendError as error:
                if error.place == step.place or step.place is None:
                    raise
                raise step.error(f"{error.message} (the program is used at {error.place})") from error
        return self.known[step]

    def _made(self, step: Step) -> Any:
        for x in step.operands:
            if base(x).op != "weight":
                self.value(x)
        if step.op == "getitem":
            return self.value(step.args[0])[step.args[1]]
        kind = "int" if step.kind == "int" else "do"
        handler = getattr(self, f"{kind}_{step.op.strip('_')}", None)
        if handler is None:
            raise step.error("has no counterpart here" + self._where(step))
        try:
            signature(handler).bind(step, *step.args, **step.kwargs)
        except TypeError as error:
            raise step.error(f"is called in a way that is not known here: {error}") from None
        return handler(step, *step.args, **step.kwargs)

    def _where(self, step: Step) -> str:
        if step.kind == "int":
            return " for integers that the instance gives"
        return f" along a length that differs ({', '.join(step.symbols) or 'all of it'})"

    def plain(self, x: Any) -> Any:
        """A value or an Integer."""
        made = self.value(x) if isinstance(x, Step) else x
        if isinstance(made, Flipped):
            last = Integer(made.dim.extent - 1 - made.dim.at, (*made.dim.needs, made.dim))
            return (
                made.value.at(made.dim, last)
                if isinstance(made.value, Integer)
                else take(made.value, last, made.dim)
            )
        if isinstance(made, int | float):
            return constant(x.width if isinstance(x, Step) else 1, float(made))
        return made

    def tensor(self, x: Any) -> Tensor:
        """A value; a number for an Integer."""
        made = self.plain(x)
        return as_value(made) if isinstance(made, Integer) else made

    def operand(self, step: Step) -> Any:
        """What a block reads."""
        return integer(self.value(step)) if step.kind == "int" else self.tensor(step)

    def integer(self, x: Any) -> Integer:
        made = self.value(x) if isinstance(x, Step) else x
        if not isinstance(made, Integer | int):
            raise FrontendError(f"an Integer of the instance is needed here, got {made!r}")
        return integer(made)

    def dim(self, symbol: Any, step: Step) -> Dim:
        """The positions that a dimension of the program is."""
        if isinstance(symbol, int):
            raise step.error(
                f"goes over a length of {symbol} for which the program is specialised; export it with a "
                "length that differs, dynamic_shapes=({0: torch.export.Dim('n')},)"
            )
        found = self.lengths.get(symbol)
        if found is None:
            raise step.error(
                f"goes along the length '{symbol}', which no operand has here; give one that depends on the "
                "positions of a sequence"
            )
        return found

    def along(self, step: Step, x: Step) -> Dim:
        dims = [(x.shape or ())[d] for d in along(step)]
        if len(dims) != 1:
            raise step.error(f"along several dimensions {dims} at once; one after the other is known")
        return self.dim(dims[0], step)

    def depending(self, x: Any, dim: Dim) -> Any:
        """The value at each position, also where it is the same at all."""
        made = self.plain(x)
        if isinstance(made, Integer) or dim in messages(made):
            return made
        return spread(made, union(made.context, (dim,)))

    # --- loops and decisions ------------------------------------------------------------------------

    def do_scan(self, step: Step, body: Flow, init: Sequence[Any], xs: Sequence[Any], *_: Any) -> Any:
        if not xs:
            raise step.error("goes over nothing")
        dim = self.dim(xs[0].shape[0], step)
        values = [self.value(x) for x in xs]
        reverse = all(isinstance(v, Flipped) for v in values)
        items = tuple(v.value if reverse else self.plain(x) for v, x in zip(values, xs, strict=True))
        over = SequenceValue(dim, items, Integer(dim.extent))

        def turn(carry: Any, given: Any) -> Any:
            made = [self.tensor(y) for y in self.body(body, [*carry, *given])]
            return tuple(made[: len(init)]), tuple(made[len(init) :])

        end, ys = scan(turn, tuple(self.tensor(x) for x in init), over, reverse=reverse)
        return [*end, *(Flipped(y, dim) if reverse else y for y in ys)]

    def do_map_impl(self, step: Step, body: Flow, xs: Sequence[Any], *_: Any) -> Any:
        symbol = xs[0].shape[0]
        dim = self.dim(symbol, step)
        given = [self.depending(x, dim) for x in xs]
        inside = [*body.steps, *body.inputs, *body.outside]
        if not any(self.lengths.get(s) is dim for x in inside for s in x.symbols):
            return [self.depending(y, dim) for y in self.body(body, given)]
        # All positions are read at each one: those that are gone through get a name of their own.
        there = looking(dim, "each")
        own, back = there.new, Rename(there.new, dim, there.new.at, dim.at)
        made = self.body(body, [at_position(x, there) for x in given])
        return [at_position(self.depending(y, own), back) for y in made]

    def do_cond(self, step: Step, condition: Any, then: Flow, otherwise: Flow, *_: Any) -> Any:
        decides = self.value(condition)
        if isinstance(decides, Integer | int):
            decides = integer(decides)
        both = [lambda f=f: tuple(self.tensor(y) for y in self.body(f, [])) for f in (then, otherwise)]
        return list(cond(decides, *both))

    def do_while_loop(self, step: Step, condition: Flow, body: Flow, init: Sequence[Any], *_: Any) -> Any:
        most = self.most or self._bound(condition, body, init)
        if most is None:
            raise step.error("a loop whose end the network decides needs a bound: from_export(..., most=n)")

        def goes_on(carry: Any) -> Tensor:
            (flag,) = self.body(condition, list(carry))
            return self.tensor(flag)

        def turn(carry: Any) -> Any:
            return tuple(self.tensor(y) for y in self.body(body, list(carry)))

        return list(while_loop(goes_on, turn, tuple(self.tensor(x) for x in init), most=most))

    def _bound(self, condition: Flow, body: Flow, init: Sequence[Any]) -> int | None:
        """How many turns a loop has at most whose condition counts from a number to another."""
        waiting, found = [condition.outputs[0]], list[int]()
        while waiting:
            test = base(waiting.pop())
            if test.op in ("__and__", "logical_and", "bitwise_and"):
                waiting += test.args
            if test.op not in ("lt", "le") or test.args[0] not in condition.inputs:
                continue
            place = condition.inputs.index(test.args[0])
            again, start = body.outputs[place], number(init[place])
            end = number(test.args[1]) if isinstance(test.args[1], Step) else test.args[1]
            counts = isinstance(again, Step) and again.op == "add" and again.args[0] is body.inputs[place]
            if counts and isinstance(again.args[1], int) and again.args[1] > 0 and start is not None:
                if isinstance(end, int | float):
                    turns = -(-(end - start + (test.op == "le")) // again.args[1])
                    found.append(max(int(turns), 1))
        return min(found, default=None)

    # --- positions ----------------------------------------------------------------------------------

    def _reduced(self, step: Step, x: Step, how: str) -> Tensor:
        dim = self.along(step, x)
        return reduce(self.depending(self.tensor(x), dim), how, dim)

    def do_sum(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        return self._reduced(step, x, "sum")

    def do_mean(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        return self._reduced(step, x, "mean")

    def do_amax(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        return self._reduced(step, x, "max")

    def do_amin(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        dim = self.along(step, x)
        return -reduce(self.depending(-self.tensor(x), dim), "max", dim)

    def do_softmax(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        dim = self.along(step, x)
        return softmax(self.depending(self.tensor(x), dim), over=dim)

    def do_log_softmax(self, step: Step, x: Step, *_: Any, **__: Any) -> Tensor:
        dim = self.along(step, x)
        value = self.depending(self.tensor(x), dim)
        value = value - stop_gradient(reduce(value, "max", dim))
        return value - log(reduce(exp(value), "sum", dim))

    def do_matmul(self, step: Step, x: Step, other: Step) -> Tensor:
        """The sum over positions of what both have there."""
        dim = self.dim((x.shape or ())[-1], step)
        if min(x.width, other.width) > 1:
            raise step.error("adds up products of two rows over positions; one of both must be one number")
        return reduce(self.depending(self.tensor(x) * self.tensor(other), dim), "sum", dim)

    do_mm = do_bmm = do_mv = do_dot = do_matmul

    def do_select(self, step: Step, x: Step, _: int, index: Any) -> Any:
        dim = self.along(step, x)
        found = self.value(index) if isinstance(index, Step) else index
        place = integer(found)
        if isinstance(found, int) and found < 0:
            place = Integer(dim.extent) + found
        return pick(self.depending(x, dim), place, dim)

    int_select = do_select

    def do_slice(self, step: Step, *_: Any, **__: Any) -> Any:
        raise step.error(
            "cuts a part out of a length that differs, whose positions would be others; give the model both "
            "sequences, or choose by position inside a scan"
        )

    int_slice = do_slice

    def do_flip(self, step: Step, x: Step, *_: Any) -> Any:
        dim, value = self.along(step, x), self.value(x)
        if isinstance(value, Flipped):
            if value.dim is not dim:
                raise step.error("turns two lengths around")
            return value.value
        return Flipped(self.depending(x, dim), dim)

    int_flip = do_flip

    def do_index(self, step: Step, x: Step, indices: Sequence[Any]) -> Any:
        given = [(k, i) for k, i in enumerate(indices) if i is not None]
        single = len(given) == 1 and given[0][1].width == 1
        if not single or isinstance((x.shape or ())[given[0][0]], int):
            raise step.error("is read by several indices at once; one Integer along one length is known")
        ((k, index),) = given
        dim, place = self.dim((x.shape or ())[k], step), self.integer(index)
        value = self.depending(x, dim)
        if index.symbols and isinstance(value, Tensor):
            return take(value, place, dim)
        return pick(value, place, dim)

    int_index = do_index

    def do_index_select(self, step: Step, x: Step, k: int, index: Step) -> Any:
        return self.do_index(step, x, [*[None] * along(step)[0], index])

    int_index_select = do_index_select

    def do_windows(self, step: Step, x: Step, offsets: Sequence[int]) -> Tensor:
        dim = self.dim((x.shape or ())[-1], step)
        return windows(self.depending(self.tensor(x), dim), offsets, dim)

    def do_scaled_dot_product_attention(
        self,
        step: Step,
        *qkv: Any,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        attn_mask: Any = None,
    ) -> Tensor:
        q, k, v = qkv[:3]
        options = [attn_mask, dropout_p, is_causal]
        options[: len(qkv) - 3] = qkv[3:]
        attn_mask, dropout_p, is_causal = options
        if attn_mask is not None or dropout_p or enable_gqa:
            raise step.error(
                "with a mask, dropout or groups of queries has no counterpart here; is_causal has"
            )
        dim, wide = self.dim(k.shape[-2], step), k.shape[-1]
        query = self.tensor(q)
        if scale is not None:
            query = query * (scale * wide**0.5)
        keys, values = (self.depending(self.tensor(x), dim) for x in (k, v))
        return attention(query, keys, values, dim, heads=k.width // wide, causal=is_causal)
