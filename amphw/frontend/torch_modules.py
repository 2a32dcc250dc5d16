"""What the modules that come with PyTorch are: operations on a value and on the weights at their path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amphw.frontend.torch_ops import Operations, Weight
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, Value


class Modules(Operations):
    """Modules by PyTorch's name, as `module_NAME`, beside the functions.

    weights: by their path in the whole module. `at` is the path of the module that is being computed.
    """

    def __init__(self, builder: Builder, keys: Sequence[Expr], weights: Mapping[str, Weight]):
        super().__init__(builder, keys)
        self.weights, self.at = weights, ""

    def _weight(self, name: str) -> Weight | None:
        return self.weights.get(f"{self.at}.{name}")

    def module_Linear(self, m: Any, input: Any) -> Value:
        return self.do_linear(input, self._weight("weight"), self._weight("bias"))

    def module_Embedding(self, m: Any, input: Any) -> Value:
        weight = self._weight("weight")
        return self.do_embedding(input, weight, m.padding_idx, m.max_norm, 2.0, m.scale_grad_by_freq)

    def module_LayerNorm(self, m: Any, input: Any) -> Any:
        weight, bias = self._weight("weight"), self._weight("bias")
        return self.do_layer_norm(input, m.normalized_shape, weight, bias, m.eps)

    def module_ReLU(self, m: Any, input: Any) -> Value:
        return self.do_relu(input)

    def module_Tanh(self, m: Any, input: Any) -> Value:
        return self.do_tanh(input)

    def module_Sigmoid(self, m: Any, input: Any) -> Value:
        return self.do_sigmoid(input)

    def module_SiLU(self, m: Any, input: Any) -> Value:
        return self.do_silu(input)

    def module_GELU(self, m: Any, input: Any) -> Value:
        return self.do_gelu(input, approximate=m.approximate)

    def module_Softplus(self, m: Any, input: Any) -> Value:
        return self.do_softplus(input, m.beta, m.threshold)

    def module_Softmax(self, m: Any, input: Any) -> Value:
        return self.do_softmax(input, m.dim)

    def module_LogSoftmax(self, m: Any, input: Any) -> Value:
        return self.do_log_softmax(input, m.dim)

    def module_Dropout(self, m: Any, input: Any) -> Value:
        return self.do_dropout(input, m.p, m.training)

    def module_Identity(self, m: Any, input: Any) -> Any:
        return input

    def module_Flatten(self, m: Any, input: Any) -> Value:
        return self.do_flatten(input, m.start_dim, m.end_dim)

    def _gates(self, input: Any, h: Value) -> tuple[Value, Value]:
        z = self.do_linear(input, self._weight("weight_ih"), self._weight("bias_ih"))
        return z, self.do_linear(h, self._weight("weight_hh"), self._weight("bias_hh"))

    def module_RNNCell(self, m: Any, input: Any, hx: Any = None) -> Value:
        h = f.zeros(self.row(input), m.hidden_size) if hx is None else self.row(hx)
        a, b = self._gates(input, h)
        return f.tanh(a + b) if m.nonlinearity == "tanh" else f.relu(a + b)

    def module_GRUCell(self, m: Any, input: Any, hx: Any = None) -> Value:
        h = f.zeros(self.row(input), m.hidden_size) if hx is None else self.row(hx)
        return f.gru(*self._gates(input, h), h)

    def module_LSTMCell(self, m: Any, input: Any, hx: Any = None) -> list[Value]:
        zero = f.zeros(self.row(input), m.hidden_size)
        h, c = (zero, zero) if hx is None else (self.row(x) for x in hx)
        a, b = self._gates(input, h)
        i, forget, g, o = f.split(a + b, 4)
        return list(f.lstm_gates(i, forget, o, g, c))
