"""The model language: layers, control flow, and instances of plain Python; states and keys are deduced.

>>> from amphw import frontend as fe
>>> embed, cell, head = fe.Embedding(14, 16), fe.GRU(32), fe.Linear(10)
>>> def model(x):
...     h = fe.fold(cell, fe.constant(32), embed(x.tokens))
...     fe.classify(head(h), x.label)
>>> m = fe.compile(model, fe.Record(tokens=fe.Sequence(fe.Int(14), most=10), label=fe.Int(10)))
>>> m.encode({"tokens": [12, 3, 1], "label": 2}).attrs
{'tokens_length': 3}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from amphw.frontend.attention import attention, softmax
from amphw.frontend.branches import cond, switch
from amphw.frontend.chosen import argmax, sample
from amphw.frontend.compile import Compiled, compile
from amphw.frontend.convolution import Conv2d, MaxPool
from amphw.frontend.convolution1d import Conv1d
from amphw.frontend.decided_loops import while_loop
from amphw.frontend.embedding import Embedding
from amphw.frontend.functions import (
    above,
    absolute,
    column,
    concat,
    cross_entropy,
    elu,
    exp,
    gelu,
    is_best,
    largest,
    leaky_relu,
    log,
    log_softmax,
    maximum,
    mean_columns,
    minimum,
    number,
    relu,
    sigmoid,
    softplus,
    split,
    sqrt,
    squared_error,
    stop_gradient,
    sum_columns,
    tanh,
)
from amphw.frontend.gather import group, pick, put, reduce, take
from amphw.frontend.graph_spec import Graph
from amphw.frontend.graphs import message_passing, receive, send
from amphw.frontend.integer import Integer, choose
from amphw.frontend.layer_functions import layer_function
from amphw.frontend.layers import (
    GRU,
    LSTM,
    RNN,
    Layer,
    LayerNorm,
    Linear,
    RMSNorm,
    TreeLSTMBranch,
    TreeLSTMLeaf,
    parameter,
)
from amphw.frontend.loops import fold, scan
from amphw.frontend.losses import classify, loss, loss_of, regress, report
from amphw.frontend.masks import dropout
from amphw.frontend.remedies import unknown as _unknown
from amphw.frontend.source import FrontendError, FrontendNote
from amphw.frontend.spec import Along, Axis, Floats, Int, Record, Sequence, Spec
from amphw.frontend.tensor import Tensor, constant, ungroup
from amphw.frontend.torch_import import from_torch
from amphw.frontend.tree_spec import Tree
from amphw.frontend.trees import fold_tree, root

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Along",
    "Axis",
    "Compiled",
    "Conv1d",
    "Conv2d",
    "Embedding",
    "Floats",
    "FrontendError",
    "FrontendNote",
    "Graph",
    "Int",
    "Integer",
    "Layer",
    "LayerNorm",
    "Linear",
    "MaxPool",
    "RMSNorm",
    "Record",
    "Sequence",
    "Spec",
    "Tensor",
    "Tree",
    "TreeLSTMBranch",
    "TreeLSTMLeaf",
    "above",
    "absolute",
    "argmax",
    "attention",
    "choose",
    "classify",
    "column",
    "compile",
    "concat",
    "cond",
    "cross_entropy",
    "constant",
    "dropout",
    "elu",
    "exp",
    "fold",
    "fold_tree",
    "from_export",
    "from_onnx",
    "from_torch",
    "gelu",
    "group",
    "is_best",
    "largest",
    "layer_function",
    "leaky_relu",
    "log",
    "log_softmax",
    "loss",
    "loss_of",
    "maximum",
    "mean_columns",
    "minimum",
    "message_passing",
    "number",
    "parameter",
    "pick",
    "put",
    "receive",
    "reduce",
    "regress",
    "relu",
    "report",
    "root",
    "sample",
    "scan",
    "send",
    "sigmoid",
    "softmax",
    "softplus",
    "split",
    "sqrt",
    "squared_error",
    "stop_gradient",
    "sum_columns",
    "switch",
    "take",
    "tanh",
    "ungroup",
    "while_loop",
]

_LATER = {"from_export": "torch_export", "from_onnx": "onnx_import"}
"""Where the readers of others' programs are: their modules take a while to load, so it is done when asked."""

if TYPE_CHECKING:
    from amphw.frontend.onnx_import import from_onnx
    from amphw.frontend.torch_export import from_export
else:
    # mypy would take it for a promise of every name
    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise _unknown("amphw.frontend", name)
        globals()[name] = found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
