"""Simplification of state expressions, and the proofs that rest on it.

Sums are brought to a normal form (a constant plus integer multiples of terms, in a fixed order), so that
`(t + 1) - 1` and `t` become the same tree. Axioms of the instance's tables act as rewrite rules: an axiom
`child[parent[n], side[n]] == n` turns every instance of its left side into its right side, provided that its
variables stand for what lies within their extents. A closed, small theory is enough for the inverses that
graphs need, and it always terminates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amphw.ir.expr import Const, Expr, Field, Op, Table, fields_of, lift, substitute, to_json

Extents = Mapping[str, Expr]
"""Field -> its extent: the values of the field are known to be `0 <= v < extent`."""


@dataclass(frozen=True)
class Rule:
    """`left == right` for all values of the variables within their extents.

    variables: (name, extent); an extent may read the variables before it. None: the left side indexes a table
    of that extent with it, so whoever can read the left side at all stays within.
    """

    left: Expr
    right: Expr
    variables: tuple[tuple[str, Expr | None], ...]

    def rewritten(self, e: Expr, extents: Extents) -> Expr | None:
        """The right side for this `e`; None where the left side does not match, or says nothing of `e`."""
        binding = match(self.left, e, frozenset(name for name, _ in self.variables))
        if binding is None:
            return None
        for name, extent in self.variables:
            # Without this, `src[off[v] + j] == v` would "prove" that edges beyond v's own are v's too.
            if name not in binding:
                return None
            if extent is not None and not _within(binding[name], substitute(extent, binding), extents):
                return None
        return substitute(self.right, binding)


def _within(value: Expr, extent: Expr, extents: Extents) -> bool:
    """Whether `0 <= value < extent` is sure: a field of no larger extent, from either end, or constants."""
    from_end = simplify(Op("-", (Op("-", (extent, Const(1))), value)))
    for counted in (value, from_end):
        if isinstance(counted, Field) and counted.name in extents:
            more = simplify(Op("-", (extents[counted.name], extent)))
            return isinstance(more, Const) and more.value <= 0
    extent = simplify(extent)
    return isinstance(value, Const) and isinstance(extent, Const) and 0 <= value.value < extent.value


def simplify(e: Expr, rules: Sequence[Rule] = (), extents: Extents | None = None) -> Expr:
    """The normal form of `e` under integer arithmetic and the given rewrite rules.

    extents: of the fields in `e`; a rule applies only where they keep its variables within theirs.
    """
    for _ in range(16):  # each pass shortens or fixes the expression; 16 is far beyond any real nesting
        new = _pass(e, rules, extents or {})
        if new == e:
            break
        e = new
    return e


def _pass(e: Expr, rules: Sequence[Rule], extents: Extents) -> Expr:
    if isinstance(e, Table):
        e = Table(e.name, tuple(_pass(i, rules, extents) for i in e.index))
    elif isinstance(e, Op):
        e = _fold(Op(e.op, tuple(_pass(a, rules, extents) for a in e.args)))
    for rule in rules:
        new = rule.rewritten(e, extents)
        if new is not None:
            return new
    return e


def _fold(e: Op) -> Expr:
    a = e.args
    if e.op in {"+", "-"} or (e.op == "*" and any(isinstance(x, Const) for x in a)):
        return _from_terms(_terms(e))
    if e.op == "where":
        if isinstance(a[0], Const):
            return a[1] if a[0].value else a[2]
        return a[1] if a[1] == a[2] else e
    if e.op in {"==", "!=", "<", "<="}:
        difference = _from_terms(_add(_terms(a[0]), _terms(a[1]), -1))
        if isinstance(difference, Const):
            d = difference.value
            return lift({"==": d == 0, "!=": d != 0, "<": d < 0, "<=": d <= 0}[e.op])
        return e
    if e.op in {"//", "%"} and isinstance(a[1], Const) and a[1].value == 1:
        return a[0] if e.op == "//" else Const(0)
    if all(isinstance(x, Const) for x in a) and e.op in {"*", "//", "%", "min", "max"}:
        x, y = (c.value for c in a if isinstance(c, Const))
        if e.op in {"//", "%"} and y == 0:
            return e
        return Const(
            {
                "*": lambda: x * y,
                "//": lambda: x // y,
                "%": lambda: x % y,
                "min": lambda: min(x, y),
                "max": lambda: max(x, y),
            }[e.op]()
        )
    return a[0] if e.op in {"min", "max"} and a[0] == a[1] else e


Terms = dict[Expr | None, int]  # term -> integer factor; None is the constant


def _terms(e: Expr) -> Terms:
    if isinstance(e, Const):
        return {None: e.value}
    if isinstance(e, Op) and e.op in {"+", "-"}:
        return _add(_terms(e.args[0]), _terms(e.args[1]), 1 if e.op == "+" else -1)
    if isinstance(e, Op) and e.op == "*":
        for constant, other in (e.args, e.args[::-1]):
            if isinstance(constant, Const):
                return {t: k * constant.value for t, k in _terms(other).items()}
    return {e: 1}


def _add(a: Terms, b: Terms, factor: int) -> Terms:
    out = dict(a)
    for term, k in b.items():
        out[term] = out.get(term, 0) + factor * k
    return {t: k for t, k in out.items() if k}


def _from_terms(terms: Terms) -> Expr:
    constant = terms.get(None, 0)
    pieces = sorted(
        ((t, k) for t, k in terms.items() if t is not None and k),
        key=lambda p: (p[1] < 0, repr(to_json(p[0]))),
    )
    out: Expr | None = None
    for term, k in pieces:
        piece = term if abs(k) == 1 else Op("*", (term, Const(abs(k))))
        if out is None:
            out = piece if k > 0 else Op("*", (term, Const(k)))
        else:
            out = Op("+" if k > 0 else "-", (out, piece))
    if out is None:
        return Const(constant)
    if constant:
        out = Op("+" if constant > 0 else "-", (out, Const(abs(constant))))
    return out


def match(pattern: Expr, e: Expr, variables: frozenset[str]) -> dict[str, Expr] | None:
    """Bind the pattern's variables so that it equals `e`; None if it cannot."""
    binding: dict[str, Expr] = {}
    return binding if _match(pattern, e, variables, binding) else None


def _match(p: Expr, e: Expr, variables: frozenset[str], binding: dict[str, Expr]) -> bool:
    if isinstance(p, Field) and p.name in variables:
        if p.name in binding:
            return simplify(binding[p.name]) == simplify(e)
        binding[p.name] = e
        return True
    if isinstance(p, Table) and isinstance(e, Table) and p.name == e.name and len(p.index) == len(e.index):
        return all(_match(a, b, variables, binding) for a, b in zip(p.index, e.index, strict=True))
    if isinstance(p, Op) and p.op in {"+", "-"}:
        return _match_sum(p, e, variables, binding)
    if isinstance(p, Op) and isinstance(e, Op) and p.op == e.op and len(p.args) == len(e.args):
        return all(_match(a, b, variables, binding) for a, b in zip(p.args, e.args, strict=True))
    return p == e


def _match_sum(p: Expr, e: Expr, variables: frozenset[str], binding: dict[str, Expr]) -> bool:
    """A sum matches when its table terms do, and one lone variable takes what is left."""
    rest = _terms(e)
    lone: tuple[str, int] | None = None
    for term, k in _terms(p).items():
        if isinstance(term, Field) and term.name in variables and term.name not in binding:
            if lone is not None:
                return False
            lone = (term.name, k)
            continue
        wanted = term if term is None else substitute(term, binding)
        # A variable still open may have a field's name: what looks alike must be bound, not taken as it is.
        is_open = term is not None and bool((fields_of(term) & variables) - binding.keys())
        found = wanted if wanted in rest and not is_open else None
        if found is None and term is not None:
            for candidate in list(rest):
                trial = dict(binding)
                if candidate is not None and _match(term, candidate, variables, trial):
                    binding.update(trial)
                    found = candidate
                    break
        if found is None and term is not None and is_open:
            return False
        # What is bound may be a sum itself, whose terms are apart in what is matched.
        gone = {found: 1} if found is not None or wanted is None else _terms(simplify(wanted))
        rest = _add(rest, gone, -k)
    if lone is None:
        return not rest
    name, k = lone
    if abs(k) != 1:
        return False
    left = _from_terms({t: v * k for t, v in rest.items()})
    # A table term after the lone variable may have bound it too: both must agree.
    return simplify(binding.setdefault(name, left)) == simplify(left)


def equal(a: Expr, b: Expr, rules: Sequence[Rule] = (), extents: Extents | None = None) -> bool:
    """Whether both sides have the same normal form (sound as far as the rules are, not complete)."""
    return simplify(Op("-", (a, b)), rules, extents) == Const(0)


def inverse_holds(
    forward: Mapping[str, Expr],
    inverse: Mapping[str, Expr],
    rules: Sequence[Rule] = (),
    facts: Mapping[str, Expr] | None = None,
    extents: Extents | None = None,
) -> str | None:
    """Prove that `inverse` undoes `forward`; the name of the first field it fails for, or None.

    `facts` are field values known before the step (`t == length - 1` behind a Cond), `extents` those of the
    fields before it. An axiom's `where` is not proved: see `Axiom`.
    """
    known = dict(facts or {})
    for name, expression in inverse.items():
        image = simplify(substitute(expression, forward), rules, extents)
        target: Expr = Field(name)
        if equal(image, target, rules, extents):
            continue
        # A fact may rest on another one (r == t % 2 and t == 0), so they are applied once for each.
        for _ in known:
            image, target = substitute(image, known), substitute(target, known)
        if not equal(image, target, rules, extents):
            return name
    return None
