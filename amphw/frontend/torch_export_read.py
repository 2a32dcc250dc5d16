"""Reads a program of torch.export into a `Flow`, which knows nothing of PyTorch."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from amphw.frontend.flow import OPENS, Flow, Step, crossing, taken_apart
from amphw.frontend.flow_blocks import weight_of
from amphw.frontend.source import FrontendError, SourceLine
from amphw.frontend.torch_ops import Weight

_MANY = 64
"""Numbers of a constant tensor that a program may have inside."""


def writes_in_place(program: Any, torch: Any) -> bool:
    """Whether an operation changes one of its operands."""
    return any(
        node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )


class Reader:
    """Reads the graphs of a program. weights: parameters by their path."""

    def __init__(self, program: Any, torch: Any) -> None:
        self.program, self.torch = program, torch
        self._folder = os.path.dirname(torch.__file__)
        self.weights: dict[str, Weight] = {}
        self._by_memory: dict[Any, Weight] = {}
        for path, tensor in program.state_dict.items():
            if isinstance(tensor, torch.nn.Parameter):
                self.weights[path] = self._weight(path, tensor)

    def _weight(self, path: str, tensor: Any) -> Weight:
        """Parameters that are the same memory are one."""
        memory = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        if memory not in self._by_memory or not tensor.numel():
            name = path.replace(".", "_")
            while any(w.name == name for w in self._by_memory.values()):
                name += "_"
            values = tensor.detach().cpu().float().numpy().copy()
            self._by_memory[memory] = Weight(name, values, place=path)
        return self._by_memory[memory]

    def limits(self) -> dict[str, tuple[int, int | None]]:
        """By symbol the least and the largest length."""
        found = {}
        for symbol, ends in self.program.range_constraints.items():
            upper = str(ends.upper)
            found[str(symbol)] = int(ends.lower), int(upper) if upper.isdigit() else None
        return found

    def whole(self) -> Flow:
        kinds = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        bound: dict[str, Step] = {}
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and kinds[node.name].kind.name != "USER_INPUT":
                bound[node.name] = self._stored(node, kinds[node.name])
        changed = [s for s in self.program.graph_signature.output_specs if s.kind.name != "USER_OUTPUT"]
        if changed:
            raise FrontendError(
                f"the program changes '{changed[0].target}' while it runs ({changed[0].kind.name.lower()}); "
                "a model's function has no state of its own"
            )
        return self._flow(self.program.graph_module, bound, frozenset())

    def _stored(self, node: Any, spec: Any) -> Step:
        """A parameter, a buffer or a constant."""
        shape = tuple(node.meta["val"].shape) if hasattr(node.meta.get("val"), "shape") else ()
        if spec.kind.name == "PARAMETER":
            tensor = self.program.state_dict[spec.target]
            if not tensor.requires_grad:
                raise FrontendError(
                    f"the parameter '{spec.target}' is frozen, and a layer trains all that it has; call "
                    "requires_grad_(), and set lr to 0 for a layer that shall stay as it is"
                )
            return Step(node.name, "weight", (self.weights[spec.target],), {}, shape)
        values = self.program.state_dict.get(spec.target)
        if values is None:
            values = self.program.constants[spec.target]
        return self._constant(node.name, spec.target, values.detach().cpu().numpy())

    def _constant(self, name: str, target: str, values: np.ndarray) -> Step:
        if values.size and np.all(values == values.flat[0]):
            return Step(name, "number", (values.flat[0].item(),), {}, values.shape)
        if values.size > _MANY:
            raise FrontendError(
                f"the tensor '{target}' is no parameter, and has {values.size} numbers, where {_MANY} may be "
                "constant; make it a parameter"
            )
        return Step(name, "constants", (values,), {}, values.shape)

    # --- graphs -------------------------------------------------------------------------------------

    def _flow(self, module: Any, bound: Mapping[str, Step], counted: frozenset[str], *given: Any) -> Flow:
        """bound: of placeholders those that are known outside. counted: those that are computed, though they
        are integers in the program."""
        found: dict[Any, Any] = {}
        flow = Flow([], [], [])
        for node in module.graph.nodes:
            if node.op == "placeholder":
                found[node] = step = bound.get(node.name) or self._step(node, "input", (), {})
                if node.name in counted:
                    step.kind = "float"
                if node.name not in bound:
                    flow.inputs.append(step)
                elif step.op == "constants":
                    flow.steps.append(step)
            elif node.op == "get_attr":
                found[node] = getattr(module, node.target)
            elif node.op == "output":
                (made,) = node.args
                made = self._arguments(made, found)
                flow.outputs = [
                    self._value(x, flow) for x in (made if isinstance(made, tuple | list) else [made])
                ]
            else:
                made = self._call(node, found, flow)
                if made is not None:
                    found[node] = made
        return flow

    def _arguments(self, x: Any, found: Mapping[Any, Any]) -> Any:
        if isinstance(x, self.torch.fx.Node):
            return found.get(x)
        if isinstance(x, tuple | list):
            return [self._arguments(y, found) for y in x]
        return x

    def _call(self, node: Any, found: dict[Any, Any], flow: Flow) -> Any:
        target = node.target
        schema = getattr(target, "_schema", None)
        op = schema.name.split("::")[1] if schema is not None else target.__name__
        args = self._arguments(node.args, found)
        kwargs = {k: self._arguments(v, found) for k, v in node.kwargs.items()}
        if op in OPENS:
            return self._opened(node, op, args, flow)
        if op == "_add_batch_dim" or any(isinstance(x, self.torch.nn.Module) for x in args):
            hint = ""
            if op in ("_add_batch_dim", "associative_scan"):
                hint = "; associative_scan is exported for one length alone: write scan, and map for vmap"
            raise self._step(node, op, (), {}).error(f"has no counterpart here{hint}")
        if op in ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones"):
            value = args[1] if op.startswith("full") else float(op.strip("new_").startswith("ones"))
            return self._step(node, "number", (value,), {})
        if op == "scalar_tensor":
            return self._step(node, "number", (args[0],), {})
        for unneeded in ("dtype", "device", "layout", "pin_memory", "memory_format"):
            kwargs.pop(unneeded, None)
        if op == "getitem" and isinstance(args[0], Step) and args[0].op in ("max", "min"):
            return self._largest(node, args, flow)
        if op in ("max", "min") and len(args) == 1:
            op = f"a{op}"
        if op in ("max", "min") and isinstance(args[1], Step):
            op = f"{op}imum"
        if op in ("to", "_to_copy") and self._rounds(node):
            raise self._step(node, op, (), {}).error(
                "rounds what is computed to integers; values are numbers"
            )
        step = self._step(
            node, op.removesuffix("_") if schema and not op.startswith("__") else op, tuple(args), kwargs
        )
        for x in taken_apart(step):
            if crossing(x):
                x.args = tuple(self._value(y, flow) for y in x.args)
            flow.steps.append(x)
        return step

    def _rounds(self, node: Any) -> bool:
        source, made = node.args[0].meta.get("val"), node.meta.get("val")
        if not hasattr(source, "dtype") or not hasattr(made, "dtype"):
            return False
        return bool(source.dtype.is_floating_point and not made.dtype.is_floating_point)

    def _largest(self, node: Any, args: Any, flow: Flow) -> Step:
        source, which = args
        step = self._step(node, f"a{source.op}" if which == 0 else f"arg{source.op}", source.args, {})
        flow.steps.extend(taken_apart(step))
        return step

    def _step(self, node: Any, op: str, args: Any, kwargs: Any) -> Step:
        value = node.meta.get("val")
        shape, kind = None, "float"
        if isinstance(value, tuple | list):
            kind = "many"
        elif hasattr(value, "shape"):
            shape = tuple(d if isinstance(d, int) else str(d) for d in value.shape)
            if not value.dtype.is_floating_point:
                kind = "int"
        else:
            kind, shape = "int", ()
        step = Step(node.name, op, args, kwargs, shape, kind, *self._place(node))
        if kind == "int" and any(x.kind == "float" and x.op != "number" for x in step.operands):
            step.kind = "float"  # a comparison of what is computed
        if op == "sym_size":
            step.kind = "int"
        step.truth = getattr(value, "dtype", None) == self.torch.bool
        return step

    def _value(self, x: Any, flow: Flow) -> Any:
        """A parameter as a value, where something else than a row reads it."""
        if isinstance(x, list | tuple):
            return [self._value(y, flow) for y in x]
        if not isinstance(x, Step) or weight_of(x) is None:
            return x
        step = Step(f"{x.name}_value", "parameter", (x,), {}, x.shape)
        flow.steps.append(step)
        return step

    # --- bodies -------------------------------------------------------------------------------------

    def _opened(self, node: Any, op: str, args: Any, flow: Flow) -> Step:
        if op == "cond":
            condition, then, otherwise, operands = args
            given = [self._value(x, flow) if not isinstance(x, Step) else x for x in operands]
            bodies = tuple(self._body(m, given, 0) for m in (then, otherwise))
            step = self._step(node, op, (condition, *bodies), {})
        elif op == "while_loop":
            condition, body, carried, others = args
            carried = self._value(carried, flow)
            bodies = tuple(self._body(m, others, len(carried), len(carried)) for m in (condition, body))
            step = self._step(node, op, (*bodies, carried), {})
        elif op == "scan":
            body, init, xs, others = args
            init, xs = self._value(init, flow), self._value(xs, flow)
            step = self._step(
                node, op, (self._body(body, others, len(init) + len(xs), len(init)), init, xs), {}
            )
        else:
            body, xs, others = args
            xs = self._value(xs, flow)
            step = self._step(node, op, (self._body(body, others, len(xs)), xs), {})
        step.kind = "many"
        if step.place is None:  # PyTorch keeps the line of what is in the body alone
            inside = (x.place for body in step.args if isinstance(body, Flow) for x in body.steps)
            step.place = next((place for place in inside if place), None)
        flow.steps.append(step)
        return step

    def _body(self, module: Any, others: Sequence[Any], own: int, counted: int = 0) -> Flow:
        """own: how many operands are the body's, before the others; counted: of them those carried."""
        names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        bound = dict(zip(names[own:], others, strict=True))
        return self._flow(module, bound, frozenset(names[:counted]))

    # --- the author's lines -------------------------------------------------------------------------

    def _place(self, node: Any) -> tuple[SourceLine | None, str]:
        """The innermost line that is neither PyTorch's nor made by it, and how errors call the operation."""
        place = None
        for file, line, function in re.findall(
            r'File "([^"]+)", line (\d+), in (\S+)', node.meta.get("stack_trace") or ""
        ):
            theirs = file.startswith((self._folder, "<")) or "/site-packages/torch/" in file
            if not theirs:
                place = SourceLine(file, int(line), function)
        stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        where = f" in '{stack[-1]}'" if stack and stack[-1] else ""
        schema = getattr(node.target, "_schema", None)
        name = (
            schema.name.replace("::", ".") if schema else getattr(node.target, "__name__", str(node.target))
        )
        return place, f"{name}{where}"
