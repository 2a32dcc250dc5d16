"""What a message does, message by message: the semantics behind the reference executor.

Dictionaries keyed by state tuples, so that the code says what is meant and nothing else. It counts what the
invariant demands (every forward message comes back exactly once), raises on a state that occurs twice at a
port, and sends a gradient back by remembering which firing emitted what, whatever a state map's inverse
claims.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from amphw.ir.behaviour import Behaviour, Emit
from amphw.ir.check import Typed, infer
from amphw.ir.derive import Derivative, accumulate_terms, differentiate, inference
from amphw.ir.device import DeviceOptions, Direction, Mode, Report, Statistics
from amphw.ir.errors import ExecutionError, NonFiniteError
from amphw.ir.expr import evaluate
from amphw.ir.graph import Graph
from amphw.ir.in_flight import Active, Fired, Firing, Message, Pending, Probe, State
from amphw.ir.instance import Instance
from amphw.ir.instance_check import check_instance
from amphw.ir.one_state import check_domain, data_rows, expanded, one, rows_of, scalar
from amphw.ir.precision import product_of
from amphw.ir.update import UpdateRule, initial_parameters


class Interpreter:
    """A checked graph with its parameters and the messages in flight. Who delivers which message when is left
    to a subclass. probe: is told what every firing computed, for whoever compares executors."""

    def __init__(self, dtype: type = np.float32):
        self.dtype = dtype
        self.probe: Probe | None = None

    def open(self, graph: Graph, rules: Mapping[str, UpdateRule], options: DeviceOptions) -> None:
        """Check the graph and start without any instance."""
        self.graph, self.options = graph, options
        self.typed: Typed = infer(graph)
        self.product = product_of(options.settings)
        owners = {n: graph.nodes[n].params for n in graph.parameterised}
        self.params = initial_parameters(owners, dict(rules), options.seed, self.dtype)
        self.derivatives: dict[str, Derivative] = {}
        self.inference = {}
        for name, b in self.typed.behaviours.items():
            if b.program is not None:
                self.derivatives[name] = differentiate(b.program)
                self.inference[name] = inference(b.program)
        self.queue: deque[Message] = deque()
        self.pending: dict[Firing, Pending] = {}
        self.fired: dict[Firing, Fired] = {}
        self.emitted: dict[tuple[str, str, int, State], Firing] = {}
        self.seen: dict[int, set[tuple[str, str, State]]] = {}
        self.active: dict[int, Active] = {}
        self.done: list[Report] = []
        self.stats = Statistics(busy=[0.0])
        self.returned: dict[tuple[str, str], int] = {}
        self.sent: dict[tuple[str, str], int] = {}

    def pump(self, slot: int, generation: int, instance: Instance, mode: Mode) -> None:
        """Let the sources send the messages of an instance."""
        if slot in self.active:
            raise ExecutionError(f"slot {slot} still holds instance {self.active[slot].instance.number}")
        check_instance(self.graph.schema, instance)
        self.active[slot] = Active(instance, mode, Report(slot, generation, instance.number, mode), 1)
        self.seen[slot] = set()
        for name, b in self.typed.behaviours.items():
            if b.is_source:
                self._emit(name, b, slot, (), [], None)
        self._settle(slot, 1)

    def deliver(self, message: Message) -> None:
        """One message reaches its node."""
        if message.direction is Direction.FORWARD:
            self._forward(message)
        else:
            self._backward(message)

    def firing_of(self, m: Message) -> Firing:
        """The firing that a message which has not been delivered is for."""
        if m.direction is Direction.BACKWARD:
            return self.emitted[m.node, m.port, m.slot, m.state]
        b = self.typed.behaviours[m.node]
        receive = next(r for r in b.receives if r.port == m.port)
        incoming = self.typed.into(m.node, m.port).state
        instance, key = self.active[m.slot].instance, dict(receive.key)
        state = tuple(scalar(key[name], instance, incoming, m.state) for name in b.state.names)
        return m.node, m.slot, state

    def apply_update(self, name: str) -> None:
        """An UPDATE message: the node applies what it has accumulated."""
        self.params[name].update()
        self.stats.updates += 1

    def _self_update(self, name: str) -> None:
        """The node's interval is complete."""
        self.apply_update(name)

    # --- forward ----------------------------------------------------------------------------------

    def _forward(self, m: Message) -> None:
        b = self.typed.behaviours[m.node]
        active = self.active[m.slot]
        if (m.node, m.port, m.state) in self.seen[m.slot]:
            raise ExecutionError(
                f"node '{m.node}' port '{m.port}': instance {active.instance.number} brings the state "
                f"{m.state} a second time; a loop or region must add a field that tells the two apart"
            )
        self.seen[m.slot].add((m.node, m.port, m.state))
        receive = next(r for r in b.receives if r.port == m.port)
        incoming = self.typed.into(m.node, m.port).state
        firing = self.firing_of(m)
        if b.any_port:
            self._fire(firing, b, {m.port: {0: (m.state, m.payload)}})
            return
        position = 0
        if receive.member is not None:
            position = scalar(receive.member, active.instance, incoming, m.state)
        pending = self.pending.setdefault(firing, Pending())
        slot = pending.operands.setdefault(m.port, {})
        if position in slot:
            raise ExecutionError(
                f"node '{m.node}' port '{m.port}': two members at position {position} of group {firing[2]}"
            )
        slot[position] = (m.state, m.payload)
        if self._complete(b, firing, pending):
            del self.pending[firing]
            self._fire(firing, b, pending.operands)

    def _complete(self, b: Behaviour, firing: Firing, pending: Pending) -> bool:
        instance = self.active[firing[1]].instance
        for r in b.receives:
            have = pending.operands.get(r.port, {})
            count = 1 if r.count is None else scalar(r.count, instance, b.state, firing[2])
            outside = [p for p in have if not 0 <= p < count]
            if r.count is not None and outside:
                raise ExecutionError(
                    f"node '{firing[0]}' port '{r.port}': member {outside[0]} of a group of {count}, state "
                    f"{firing[2]}; its `member` and `count` must agree"
                )
            if len(have) < count:
                return False
        return True

    def _fire(
        self, firing: Firing, b: Behaviour, operands: dict[str, dict[int, tuple[State, np.ndarray]]]
    ) -> None:
        name, slot, state = firing
        active = self.active[slot]
        ordered = [
            (r.port, [operands.get(r.port, {})[i] for i in sorted(operands.get(r.port, {}))])
            for r in b.receives
            if not b.any_port or r.port in operands
        ]
        width = {r.port: self.typed.into(name, r.port).width for r in b.receives}
        inputs = [
            np.concatenate([p for _, p in messages]) if messages else np.zeros((0, width[port]), self.dtype)
            for port, messages in ordered
        ]
        context, ints = rows_of(b, active.instance, state, self.dtype, self.product)
        version = self.params[name].version if name in self.params else 0
        record = Fired(
            [(port, s, len(p)) for port, messages in ordered for s, p in messages],
            context,
            ints,
            [],
            [],
            version,
        )
        outputs = inputs
        if b.program is not None:
            outputs = self._run_forward(name, b, active, record, inputs)
            if self.probe is not None:
                self.probe(Direction.FORWARD, firing, outputs)
        elif b.any_port:
            outputs = [inputs[0]]
        if active.mode is Mode.TRAIN:
            if firing in self.fired:
                raise ExecutionError(
                    f"node '{name}' fires twice for state {state} of instance {active.instance.number}; "
                    "what leads here must add a field that tells the two apart (a Phi: its site)"
                )
            self.fired[firing] = record
        decided = {f.name: int(outputs[k][0]) for f, k in b.decides}
        self._emit(name, b, slot, state, outputs, record, decided)
        if b.report:
            self._report(name, b, active, state, outputs)
        if active.mode is not Mode.TRAIN:
            self._settle(slot, len(record.operands))
        elif not record.expected:
            self._return(firing, b, record)

    def _run_forward(
        self, name: str, b: Behaviour, active: Active, record: Fired, inputs: list[np.ndarray]
    ) -> list[np.ndarray]:
        assert b.program is not None
        values = self.params[name].values if name in self.params else {}
        if active.mode is not Mode.TRAIN:
            return self.inference[name].run(record.context, inputs, record.ints, values)
        d = self.derivatives[name]
        got = d.forward.run(record.context, inputs, record.ints, values)
        n = len(b.program.outputs)
        outputs, further = got[:n], got[n:]
        for k, y in enumerate(outputs):
            if y.dtype.kind == "f" and not np.isfinite(y).all():
                raise NonFiniteError(name, "forward", f"output {k}")
        kept = {"input": inputs, "output": outputs, "value": further}
        record.residuals = [kept[kind][i] for kind, i in d.residuals]
        record.outputs = outputs
        return outputs

    def _emit(
        self,
        name: str,
        b: Behaviour,
        slot: int,
        state: State,
        outputs: list[np.ndarray],
        record: Fired | None,
        decided: Mapping[str, int] | None = None,
    ) -> None:
        active = self.active[slot]
        base = {**dict(zip(b.state.names, state, strict=True)), **(decided or {})}
        before = active.outstanding
        for number, emit in enumerate(b.emits):
            for copy, columns in enumerate(expanded(emit, active.instance, base)):
                env = one(active.instance, columns)
                if emit.guard is not None and not evaluate(emit.guard, env)[0]:
                    continue
                edge = self.typed.edges[(name, emit.port)]
                values = dict(emit.state)
                new = tuple(int(evaluate(values[n], env)[0]) for n in edge.state.names)
                check_domain(edge.state, new, active.instance, name, emit.port)
                payload = self._payload(name, b, emit, slot, new, outputs, copy)
                target, port = self.graph.edges[(name, emit.port)]
                self.queue.append(Message(Direction.FORWARD, target, port, slot, new, payload))
                active.outstanding += 1
                self.stats.forward += active.mode is Mode.TRAIN
                self.sent[(name, emit.port)] = self.sent.get((name, emit.port), 0) + 1
                if record is not None and active.mode is Mode.TRAIN:
                    if (emit.port, new) in record.expected:
                        raise ExecutionError(
                            f"node '{name}' port '{emit.port}': the state {new} is emitted twice by one "
                            "firing"
                        )
                    record.expected[(emit.port, new)] = (number, copy)
                    self.emitted[(name, emit.port, slot, new)] = (name, slot, state)
        guards = [emit.guard for emit in b.emits if emit.guard is not None]
        if active.outstanding == before and not b.is_source and len(guards) == len(b.emits) > 0:
            choices = ", ".join(map(str, guards))
            raise ExecutionError(
                f"node '{name}': no out-port takes the message of instance {active.instance.number} with "
                f"state {base} (the choices: {choices}); give every value of its index a port"
            )

    def _payload(
        self,
        name: str,
        b: Behaviour,
        emit: Emit,
        slot: int,
        state: State,
        outputs: list[np.ndarray],
        copy: int,
    ) -> np.ndarray:
        if not b.is_source:
            value = outputs[emit.value]
            return value[copy : copy + 1] if emit.by_row else value
        edge, instance = self.typed.edges[(name, emit.port)], self.active[slot].instance
        rows = scalar(edge.rows, instance, edge.state, state)
        if emit.data is None:
            return np.zeros((rows, 0), self.dtype)
        return data_rows(emit.data, rows, edge, instance, state, name).astype(self.dtype, copy=False)

    def _report(
        self, name: str, b: Behaviour, active: Active, state: State, outputs: list[np.ndarray]
    ) -> None:
        sums = active.report.sums.setdefault(b.told, dict.fromkeys(b.report, 0.0))
        for label, value in zip(b.report, outputs, strict=True):
            sums[label] += float(value.sum(dtype=np.float64))
            if active.mode is Mode.PREDICT:
                active.parts.setdefault((b.told, label), []).append((state, value))
        active.report.rows[b.told] = active.report.rows.get(b.told, 0) + len(outputs[0])

    # --- backward ---------------------------------------------------------------------------------

    def _backward(self, m: Message) -> None:
        identity = (m.node, m.port, m.slot, m.state)
        firing = self.emitted.pop(identity, None)
        if firing is None:
            raise ExecutionError(
                f"node '{m.node}' port '{m.port}': a backward message with state {m.state} that was never "
                "sent, or came twice"
            )
        self.stats.backward += 1
        self.returned[(m.node, m.port)] = self.returned.get((m.node, m.port), 0) + 1
        b, record = self.typed.behaviours[m.node], self.fired.get(firing)
        assert record is not None
        record.gradients[record.expected[(m.port, m.state)]] = m.payload
        if len(record.gradients) == len(record.expected):
            self._return(firing, b, record)

    def _return(self, firing: Firing, b: Behaviour, record: Fired) -> None:
        """All gradients are here: run backward, accumulate, send one message to each operand's sender."""
        name, slot, _ = firing
        n_outputs = len(b.program.outputs) if b.program is not None else 1
        gradients = [self._output_gradient(name, b, record, k) for k in range(n_outputs)]
        if b.program is not None:
            per_input = self._run_backward(name, b, record, gradients)
            if self.probe is not None:
                self.probe(Direction.BACKWARD, firing, per_input)
        else:
            per_input = [gradients[0]]
        at: dict[str, int] = {}
        ports = [r.port for r in b.receives if not b.any_port or r.port == record.operands[0][0]]
        for port, state, rows in record.operands:
            start = at.get(port, 0)
            self._send_back(name, port, slot, state, per_input[ports.index(port)][start : start + rows])
            at[port] = start + rows
        del self.fired[firing]
        self._settle(slot, len(record.operands))

    def _output_gradient(self, name: str, b: Behaviour, record: Fired, k: int) -> np.ndarray:
        """Sum over the out-ports and copies that sent output k, in their static order."""
        if b.program is not None:
            y = record.outputs[k]
        else:
            port, _, rows = record.operands[0]
            y = np.zeros((rows, self.typed.into(name, port).width), self.dtype)
        if b.report:
            return np.ones_like(y) if k == 0 else np.zeros_like(y)
        if y.dtype.kind != "f":
            return y
        total = np.zeros_like(y)
        for (number, copy), g in sorted(record.gradients.items(), key=lambda item: item[0]):
            emit = b.emits[number]
            if emit.value == k:
                if emit.by_row:
                    total[copy : copy + 1] += g
                else:
                    total += g
        return total

    def _run_backward(self, name: str, b: Behaviour, record: Fired, dy: list[np.ndarray]) -> list[np.ndarray]:
        d = self.derivatives[name]
        p = self.params.get(name)
        ints = dict(zip(b.program.ints if b.program else (), record.ints, strict=True))
        inputs = [*(dy[k] for k in d.float_outputs), *record.residuals]
        got = d.backward.run(
            record.context, inputs, [ints[key] for key in d.backward.ints], p.values if p else {}
        )
        for g in got:
            if g.dtype.kind == "f" and not np.isfinite(g).all():
                raise NonFiniteError(name, "backward", "a gradient")
        if p is not None:
            accumulate_terms(d.terms, got, p.gradients, self.product)
            rows = record.context.total("rows")
            p.rows += rows
            behind = self.stats.staleness.setdefault(name, {})
            behind[p.version - record.version] = behind.get(p.version - record.version, 0) + rows
            if self.options.updates == "self" and p.due:
                self._self_update(name)
        return got[: len(d.wrt)]

    def _send_back(self, node: str, port: str, slot: int, state: State, gradient: np.ndarray) -> None:
        sender, out = self.graph.sources_of[(node, port)]
        if self.typed.behaviours[sender].is_source:
            self.stats.backward += 1
            self.returned[(sender, out)] = self.returned.get((sender, out), 0) + 1
            return
        self.queue.append(Message(Direction.BACKWARD, sender, out, slot, state, gradient))

    # --- bookkeeping ------------------------------------------------------------------------------

    def _settle(self, slot: int, n: int) -> None:
        """`n` forward messages of the slot are accounted for; an instance without any left retires."""
        active = self.active[slot]
        active.outstanding -= n
        if active.outstanding:
            return
        for (node, label), parts in active.parts.items():
            parts.sort(key=lambda item: item[0])
            active.report.outputs.setdefault(node, {})[label] = np.concatenate([v for _, v in parts])
        left = [k for k in self.pending if k[1] == slot]
        if left:
            raise ExecutionError(
                f"instance {active.instance.number} retires while node '{left[0][0]}' still waits at state "
                f"{left[0][2]}"
            )
        del self.active[slot], self.seen[slot]
        self.done.append(active.report)
