"""What of a model is static as a model of ONNX, for those who serve it elsewhere.

Messages become rows of tensors [rows, width], and each primitive of a node's program one operator or a few.
Control flow by a state has no counterpart: loops, branches, trees and graphs are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from amphw.frontend import onnx_primitives
from amphw.frontend.source import FrontendError
from amphw.ir.expr import ROW, Attr, Const, Expr, Table
from amphw.ir.graph import Graph
from amphw.ir.inputs import answers
from amphw.ir.nodes import Concat, Loss, Node, Source, Split, Transform
from amphw.ir.primitives.base import ValueType
from amphw.ir.program import Instr, Program
from amphw.ir.routing import Bcast, Discard

OPSET = 20
"""Of the operators that are used; onnxruntime has it since 1.17."""

Values = Mapping[str, Mapping[str, np.ndarray]]

_DARK = ""
"""What hangs on answers, and is not written."""


def write_onnx(graph: Graph, parameters: Values, path: str | PathLike[str] | None = None) -> Any:
    """A graph without control flow as an `onnx.ModelProto`, which is also written to `path`.

    Inputs are the instance's numbers, float32 [rows, width], and its integers, int64 [rows], by their names
    in the instance's tables; what only losses read is none of them. Outputs are, for each loss, what it reads
    of the network, named after the node that makes it, and what it reports of an instance without answers
    (`loss.prediction`). Dropout is left out.

    Raises FrontendError naming the node that has no counterpart, and without the package `onnx`; OSError
    where the file cannot be written.
    """
    try:
        import onnx
    except ImportError:
        raise FrontendError("to_onnx needs the package onnx: pip install 'amphw[onnx]'") from None
    made = _Writer(onnx, graph, parameters).model()
    if path is not None:
        Path(path).write_bytes(made.SerializeToString())
    return made


class _Writer:
    """Writes the nodes of a graph. known: by node and port the name of a tensor."""

    def __init__(self, onnx: Any, graph: Graph, parameters: Values) -> None:
        self.onnx, self._graph, self._values, self._answers = onnx, graph, parameters, answers(graph)
        self.nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}
        self._rows: dict[str, str | int] = {}
        self.known: dict[tuple[str, str], str] = {}

    def model(self) -> Any:
        ordered = _ordered(self._graph)
        # Sources first: what is the same in every row reads of an input how many there are.
        for node in sorted(ordered, key=lambda n: not isinstance(n, Source)):
            self._node(node)
        if not self._outputs:
            raise FrontendError("there is nothing that the model's losses read of the network")
        graph = self.onnx.helper.make_graph(
            self.nodes, self._graph.name, list(self._inputs.values()), list(self._outputs.values()),
            list(self._initializers.values()),
        )  # fmt: skip
        made = self.onnx.helper.make_model(
            graph,
            producer_name="amphw",
            ir_version=10,
            opset_imports=[self.onnx.helper.make_opsetid("", OPSET)],
        )
        self.onnx.checker.check_model(made, full_check=True)
        return made

    # --- names --------------------------------------------------------------------------------------

    def emit(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Another node -> the name of what it makes."""
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Any) -> str:
        self._initializers.setdefault(name, self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def parameter(self, node: str, name: str) -> str:
        return self.constant(f"{node}.{name}", np.asarray(self._values[node][name], np.float32))

    def input(self, name: str, rows: str | int, width: int | None) -> str:
        """width: None: integers."""
        proto = self.onnx.TensorProto
        kind, shape = (proto.INT64, [rows]) if width is None else (proto.FLOAT, [rows, width])
        self._inputs.setdefault(name, self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return self._made(name, rows)

    def with_rows(self, rows: str) -> str | None:
        """An input with so many rows."""
        return next(
            (name for name, count in self._rows.items() if count == rows and name in self._inputs), None
        )

    def _output(self, name: str, rows: str | int, width: int) -> None:
        float_ = self.onnx.TensorProto.FLOAT
        self._outputs[name] = self.onnx.helper.make_tensor_value_info(name, float_, [rows, width])

    # --- nodes --------------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        known = self.known
        given = [known[self._graph.sources_of[(node.name, port)]] for port in node.ins]
        rows = next((self._rows[name] for name in given if name != _DARK), 1)
        if _DARK in given and not isinstance(node, Loss):
            known.update({(node.name, port): _DARK for port in node.outs})
            return
        if isinstance(node, Source):
            self._source(node)
        elif isinstance(node, Transform | Loss):
            self._program(node, node.program, given, rows)
        elif isinstance(node, Concat):
            known[node.name, "out"] = self._made(self.emit("Concat", given, node.name, axis=1), rows)
        elif isinstance(node, Split):
            sizes = self.constant(f"{node.name}.sizes", np.array(node.widths, np.int64))
            names = [f"{node.name}.{port}" for port in node.outs]
            self.nodes.append(
                self.onnx.helper.make_node("Split", [given[0], sizes], names, name=node.name, axis=1)
            )
            for port, name in zip(node.outs, names, strict=True):
                known[node.name, port] = self._made(name, rows)
        elif isinstance(node, Bcast):
            known.update({(node.name, port): given[0] for port in node.outs})
        elif not isinstance(node, Discard):
            raise _refused(node, f"{node.family} belongs to control flow")

    def _made(self, name: str, rows: str | int) -> str:
        self._rows[name] = rows
        return name

    def _source(self, node: Source) -> None:
        if node.state.fields or node.where is not None:
            raise _refused(node, "it sends several messages of an instance")
        if not isinstance(node.rows, Const | Attr):
            raise _refused(node, f"it has {node.rows} rows")
        rows: str | int = node.rows.value if isinstance(node.rows, Const) else node.rows.name
        if node.data in self._answers:  # what comes of it means nothing without it, and is left out
            self.known[node.name, "out"] = _DARK
            return
        name = self.input(node.data, rows, node.width) if node.data else f"{node.name}.nothing"
        self.known[node.name, "out"] = self._made(name, rows)

    def _program(
        self, node: Transform | Loss, program: Program, given: Sequence[str], rows: str | int
    ) -> None:
        steps = Steps(self, node, program, given, rows)
        if isinstance(node, Transform):
            for port, place in zip(node.outs, program.outputs, strict=True):
                name = steps.value(place)
                self.known[node.name, port] = self._made(name, rows)
            return
        for name, (_, kind) in zip(given, program.inputs, strict=True):
            if name != _DARK:
                self._output(self._told(name), rows, kind.width)
        told = [k for k, (e, _) in enumerate(program.ints) if _tables(e) & self._answers]
        answered = [k for k, name in enumerate(given) if name == _DARK]
        dark = set(steps.depend([*answered, *(len(program.inputs) + k for k in told)]))
        for report, place in zip(node.names, program.outputs, strict=True):
            if place not in dark:
                made = self.emit("Identity", [steps.value(place)], f"{node.name}.{report}")
                self._output(made, rows, program.types[place].width)

    def _told(self, name: str) -> str:
        """The name of a value that a loss reads, as an output: an input is no output of its own."""
        if name not in self._inputs:
            return name
        if f"{name}.given" not in self._outputs:
            self.emit("Identity", [name], f"{name}.given")
        return f"{name}.given"


class Steps:
    """The instructions of one program; those that no result needs are not written."""

    def __init__(
        self, writer: _Writer, node: Transform | Loss, program: Program, given: Sequence[str], rows: str | int
    ) -> None:
        self._writer, self._node, self._given, self._rows = writer, node, given, rows
        self.program = program
        self._first = len(program.inputs) + len(program.ints)
        self._found: dict[int, str] = {}

    def depend(self, places: Sequence[int]) -> Iterator[int]:
        """The places of all results that hang on these."""
        found = set(places)
        for k, instr in enumerate(self.program.instrs):
            if found & set(instr.args):
                found.add(self._first + k)
        yield from found

    def value(self, place: int) -> str:
        """The name of the tensor that a result is."""
        if place not in self._found:
            inputs = len(self.program.inputs)
            if place < inputs:
                self._found[place] = self._given[place]
            elif place < self._first:
                self._found[place] = self._integer(*self.program.ints[place - inputs], place)
            else:
                self._found[place] = self._made(self.program.instrs[place - self._first], place)
        return self._found[place]

    def _integer(self, e: Expr, space: str, place: int) -> str:
        name = f"{self._node.name}.{place}"
        if isinstance(e, Table) and space == "rows" and e.index == (ROW,):
            return self._writer.input(e.name, self._rows, None)
        if isinstance(e, Table) and space == "rows" and e.index == (Const(0),):
            return self._repeated(self._writer.input(e.name, 1, None), name)
        if isinstance(e, Const) and space == "rows":
            return self._repeated(self._writer.constant(f"{name}.one", np.array([e.value], np.int64)), name)
        raise _refused(self._node, f"it reads {e}")

    def _repeated(self, one: str, name: str) -> str:
        """An integer that is the same in every row."""
        return one if self._rows == 1 else self.emit("Expand", [one, self._shape(name, [])], name)

    def _shape(self, name: str, rest: list[int]) -> str:
        """A tensor's shape, with a row for each of the node's."""
        if isinstance(self._rows, int):
            return self.whole(name, [self._rows, *rest])
        like = self._writer.with_rows(self._rows)
        if like is None:
            raise self.refused(f"nothing of the instance says how many rows '{self._rows}' are")
        count = self.emit("Shape", [like], f"{name}.rows", start=0, end=1)
        return (
            self.emit("Concat", [count, self.whole(name, rest)], f"{name}.shape", axis=0) if rest else count
        )

    def _made(self, instr: Instr, place: int) -> str:
        write = onnx_primitives.OPERATORS.get(instr.op)
        if write is None:
            raise _refused(self._node, f"its {instr.op} moves rows between messages or positions")
        args = instr.args[:1] if instr.op == "dropout" else instr.args  # the others draw its mask
        name = f"{self._node.name}.{place}"
        return write(self, dict(instr.attrs), [self.value(a) for a in args], name, args)

    # --- what operators need ------------------------------------------------------------------------

    def emit(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        return self._writer.emit(operator, inputs, name, **attributes)

    def constant(self, name: str, value: np.ndarray) -> str:
        return self._writer.constant(name, value)

    def number(self, name: str, value: float) -> str:
        return self._writer.constant(f"{name}.number", np.float32(value))

    def whole(self, name: str, values: Sequence[int]) -> str:
        return self._writer.constant(f"{name}.sizes", np.array(values, np.int64))

    def parameter(self, name: str) -> str:
        return self._writer.parameter(self._node.name, name)

    def place(self, name: str) -> int:
        return int(name.rpartition(".")[2])

    def spread(self, row: str, name: str, kind: ValueType) -> str:
        """A row that is the same everywhere: most operators spread it themselves."""
        place = self.place(name)
        readers = {i.op for i in self.program.instrs if place in i.args}
        if readers <= onnx_primitives.SPREADING and place not in self.program.outputs:
            return row
        if kind.space != "rows":
            raise self.refused(f"its rows '{kind.space}' are the same everywhere")
        return self.emit("Expand", [row, self._shape(name, [kind.width])], name)

    def width(self, place: int) -> int:
        return self.program.types[place].width

    def refused(self, why: str) -> FrontendError:
        return _refused(self._node, why)


def _ordered(graph: Graph) -> list[Node]:
    """Each node behind those that it reads."""
    found: dict[str, Node] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in found:
            return
        node = graph.nodes[name]
        if name in above:
            raise _refused(node, "it is in a loop")
        for port in node.ins:
            visit(graph.sources_of[(name, port)][0], (*above, name))
        found[name] = node

    for name in graph.nodes:
        visit(name, ())
    return list(found.values())


def _tables(e: Expr) -> set[str]:
    own = {e.name} if isinstance(e, Table) else set()
    return own.union(*(_tables(child) for child in e.children))


def _refused(node: Node, why: str) -> FrontendError:
    return FrontendError(
        f"the node '{node.name}' cannot become ONNX: {why}; a model without loops, branches, trees and "
        "graphs can"
    )
