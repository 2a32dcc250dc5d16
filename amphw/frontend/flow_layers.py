"""The blocks of a program as layers, which hold its parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from amphw.frontend.embedding import within_table
from amphw.frontend.flow import Flow, Step, number
from amphw.frontend.flow_blocks import Plan, base, is_row, weight_of
from amphw.frontend.flow_rows import HANDLED, fresh
from amphw.frontend.integer import Integer
from amphw.frontend.layers import Layer
from amphw.frontend.masks import row_keys
from amphw.frontend.source import here
from amphw.frontend.tensor import Tensor
from amphw.frontend.torch_ops import Refused
from amphw.ir.errors import ProgramError
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, Program, ValueType


class Block(Layer):
    """Steps on rows that are computed in one node. inputs: what they read; outputs: what is read of them."""

    def __init__(self, steps: Sequence[Step], inputs: Sequence[Step], outputs: Sequence[Step]) -> None:
        super().__init__()
        self.steps, self.inputs, self.outputs = list(steps), list(inputs), list(outputs)
        self.layouts: dict[str, tuple[int, ...]] = {}
        self.part_of: Any = None

    @property
    def weights(self) -> list[str]:
        """Names of the parameters, in the order of their use."""
        found = (w.name for s in self.steps for x in s.operands if (w := weight_of(x)) is not None)
        return list(dict.fromkeys(found))

    def program(self, tensors: list[Tensor], aligned: list[Tensor], exprs: list[Expr]) -> Program:
        builder = Builder()
        given = [builder.input(f"x{i}", ValueType("float", "rows", x.width)) for i, x in enumerate(aligned)]
        values, ints = iter(given[: len(tensors)]), iter(exprs)
        rows = fresh(
            builder, row_keys(), {x: next(ints) if x.kind == "int" else next(values) for x in self.inputs}
        )
        at = self.steps[0]
        try:
            for at in self.steps:
                rows.compute(at)
            made = builder.build([rows.row(x) for x in self.outputs])
        except (Refused, ProgramError) as error:
            raise at.error(f"{error} (the program is used at {here()})") from error
        self.layouts |= rows.layouts
        return made


class Blocks:
    """All blocks of a program by name. live: the steps that its results depend on."""

    def __init__(self, flow: Flow) -> None:
        self.live: set[Step] = set()
        _reach([x for x in flow.outputs if isinstance(x, Step)], self.live)
        for step in sorted(self.live, key=lambda s: s.name):
            _check(step)
        plan = Plan(flow, self.live)
        read = _read_outside(plan, flow, self.live)
        self.layers: dict[str, Block] = {}
        self._uses: dict[Step, tuple[Block, list[Step], list[Step]]] = {}
        shared: dict[Any, Block] = {}
        for steps in plan.blocks:
            inputs = _inputs(steps, numbers=steps[0] in plan.shared)
            outputs = [s for s in steps if s in read]
            key = plan.shared.get(steps[0])
            if key is None or key not in shared:
                block = Block(steps, inputs, outputs)
                self.layers[_name(block, self.layers)] = block
                shared[key] = block
            for step in steps:
                self._uses[step] = shared[key], inputs, outputs

    def computed(self, step: Step, operand: Callable[[Step], Any]) -> Mapping[Step, Any]:
        """The results of the block in which a step is."""
        block, inputs, outputs = self._uses[step]
        given = [operand(x) for x in inputs]
        for x, value in zip(inputs, given, strict=True):
            if isinstance(value, Tensor) and value.width != x.width:
                raise step.error(f"'{x.name}' has {x.width} numbers in the program and {value.width} here")
        by_step = dict(zip(block.inputs, given, strict=True))
        for reader in block.steps:
            if reader.op == "embedding" and isinstance(index := by_step.get(base(reader.args[1])), Integer):
                within_table(index, weight_of(reader.args[0]).values.shape[0])
        made = block(*given)
        return dict(zip(outputs, made if isinstance(made, list) else [made], strict=True))


def _reach(waiting: list[Step], found: set[Step]) -> None:
    while waiting:
        if (step := waiting.pop()) not in found:
            found.add(step)
            waiting.extend(step.operands)
            for body in (x for x in step.args if isinstance(x, Flow)):
                waiting.extend(x for x in body.outputs if isinstance(x, Step))


def _check(step: Step) -> None:
    """FrontendError for what can be told to have no counterpart before the program is used."""
    odd = [d for d in step.symbols if not d.isidentifier()]
    if odd and step.kind != "many":
        raise step.error(
            f"makes positions that no sequence of the instance has: a length of {odd[0]}; give the model a "
            "sequence with these positions"
        )
    if len(set(step.symbols)) < len(step.symbols):
        raise step.error(
            f"is of every pair of positions, {list(step.shape or ())}; attention is known, written as "
            "torch.nn.functional.scaled_dot_product_attention"
        )
    if is_row(step) and step.op not in HANDLED | {"getitem"} and weight_of(step) is None:
        raise step.error("has no counterpart here")


def _read_outside(plan: Plan, flow: Flow, live: Collection[Step]) -> set[Step]:
    """The steps in blocks that are read outside of theirs."""
    found: set[Step] = set()
    for step in live:
        for x in step.operands:
            if plan.block_of.get(base(x)) != plan.block_of.get(step):
                found.add(base(x))
    for each in plan.flows:
        found |= {base(x) for x in each.outputs if isinstance(x, Step)}
    return {x for x in found if x in plan.block_of}


def _inputs(steps: Sequence[Step], numbers: bool) -> list[Step]:
    """numbers: whether these are operands too, so that all uses of a layer are one function."""
    found: dict[Step, None] = {}
    for step in steps:
        for x in map(base, step.operands):
            if x not in steps and weight_of(x) is None and (numbers or number(x) is None):
                found[x] = None
    return [*(x for x in found if x.kind != "int"), *(x for x in found if x.kind == "int")]


def _name(block: Block, taken: Collection[str]) -> str:
    """After the module that has its parameters, or the first of those that have."""
    places = [weight_of(x).place for s in block.steps for x in s.operands if weight_of(x) is not None]
    common = os.path.commonprefix([p.split(".")[:-1] for p in places]) if places else []
    name = "_".join(common or (places[0].split(".")[:-1] if places else [])) or "rows"
    count = 1
    while (unique := name if count == 1 else f"{name}_{count}") in taken:
        count += 1
    return unique
