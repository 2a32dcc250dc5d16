"""Folding a tree from the leaves to the root."""

from __future__ import annotations

from typing import Any

from amphw.frontend.branches import Branch
from amphw.frontend.gather import pick
from amphw.frontend.index import Choice, Context, union, without
from amphw.frontend.integer import items_of
from amphw.frontend.source import FrontendError, called
from amphw.frontend.spec import SequenceValue
from amphw.frontend.tensor import Tensor, messages, spread, ungroup
from amphw.frontend.trace import current, trials
from amphw.frontend.tree_spec import Shape, TreeValue
from amphw.frontend.values import Rename, leaves, like, renamed, shape
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.expr import Field
from amphw.ir.grouping import Group
from amphw.ir.routing import Cond, Discard, Isu, Phi
from amphw.ir.state import state_field


def fold_tree(leaf: Any, branch: Branch, tree: TreeValue | SequenceValue) -> Any:
    """From the leaves to the root -> a value for each node of the tree; `root(h, tree)` is that of the root.

    leaf: a value for each leaf, or a function of the leaf's parts. branch: `branch(left, right)` for a tree
    of arity 2, else `branch(children)`, whose value has a row for each child; it returns what `leaf` does.
    Where both are (or return) several values, the first is what goes up the tree; all are returned.
    """
    tree = _tree(tree)
    s, trace = tree._shape, current()
    w, n = s.w, s.n
    given = called("what is made of a leaf", leaf, tree.leaf) if callable(leaf) else leaf
    below = leaves(given)
    for x in below:
        if x.rows is not w and w not in x.context:
            raise FrontendError(
                f"{tree!r} is folded from values of its leaves, and {x!r} is none for each of them; read a "
                "part of this very tree, such as `tree.word`, or let `leaf` be a function of a leaf"
            )
    with trace.region("tree", "loop"):
        below = [renamed(x, Rename(w, n, w.at, n.at)) for x in below]
        context = union(*(x.context for x in below), (n,))
        for _ in trials():
            with trace.trial():
                _, above, inner = _nodes(s, below, branch, context)
                # What goes up the tree depends on all that a branch depends on.
                wider = union(context, *(without(messages(x), inner) for x in leaves(above)))
            if wider == context:
                break
            context = wider
        else:
            raise FrontendError(
                "what a branch returns depends on more at every node, such as on each of its children; "
                "reduce it to one value"
            )
        values, above, inner = _nodes(s, below, branch, context)
        if shape(above) != shape(given):
            raise FrontendError(f"a leaf gives widths {shape(given)}, a branch returns {shape(above)}")
        for value, first, x in zip(values, below, leaves(above), strict=True):
            x = spread(ungroup(x) if x.rows else x, union(context, (inner,)))
            sources = {"leaf": spread(first, context).port, "branch": x.port}
            trace.emit(Phi(value.port[0], ("leaf", "branch")), sources)
    inner.closed = True
    return like(given, values)


def _tree(value: Any) -> TreeValue:
    value = items_of(value)
    if not isinstance(value, TreeValue):
        raise FrontendError(f"expected a tree of the instance, or a sequence of trees, got {value!r}")
    return value


def _nodes(
    s: Shape, below: list[Tensor], branch: Branch, context: Context
) -> tuple[list[Tensor], Any, Choice]:
    """The values of all nodes in a context; what `branch` gives for inner ones, and that they are such."""
    trace, n = current(), s.n
    values = [Tensor((trace.name("node"), "out"), x.width, context) for x in below]
    up = trace.emit(Cond(trace.name("root?"), n.at.eq(s.root.expr)), {"in": values[0].port})
    trace.emit(Discard(trace.name("top")), {"in": (up, "yes")})
    # What a branch computes exists for inner nodes alone; so must what it reads from outside.
    (inner,) = trace.choice("inner?", n.at >= s.w.extent, 2, (n,))[1:]
    with trace.within(inner):
        risen = Tensor((up, "no"), values[0].width, union(context, (inner,)))
        above = called("the branch of a tree", branch, *(_two if s.arity == 2 else _any)(s, risen))
    return values, above, inner


def _two(s: Shape, x: Tensor) -> list[Tensor]:
    """Both children of a node, under its number."""
    trace, n = current(), s.n
    side = state_field(trace.name("side"), 2)
    # The parent's number takes the place of the child's: `child` reads the new state.
    rise = StateMap(
        set={n.name: s.parent(n.at)},
        add=((side, s.place(n.at)),),
        inverse={n.name: s.child(n.at, Field(side.name))},
    )
    risen = trace.emit(Isu(trace.name("rise"), rise), {"in": x.port})
    sides = Cond(trace.name("side?"), Field(side.name), ("left", "right"), (side.name,))
    trace.emit(sides, {"in": (risen, "out")})
    return [Tensor((sides.name, port), x.width, x.context) for port in ("left", "right")]


def _any(s: Shape, x: Tensor) -> list[Tensor]:
    """All children of a node as the rows of one message."""
    trace, n = current(), s.n
    j = trace.dim("j", s.count(n.at), s.n.bound, f"child of a node of '{s.name}'", needs=(n,))
    arrive = StateMap(set={n.name: s.parent(n.at)}, inverse={n.name: s.child(n.at, Field(MEMBER))})
    group = Group(trace.name("children"), arrive, s.place(n.at), s.count(n.at))
    trace.emit(group, {"in": x.port})
    return [Tensor((group.name, "out"), x.width, x.context, j)]


def root(h: Tensor, tree: TreeValue | SequenceValue) -> Tensor:
    """The value of the root, of a value for each node."""
    shape = _tree(tree)._shape
    return pick(h, shape.root, shape.n)
