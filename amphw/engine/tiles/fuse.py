"""Fusing: several operations of a draft become one that does the same.

The derivatives of the primitives are written in primitives, so 1 - y comes as shift(scale(y, -1), 1), and so
on: the patterns below are how `amphw.ir.primitives` spells them. An operation disappears into its reader only
if nobody else reads it; `step` and columns that are spread may be read by several, since fusing them makes no
reader more expensive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from amphw.engine.tiles.draft import ZERO, Draft, Kind, Node, Row
from amphw.engine.tiles.operations import Op

Fused = Node | Row | None
"""What an instruction becomes: another one, a row that is there already, or what it was."""

COLUMN_OP = {Op.Add: Op.AddCol, Op.Sub: Op.SubCol, Op.Mul: Op.MulCol, Op.Div: Op.DivCol}

IDENTITY = {Op.Scale: 1.0, Op.Shift: 0.0}

WITH_PRODUCT = {Op.DSigmoid: Op.MulDSigmoid, Op.DTanh: Op.MulDTanh}


def fuse(draft: Draft) -> None:
    """Apply the patterns until none fits any more; then remove what is left without readers."""
    changed = True
    while changed:
        changed = False
        fuser = _Fuser(draft)
        for i in list(draft.nodes):
            if fuser.once(i):
                changed = True
                draft.sweep()
                fuser = _Fuser(draft)
    dissolve(draft)


def dissolve(draft: Draft) -> None:
    """Packs without a fixed place that are one piece need not be packed."""
    for i, node in list(draft.nodes.items()):
        if node.kind == Kind.Pack and node.base is None and len(node.args[0]) == 1:
            draft.replace(i, node.args[0])
    draft.sweep()


@dataclass
class _Fuser:
    draft: Draft

    def __post_init__(self) -> None:
        self.uses = self.draft.uses()
        self.rules: dict[Op, Callable[[Node], Fused]] = {
            Op.Add: self._add,
            Op.Sub: self._sub,
            Op.Mul: self._mul,
            Op.Div: self._with_column,
            Op.Relu: self._relu,
            Op.Exp: self._exp,
            Op.Pick: self._pick,
            Op.MaxCols: self._max,
            Op.Scale: self._chain,
            Op.Shift: self._chain,
            Op.SpreadCols: self._spread,
            Op.SumCols: self._sum,
            Op.DSigmoid: self._product_in_front,
            Op.DTanh: self._product_in_front,
        }

    def once(self, i: int) -> bool:
        """Fuse one node's operands into it -> whether there was anything to fuse."""
        node = self.draft.nodes.get(i)
        if node is None or node.op not in self.rules:
            return False
        fused = self.rules[node.op](node)
        if fused is None:
            return False
        if isinstance(fused, Node):
            self.draft.nodes[i] = fused
        else:
            self.draft.replace(i, fused)
        return True

    # --- what made an operand ---------------------------------------------------------------------

    def _made(self, row: Row, op: Op) -> Node | None:
        """The instruction of this kind whose whole result the operand is."""
        (p,) = row
        node = None if p.var == ZERO else self.draft.nodes[p.var]
        return node if node is not None and node.op == op and node.width == p.width else None

    def _alone(self, row: Row, op: Op, f: float | None = None) -> Node | None:
        """Likewise, if nobody else reads it (an instruction may read it in two of its operands)."""
        node = self._made(row, op)
        if node is None or (f is not None and node.f != f):
            return None
        return node if len({u.reader for u in self.uses[row[0].var]}) == 1 else None

    def _column(self, row: Row) -> Row | None:
        """The column that the operand repeats."""
        (p,) = row
        node = None if p.var == ZERO else self.draft.nodes[p.var]
        return node.args[0] if node is not None and node.op == Op.SpreadCols else None

    def _rest_to_one(self, row: Row) -> Row | None:
        """x where the operand is 1 - x and nobody else reads it."""
        shifted = self._alone(row, Op.Shift, 1.0)
        negative = self._alone(shifted.args[0], Op.Scale, -1.0) if shifted else None
        return negative.args[0] if negative else None

    # --- patterns ---------------------------------------------------------------------------------

    def _with_column(self, node: Node) -> Fused:
        a, b = node.args
        assert node.op is not None
        column = self._column(b)
        if column is None and node.op in (Op.Add, Op.Mul):
            column, a = self._column(a), b
        return None if column is None else replace(node, op=COLUMN_OP[node.op], args=(a, column))

    def _add(self, node: Node) -> Fused:
        a, b = node.args
        for x, y in ((a, b), (b, a)):
            if negative := self._alone(y, Op.Scale, -1.0):
                return replace(node, op=Op.Sub, args=(x, negative.args[0]))
        if (column := self._with_column(node)) is not None:
            return column
        for x, y in ((a, b), (b, a)):
            if placed := self._alone(y, Op.Place):
                return replace(node, op=Op.AddAt, args=(x, placed.args[0]), ints=placed.ints)
        for x, y in ((a, b), (b, a)):
            if x != y and (product := self._alone(y, Op.Mul)):
                return replace(node, op=Op.Fma, args=(*product.args, x))
        return None

    def _sub(self, node: Node) -> Fused:
        a, b = node.args
        if negative := self._alone(b, Op.Scale, -1.0):
            return replace(node, op=Op.Add, args=(a, negative.args[0]))
        return self._with_column(node)

    def _mul(self, node: Node) -> Fused:
        a, b = node.args
        for x, y in ((a, b), (b, a)):
            if step := self._made(y, Op.Step):
                return replace(node, op=Op.MulStep, args=(x, step.args[0]))
            if (of := self._d_sigmoid(y)) is not None:
                return replace(node, op=Op.DSigmoid, args=(x, of))
            if (of := self._d_tanh(y)) is not None:
                return replace(node, op=Op.DTanh, args=(x, of))
        return self._with_column(node)

    def _d_sigmoid(self, row: Row) -> Row | None:
        """y where the operand is y * (1 - y)."""
        product = self._alone(row, Op.Mul)
        if product is not None:
            a, b = product.args
            for x, y in ((a, b), (b, a)):
                if self._rest_to_one(y) == x:
                    return x
        return None

    def _d_tanh(self, row: Row) -> Row | None:
        """y where the operand is 1 - y * y."""
        square = self._rest_to_one(row)
        product = self._alone(square, Op.Mul) if square is not None else None
        return product.args[0] if product is not None and product.args[0] == product.args[1] else None

    def _product_in_front(self, node: Node) -> Fused:
        a, y = node.args
        product = self._alone(a, Op.Mul)
        if product is None or a == y:
            return None
        assert node.op is not None
        return replace(node, op=WITH_PRODUCT[node.op], args=(*product.args, y))

    def _relu(self, node: Node) -> Fused:
        total = self._alone(node.args[0], Op.Add)
        return replace(node, op=Op.AddRelu, args=total.args) if total else None

    def _exp(self, node: Node) -> Fused:
        for op, fused in ((Op.Sub, Op.ExpSub), (Op.SubCol, Op.ExpSubCol)):
            if difference := self._alone(node.args[0], op):
                return replace(node, op=fused, args=difference.args)
        return None

    def _pick(self, node: Node) -> Fused:
        """A column of a difference needs no others: a logarithm of a softmax is not made for one class."""
        difference = self._made(node.args[0], Op.SubCol)
        if difference is None:
            return None
        a, column = difference.args
        picked = self.draft.instr(Op.Pick, node.space, 1, [a], ints=node.ints)
        return replace(node, op=Op.Sub, args=(picked, column), ints=())

    def _max(self, node: Node) -> Fused:
        """Where the maximum's column is found anyway, the maximum is what stands there."""
        for slot, maker in self.draft.int_maker.items():
            found = self.draft.nodes.get(maker)
            if found is not None and found.op == Op.Argmax and found.args == node.args:
                return replace(node, op=Op.Pick, ints=(slot,))
        return None

    def _chain(self, node: Node) -> Fused:
        (a,) = node.args
        assert node.op is not None
        if node.f == IDENTITY[node.op]:
            return a
        inner = self._made(a, node.op)
        if inner is None:
            return None
        f = node.f * inner.f if node.op == Op.Scale else node.f + inner.f
        return replace(node, args=inner.args, f=f)

    def _spread(self, node: Node) -> Fused:
        return node.args[0] if node.width == 1 else None

    def _sum(self, node: Node) -> Fused:
        """Sums of columns that are known without adding them up."""
        (a,) = node.args
        if placed := self._made(a, Op.Place):
            return placed.args[0]
        if (column := self._column(a)) is not None:
            return self.draft.instr(Op.Scale, node.space, 1, [column], float(a[0].width))
        scaled = self._alone(a, Op.Scale)
        if scaled is None:
            return None
        total = self.draft.instr(Op.SumCols, node.space, 1, scaled.args)
        return self.draft.instr(Op.Scale, node.space, 1, [total], scaled.f)
