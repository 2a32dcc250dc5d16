"""`from_torch`: a PyTorch module without control flow of its own as a layer that starts with its weights.

The module is traced by torch.fx when it is imported; each operation of the trace becomes primitives when the
layer is used and the widths are known (`torch_ops.py`, `torch_modules.py`). PyTorch itself is imported by
`from_torch` alone.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import FrameType
from typing import Any

import numpy as np

from amphw.frontend.embedding import within_table
from amphw.frontend.integer import Integer, items_of
from amphw.frontend.layers import Layer
from amphw.frontend.masks import row_keys
from amphw.frontend.source import FrontendError, SourceLine, here
from amphw.frontend.spec import SequenceValue
from amphw.frontend.tensor import Tensor
from amphw.frontend.torch_modules import Modules
from amphw.frontend.torch_operands import Refused, Weight
from amphw.frontend.torch_ops import ALIASES, IN_PLACE, VIEWS
from amphw.frontend.torch_piece import is_read, piece_of
from amphw.frontend.torch_state import TorchEntry, TorchState
from amphw.frontend.trace import current
from amphw.ir.errors import ProgramError
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, Program, Value, ValueType

_LOOPS = ("RNN", "GRU", "LSTM")
_HERE = os.path.dirname(__file__)


def from_torch(module: Any, forward: Callable[..., Any] | None = None, *, name: str | None = None) -> Layer:
    """A `torch.nn.Module` without control flow as a layer: its forward function on the values of a row.

    The operands are those of `forward`, in its order: values, and an Integer where an embedding looks it up.
    The result is a value, or a list of them. Parameters start at a copy of the module's and have its names,
    with _ for a dot; those that PyTorch multiplies with transposed are stored as [inputs, outputs]. Dropout
    is as in the module: the identity after `eval()`, else `fe.dropout`. Cells of recurrent networks are
    called as in PyTorch, so that the operand comes before the state: an LSTMCell is (x, h, c) -> [h, c].

    forward: what is computed in place of the module's own `forward`, a function of the module and of the
    operands, for a module that mixes rows, of which it computes a piece. The layer then has, and gives back,
    what that piece reads; of a parameter of which it reads parts, `weight[2]`, the others stay as they were.

    Raises FrontendError naming the operation, its place in the module and the line of `forward`, for what
    has no counterpart here; what depends on widths is found when the layer is used.
    """
    try:
        import torch
    except ImportError:
        raise FrontendError("from_torch needs PyTorch: pip install 'amphw[torch]'") from None
    if not isinstance(module, torch.nn.Module):
        raise FrontendError(f"from_torch takes a torch.nn.Module, got {module!r}")
    return _Imported(module, forward, name, torch)


@dataclass(frozen=True)
class _Operand:
    """An operand of `forward`; rows: of the smallest embedding that it is the index of, if of any."""

    name: str
    rows: int | None
    default: Any
    optional: bool


class _Imported(Layer):
    """The layer that computes a traced module."""

    def __init__(self, module: Any, forward: Callable[..., Any] | None, name: str | None, torch: Any) -> None:
        super().__init__(name=name)
        self._node_type, self._not_theirs = torch.fx.Node, (os.path.dirname(torch.__file__), _HERE)
        self._places: dict[Any, SourceLine] = {}  # node -> the author's line that made it
        self._root = _with_state_apart(module, torch) if forward is None else piece_of(module, forward, torch)
        self._nodes = list(self._traced(torch).nodes)
        self._modules = dict(self._root.named_modules(remove_duplicate=False))
        for path, part in self._modules.items():
            if part._forward_hooks or part._forward_pre_hooks:
                at = f" at '{path}'" if path else ""
                raise FrontendError(f"the module has hooks{at}, which a trace does not see")
        inside = "" if self._root is module else "cell."
        self._weights = _weights(self._root, inside)
        self._state = {path.removeprefix(inside): tensor for path, tensor in self._root.state_dict().items()}
        self._inside, self._turned, self._parts = inside, dict[str, bool](), dict[str, dict[int, str]]()
        self._operands = [self._operand(n) for n in self._nodes if n.op == "placeholder"]
        for node in self._nodes:
            self._check(node)
        if forward is not None:
            self._state = {p: tensor for p, tensor in self._state.items() if is_read(inside + p, self._nodes)}

    def torch_state(self, parameters: Collection[str]) -> TorchState:
        """The module's tensors, and what they are here; once the layer has been used. parameters: names of
        those that it has; what there is beside them stays as it was."""
        entries = []
        for path, tensor in self._state.items():
            known = self._weights.get(f"{self._inside}{path}")
            name = known.name if known is not None and known.name in parameters else ""
            values = None if name else tensor.detach().cpu().double().numpy().copy()
            dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
            entries.append(TorchEntry(path, dtype, shape, name, self._turned.get(name, False), values))
            for at, part in self._parts.get(known.name if known is not None else "", {}).items():
                if part in parameters:
                    turned = self._turned.get(part, False)
                    entries.append(TorchEntry(path, dtype, shape[1:], part, turned, None, at))
        return TorchState(tuple(entries))

    # --- the trace ----------------------------------------------------------------------------------

    def _traced(self, torch: Any) -> Any:
        places, theirs = self._places, self._theirs

        class Proxy(torch.fx.Proxy):  # type: ignore[misc, name-defined]
            """A value of the trace, which sees `x += y` as what it is; torch.fx takes it for `x = x + y`."""

        for name in IN_PLACE:
            setattr(Proxy, f"__{name}__", _recorded(getattr(operator, name)))

        class Tracer(torch.fx.Tracer):  # type: ignore[misc, name-defined]
            def create_node(self, *args: Any, **kwargs: Any) -> Any:
                node = super().create_node(*args, **kwargs)
                frame: FrameType | None = sys._getframe(1)
                while frame is not None and frame.f_code is not _Imported._traced.__code__:
                    if theirs(frame):
                        places[node] = SourceLine(
                            frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
                        )
                        break
                    frame = frame.f_back
                return node

            def proxy(self, node: Any) -> Any:
                return Proxy(node, self)

        try:
            return Tracer().trace(self._root)
        except Exception as error:  # whatever the author's forward function does with what it is given
            place, at = None, error.__traceback__
            while at is not None:
                if theirs(at.tb_frame):
                    place = SourceLine(
                        at.tb_frame.f_code.co_filename, at.tb_lineno, at.tb_frame.f_code.co_name
                    )
                at = at.tb_next
            advice = "; decisions and loops belong to the model: fe.cond, fe.scan"
            flow = isinstance(error, torch.fx.proxy.TraceError)
            told = str(error).split(". ")[0]  # then comes advice for those who write tracers
            raise FrontendError(f"the module cannot be traced: {told}{advice * flow}", place) from error

    def _theirs(self, frame: FrameType) -> bool:
        """Whether a frame is of neither PyTorch's source nor this one."""
        return not frame.f_code.co_filename.startswith(self._not_theirs)

    def _operand(self, node: Any) -> _Operand:
        if node.target.startswith("*"):
            raise FrontendError(f"forward takes '{node.target}'; a layer has a fixed number of operands")
        rows = min((r for user in node.users for r in self._rows_of(user, node)), default=None)
        return _Operand(node.target, rows, next(iter(node.args), None), bool(node.args))

    def _rows_of(self, user: Any, node: Any) -> Iterator[int]:
        """Of the embedding that `user` is, where the node is its index."""
        if user.op == "call_module" and type(self._modules[user.target]).__name__ == "Embedding":
            yield self._modules[user.target].num_embeddings
        if user.op == "call_function" and user.target.__name__ == "embedding":
            index, weight = (
                user.args[k] if len(user.args) > k else user.kwargs.get(name)
                for k, name in enumerate(("input", "weight"))
            )
            if index is node:
                known = self._weights.get(str(getattr(weight, "target", "")))
                yield sys.maxsize if known is None else known.values.shape[0]

    def _check(self, node: Any) -> None:
        """FrontendError for what can be told to have no counterpart before the widths are known."""
        if node.op in ("placeholder", "output"):
            return
        if node.op == "get_attr":
            value = self._attribute(node.target)
            if node.target not in self._weights and value.numel() != 1:
                raise self._error(
                    node, f"the tensor '{node.target}' is no parameter, and more than a number; make it one"
                )
        elif not hasattr(Modules, self._handler(node)):
            kind = self._name(node)
            hint = f"; loops belong to the model: use {kind}Cell in fe.fold" if kind in _LOOPS else ""
            raise self._error(node, f"{self._described(node)} has no counterpart here{hint}")
        elif self._writes(node):
            source = node.args[0] if node.args else node.kwargs["input"]
            if len(source.users) > 1 or self._name(source) in VIEWS:
                raise self._error(
                    node, f"{self._described(node)} works in place on what is read elsewhere; use a new value"
                )
        frozen = [w for w in self._read(node) if not self._root.get_parameter(w).requires_grad]
        if frozen:
            raise self._error(
                node,
                f"the parameter '{frozen[0]}' is frozen, and a layer trains all that it has; call "
                "requires_grad_(), and set lr to 0 for a layer that shall stay as it is",
            )

    def _read(self, node: Any) -> Iterator[str]:
        """Paths of the parameters that a node reads by itself."""
        if node.op == "get_attr" and node.target in self._weights:
            yield node.target
        if node.op == "call_module":
            yield from (p for p in self._weights if p.startswith(f"{node.target}."))

    def _name(self, node: Any) -> str:
        """PyTorch's name of a node's operation, without the marks of working in place."""
        if node.op == "call_module":
            return type(self._modules[node.target]).__name__
        if node.op in ("placeholder", "get_attr", "output"):
            return str(node.op)
        name: str = node.target if node.op == "call_method" else node.target.__name__
        if self._writes(node):
            name = name.rstrip("_")
        return ALIASES.get(name, name)

    def _writes(self, node: Any) -> bool:
        if node.op == "call_module":
            return bool(getattr(self._modules[node.target], "inplace", False))
        if node.op == "call_method":
            return bool(node.target.endswith("_"))
        if node.op == "call_function" and node.target.__name__ in IN_PLACE:
            return True
        return bool(node.kwargs.get("inplace", False))

    def _handler(self, node: Any) -> str:
        if node.op == "call_module":
            official = type(self._modules[node.target]).__module__.startswith("torch.nn.")
            return f"module_{self._name(node)}" if official else "none"
        if node.op == "call_function":
            origin = node.target.__module__ or "torch"
            if origin.split(".")[0] not in ("torch", "_operator") and node.target is not getattr:
                return "none"
        return f"do_{self._name(node)}"

    def _attribute(self, path: str) -> Any:
        value: Any = self._root
        for part in path.split("."):
            value = getattr(value, part)
        return value

    # --- use ----------------------------------------------------------------------------------------

    def __call__(self, *operands: Tensor | Integer | SequenceValue) -> Any:
        given = [items_of(x) for x in operands]
        least = sum(not o.optional for o in self._operands)
        if not least <= len(given) <= len(self._operands):
            names = ", ".join(o.name for o in self._operands)
            raise FrontendError(f"the module takes the operands ({names}), got {len(given)}")
        for x, operand in zip(given, self._operands, strict=False):
            if (operand.rows is not None) != isinstance(x, Integer):
                wanted = "a value" if operand.rows is None else "an Integer, the index of an embedding"
                raise FrontendError(f"the operand '{operand.name}' of the module is {wanted}, got {x!r}")
            if operand.rows is not None:
                within_table(x, operand.rows)
        return super().__call__(*given)

    def program(self, tensors: list[Tensor], aligned: list[Tensor], exprs: list[Expr]) -> Program:
        builder = Builder()
        inputs = [builder.input(f"x{i}", ValueType("float", "rows", x.width)) for i, x in enumerate(aligned)]
        values, ints = iter(inputs[: len(tensors)]), iter(exprs)
        count = len(tensors) + len(exprs)
        operands = [next(values) if o.rows is None else next(ints) for o in self._operands[:count]]
        layer = current().layer_name(self)
        operations = Modules(builder, row_keys(), self._weights)
        made = builder.build(self._outputs(operations, layer, operands))
        self._turned |= operations.turned
        self._parts |= operations.parts
        return made

    def _outputs(self, ops: Modules, layer: str, operands: Sequence[Any]) -> list[Value]:
        given = [*operands, *(o.default for o in self._operands[len(operands) :])]
        waiting, found = iter(given), dict[Any, Any]()
        for node in self._nodes:
            if node.op == "placeholder":
                found[node] = next(waiting)
                continue
            args, kwargs = self._arguments(node.args, found), self._arguments(node.kwargs, found)
            ops.at, ops.seed = str(node.target), f"{layer}.{node.name}"
            try:
                if node.op == "output":
                    (made,) = args
                    return [ops.row(x) for x in (made if isinstance(made, list | tuple) else (made,))]
                found[node] = self._computed(ops, node, args, kwargs)
            except (Refused, ProgramError) as error:
                told = f"{self._described(node)}: {error} (the layer is used at {here()})"
                raise self._error(node, told) from error
        raise AssertionError("a trace without an output")

    def _computed(self, ops: Modules, node: Any, args: Any, kwargs: Any) -> Any:
        if node.op == "get_attr":
            weight = self._weights.get(node.target)
            return weight if weight is not None else self._attribute(node.target).item()
        handler = getattr(ops, self._handler(node))
        if node.op == "call_module":
            args = (self._modules[node.target], *args)
        try:
            signature(handler).bind(*args, **kwargs)
        except TypeError as error:
            raise Refused(f"called in a way that is not known here: {error}") from None
        return handler(*args, **kwargs)

    def _arguments(self, x: Any, found: Mapping[Any, Any]) -> Any:
        if isinstance(x, self._node_type):
            return found[x]
        if isinstance(x, tuple | list):
            parts = [self._arguments(y, found) for y in x]
            return tuple(parts) if isinstance(x, tuple) else parts
        if isinstance(x, Mapping):
            return {k: self._arguments(v, found) for k, v in x.items()}
        if isinstance(x, slice):
            return slice(*(self._arguments(y, found) for y in (x.start, x.stop, x.step)))
        return x

    # --- errors -------------------------------------------------------------------------------------

    def _described(self, node: Any) -> str:
        """Such as `torch.erf in 'block.norm'`."""
        if node.op == "output":
            return "the result of the module"
        stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
        where = f" in '{stack[-1]}'" if stack else ""
        if node.op == "call_module":
            kind = type(self._modules[node.target])
            return f"{kind.__module__.split('.modules')[0]}.{kind.__name__} at '{node.target}'"
        if node.op == "call_method":
            return f"Tensor.{node.target}{where}"
        if node.op == "get_attr":
            return f"'{node.target}'"
        origin = (node.target.__module__ or "torch").removeprefix("_")
        origin = "torch.nn.functional" if origin == "torch._C._nn" else origin
        return f"{origin}.{node.target.__name__}{where}".removeprefix("builtins.")

    def _error(self, node: Any, message: str) -> FrontendError:
        """At the line of the author's forward function, where one is known."""
        return FrontendError(message, self._places.get(node))


def _recorded(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operation as a method of what torch.fx traces with."""

    def method(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})

    return method


def _weights(module: Any, inside: str) -> dict[str, Weight]:
    """Parameters by path. Those that several modules share are one, under the first name without `inside`."""
    known: dict[int, Weight] = {}
    taken: set[str] = set()
    out: dict[str, Weight] = {}
    for path, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) not in known:
            name = path.removeprefix(inside).replace(".", "_")
            while name in taken:
                name += "_"
            taken.add(name)
            try:
                values: np.ndarray = parameter.detach().cpu().float().numpy().copy()
            except (RuntimeError, ValueError) as error:  # on the meta device, or of a lazy module
                raise FrontendError(f"the parameter '{path}' has no values: {error}") from error
            known[id(parameter)] = Weight(name, values)
        out[path] = known[id(parameter)]
    return out


def _with_state_apart(module: Any, torch: Any) -> Any:
    """A cell as a module that can be traced, whose state is in operands of their own; others as they are."""
    nn = torch.nn

    class Cell(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, h: Any) -> Any:
            return self.cell(x, h)

    class CellWithMemory(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, h: Any, c: Any) -> Any:
            h, c = self.cell(x, (h, c))
            return h, c

    if type(module) not in (nn.RNNCell, nn.GRUCell, nn.LSTMCell):
        return module
    wrapped = CellWithMemory() if type(module) is nn.LSTMCell else Cell()
    wrapped.cell = module
    return wrapped
