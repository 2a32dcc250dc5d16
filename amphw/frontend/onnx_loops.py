"""Operators of ONNX with bodies: `Scan`, `If` and `Loop`, and recurrent layers, which are loops here."""

from __future__ import annotations

from typing import Any

import numpy as np

from amphw.frontend.flow import Flow, Step


def _front(n: Any, x: Step, axis: int) -> Step:
    """The same with one dimension before all others."""
    rank = len(x.shape or ())
    axis %= rank
    if axis == 0:
        return x
    order = [axis, *(k for k in range(rank) if k != axis)]
    return n.emit("permute", x, order, shape=tuple((x.shape or ())[k] for k in order))


def _back(n: Any, x: Step, axis: int) -> Step:
    rank = len(x.shape or ())
    axis %= rank
    if axis == 0:
        return x
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    return n.emit("permute", x, order, shape=tuple((x.shape or ())[k] for k in order))


def _results(n: Any, op: str, args: Any, shapes: list[Any]) -> list[Step]:
    """Each result of a step that has several."""
    many = n.emit(op, *args, shape=(), kind="many")
    many.shape = None
    return [n.emit("getitem", many, k, shape=shape, kind="float") for k, shape in enumerate(shapes)]


def _checked(n: Any, step: Any, what: str) -> Any:
    if step.shape is None:
        raise n.error(f"the shape of {what} cannot be deduced")
    return step.shape


def scan(n: Any) -> list[Any]:
    """Along the dimensions that it names, first to last or last to first."""
    body, count = n.attribute("body"), int(n.attribute("num_scan_inputs"))
    states = len(n.given) - count
    init = [n.value(k) for k in range(states)]
    axes = n.attribute("scan_input_axes") or [0] * count
    ways = n.attribute("scan_input_directions") or [0] * count
    xs = [_front(n, n.value(states + k), int(axes[k])) for k in range(count)]
    length = (xs[0].shape or (0,))[0]
    if isinstance(length, int):
        raise n.error(f"goes over a length of {length}; give the dimension a name in the inputs of the graph")
    if any((x.shape or (0,))[0] != length for x in xs):
        raise n.error("goes over several lengths at once")
    xs = [n.emit("flip", x, [0], shape=x.shape) if way else x for x, way in zip(xs, ways, strict=True)]
    flow = n.flow(body)
    shapes = [_checked(n, o, "what its body makes") for o in flow.outputs]
    made = _results(n, "scan", (flow, init, xs), [*shapes[:states], *((length, *s) for s in shapes[states:])])
    outs = len(made) - states
    axes = n.attribute("scan_output_axes") or [0] * outs
    ways = n.attribute("scan_output_directions") or [0] * outs
    ys = [n.emit("flip", y, [0], shape=y.shape) if w else y for y, w in zip(made[states:], ways, strict=True)]
    return [*made[:states], *(_back(n, y, int(axis)) for y, axis in zip(ys, axes, strict=True))]


def if_(n: Any) -> list[Any]:
    """Only one branch is computed; of a constant condition the other one is not there at all."""
    condition = n.given[0]
    if not isinstance(condition, Step):
        chosen = "then_branch" if bool(np.asarray(condition).item()) else "else_branch"
        return list(n.inline(n.attribute(chosen)))
    flows = [n.flow(n.attribute(name)) for name in ("then_branch", "else_branch")]
    shapes = [o.shape for o in flows[0].outputs]
    if shapes != [o.shape for o in flows[1].outputs]:
        raise n.error("has branches with results of different shapes")
    return list(_results(n, "cond", (condition, *flows), shapes))


_ENDLESS = 2**31
"""Turns that stand for no limit at all."""


def loop(n: Any) -> list[Any]:
    """A loop that ends when the network says so, or after a number of turns."""
    body = n.attribute("body")
    trips = n.given[0] if n.has(0) else None
    if trips is not None and (isinstance(trips, Step) or np.asarray(trips).dtype == object):
        return _over(n, body)
    limit = None if trips is None else int(np.asarray(trips).item())
    if limit is not None and limit >= _ENDLESS:
        limit = None
    goes = n.given[1] if n.has(1) else np.asarray(True)
    if not isinstance(goes, Step) and not bool(np.asarray(goes).item()):
        return [n.given[k] for k in range(2, len(n.given))]
    init = [n.value(k) for k in range(2, len(n.given))]
    flow = n.flow(body, counted=True)
    carried = len(init)
    if len(flow.outputs) > 1 + carried:
        raise n.error(
            "collects a result of every turn, of which nobody knows how many there are; a Scan does that"
        )
    shapes = [x.shape for x in init]
    if shapes != [o.shape for o in flow.outputs[1:]]:
        raise n.error("carries values whose shapes change")
    count = n.number(0)
    begin = goes if isinstance(goes, Step) else n.number(1)
    # The body begins with its turn and whether it goes on: both are carried, as numbers.
    turn, again = flow.inputs[:2]
    up = Step("turn", "add", (turn, 1), {}, (), "float")
    turned = Flow(flow.inputs, [*flow.steps, up], [up, *flow.outputs])
    asked = [Step(f"{x.name}_asked", "input", (), {}, x.shape, x.kind) for x in flow.inputs]
    test: list[Step] = []
    if limit is not None:
        test.append(Step("below", "lt", (asked[0], limit), {}, (), "float"))
        test.append(Step("goes_on", "logical_and", (test[0], asked[1]), {}, (), "float"))
    condition = Flow(asked, test, [test[-1] if test else asked[1]])
    made = _results(n, "while_loop", (condition, turned, [count, begin, *init]), [(), (), *shapes])
    return list(made[2:])


def _over(n: Any, body: Any) -> list[Any]:
    """A loop with a turn for each position of a length: what it gathers by its turn is gone through."""
    if n.has(1) and (isinstance(n.given[1], Step) or not bool(np.asarray(n.given[1]).item())):
        raise n.error("goes over a length and may end earlier; a Scan with a condition inside does that")
    length = n.length(0)
    init = [n.value(k) for k in range(2, len(n.given))]
    flow = n.flow(body)
    turn, again = flow.inputs[:2]
    end = flow.outputs[0]
    if end is not again and not (end.op == "clone" and end.args[0] is again) and end.op != "number":
        raise n.error("goes over a length and may end earlier; a Scan with a condition inside does that")
    xs, inputs = [], []
    for step in [*flow.steps]:
        if turn not in step.operands:
            continue
        source, place = (step.args[0], step.args[1]) if step.op in ("index", "select") else (None, None)
        at = place.index(turn) if isinstance(place, list) and turn in place else None
        if source is None or at is None or (source.shape or ())[at] != length:
            raise n.error(f"computes with its turn, in {step.shown}; it may gather by it along '{length}'")
        flow.steps.remove(step)
        xs.append(_front(n, source, at))
        step.op, step.args = "input", ()
        inputs.append(step)
    if not xs:
        raise n.error(f"has a turn for each of '{length}' and reads nothing by it")
    # Whether it goes on is not asked, so nothing may be left that computes with it.
    each = Flow(
        [*flow.inputs[2:], *inputs], [x for x in flow.steps if again not in x.operands], flow.outputs[1:]
    )
    shapes = [o.shape for o in each.outputs]
    return list(
        _results(
            n, "scan", (each, init, xs), [*shapes[: len(init)], *((length, *s) for s in shapes[len(init) :])]
        )
    )


# --- recurrent layers -----------------------------------------------------------------------------------

_GATES = {
    "LSTM": ("lstm_cell", "iofc", "ifco"),
    "GRU": ("gru_cell", "zrh", "rzh"),
    "RNN": ("rnn_tanh_cell", "h", "h"),
}
"""The cell as PyTorch has it, and the order of the gates, ONNX's and PyTorch's."""


def recurrent(n: Any) -> list[Any]:
    """An `LSTM`, `GRU` or `RNN`: a scan for each direction, with a cell that has its parameters."""
    kind = n.kind
    cell, theirs, ours = _GATES[kind]
    _plain(n, kind, 2 if n.attribute("direction") == "bidirectional" else 1)
    x = _front(n, n.value(0), 1) if n.attribute("layout", 0) else n.value(0)
    length, batch, wide = x.shape or (0, 0, 0)
    hidden, way = int(n.attribute("hidden_size")), n.attribute("direction", "forward")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[way]
    order = np.concatenate([np.arange(hidden) + hidden * theirs.index(gate) for gate in ours])
    results = []
    for d, turned in enumerate(ways):
        suffix = f"{'_reverse' if turned else ''}"
        weights = _weights(n, d, order, suffix)
        init = [_initial(n, k, d, (batch, hidden)) for k in ((5, 6) if kind == "LSTM" else (5,))]
        over = n.emit("flip", x, [0], shape=x.shape) if turned else x
        given = [Step(f"h{k}", "input", (), {}, (batch, hidden)) for k in range(len(init))]
        item = Step("x", "input", (), {}, (batch, wide))
        state = given if kind == "LSTM" else given[0]
        step = Step(
            f"{cell}{suffix}", cell, (item, state, *weights), {}, (batch, hidden), "float", None, n.shown
        )
        steps, after = [step], [step]
        if kind == "LSTM":
            step.kind, step.shape = "many", None
            after = [Step(f"state{k}", "getitem", (step, k), {}, (batch, hidden)) for k in range(2)]
            steps += after
        flow = Flow([*given, item], steps, [*after, after[0]])
        shapes = [(batch, hidden)] * len(init) + [(length, batch, hidden)]
        made = _results(n, "scan", (flow, init, [over]), shapes)
        if turned:
            made[-1] = n.emit("flip", made[-1], [0], shape=made[-1].shape)
        results.append(made)
    return _joined(n, results, (length, batch, hidden))


def _plain(n: Any, kind: str, directions: int) -> None:
    usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]
    given = [a.decode() if isinstance(a, bytes) else a for a in n.attribute("activations") or []]
    if given and given != usual * directions:
        raise n.error(
            f"with the activations {', '.join(given)} has no counterpart here; {', '.join(usual)} have"
        )
    if kind == "GRU" and not n.attribute("linear_before_reset", 0):
        raise n.error("resets before the product; linear_before_reset=1 is known, as PyTorch's")
    for name in ("clip", "input_forget"):
        if n.attribute(name, 0):
            raise n.error(f"with {name} has no counterpart here")
    if n.has(7):
        raise n.error("with peepholes has no counterpart here")
    if n.has(4):
        raise n.error(
            "with lengths of its own has no counterpart here; an instance has as many positions as it has"
        )


def _weights(n: Any, d: int, order: np.ndarray, suffix: str) -> list[Any]:
    """Weights and biases of one direction in PyTorch's order: parameters of their own."""
    found = []
    for k, name in ((1, "W"), (2, "R")):
        held = n.initializer(k)
        found.append(n.parameter(f"{n.label}_{name}{suffix}", held[d][order]))
    if not n.has(3):
        return [*found, None, None]
    b = n.initializer(3)[d]
    return [
        *found,
        *(
            n.parameter(f"{n.label}_{m}{suffix}", part[order])
            for m, part in zip(("Wb", "Rb"), np.split(b, 2), strict=True)
        ),
    ]


def _initial(n: Any, k: int, d: int, shape: Any) -> Step:
    if not n.has(k):
        return Step(f"zeros{k}", "number", (0.0,), {}, shape)
    x = n.value(k)
    if x.op == "number":
        return Step(f"start{k}", "number", x.args, {}, shape)
    return n.emit("select", x, 0, d, shape=shape)


def _joined(n: Any, results: list[list[Step]], shape: Any) -> list[Any]:
    """Y [length, directions, batch, hidden], Y_h and, of an LSTM, Y_c [directions, batch, hidden]."""
    length, batch, hidden = shape
    ways = len(results)
    ys = [n.emit("unsqueeze", r[-1], 1, shape=(length, 1, batch, hidden)) for r in results]
    made = [ys[0] if ways == 1 else n.emit("cat", ys, 1, shape=(length, ways, batch, hidden))]
    for k in range(len(results[0]) - 1):
        ends = [n.emit("unsqueeze", r[k], 0, shape=(1, batch, hidden)) for r in results]
        made.append(ends[0] if ways == 1 else n.emit("cat", ends, 0, shape=(ways, batch, hidden)))
    if n.attribute("layout", 0):
        made = [
            n.emit("permute", made[0], [2, 0, 1, 3], shape=(batch, length, ways, hidden)),
            *(n.emit("permute", x, [1, 0, 2], shape=(batch, ways, hidden)) for x in made[1:]),
        ]
    return made
