"""What the modules that come with PyTorch are: operations on a value and on the weights at their path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amphw.frontend.torch_operands import Weight
from amphw.frontend.torch_ops import Operations
from amphw.ir import functions as f
from amphw.ir.expr import Expr
from amphw.ir.program import Builder, Value


class Modules(Operations):
    """Modules by PyTorch's name, as `module_NAME`, beside the functions.

    weights: by their path in the whole module. `at` is the path of the module that is being computed.
    """

    def __init__(self, builder: Builder, keys: Sequence[Expr], weights: Mapping[str, Weight]):
        super().__init__(builder, keys, {weight.name for weight in weights.values()})
        self.weights, self.at = weights, ""

    def _weight(self, name: str) -> Weight | None:
        return self.weights.get(f"{self.at}.{name}")

    def module_Linear(self, m: Any, input: Any) -> Value:
        return self.do_linear(input, self._weight("weight"), self._weight("bias"))

    module_NonDynamicallyQuantizableLinear = module_Linear  # that of MultiheadAttention.out_proj

    def module_Embedding(self, m: Any, input: Any) -> Value:
        weight = self._weight("weight")
        return self.do_embedding(input, weight, m.padding_idx, m.max_norm, 2.0, m.scale_grad_by_freq)

    def module_LayerNorm(self, m: Any, input: Any) -> Any:
        weight, bias = self._weight("weight"), self._weight("bias")
        return self.do_layer_norm(input, m.normalized_shape, weight, bias, m.eps)

    def module_RMSNorm(self, m: Any, input: Any) -> Any:
        return self.do_rms_norm(input, m.normalized_shape, self._weight("weight"), m.eps)

    def module_ReLU(self, m: Any, input: Any) -> Value:
        return self.do_relu(input)

    def module_ELU(self, m: Any, input: Any) -> Value:
        return self.do_elu(input, m.alpha)

    def module_LeakyReLU(self, m: Any, input: Any) -> Value:
        return self.do_leaky_relu(input, m.negative_slope)

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

    def _cell(self) -> tuple[Weight | None, ...]:
        return tuple(self._weight(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))

    def _start(self, m: Any, input: Any, hx: Any) -> Any:
        return f.zeros(self.row(input), m.hidden_size) if hx is None else hx

    def module_RNNCell(self, m: Any, input: Any, hx: Any = None) -> Value:
        cell = self.do_rnn_tanh_cell if m.nonlinearity == "tanh" else self.do_rnn_relu_cell
        return cell(input, self._start(m, input, hx), *self._cell())

    def module_GRUCell(self, m: Any, input: Any, hx: Any = None) -> Value:
        return self.do_gru_cell(input, self._start(m, input, hx), *self._cell())

    def module_LSTMCell(self, m: Any, input: Any, hx: Any = None) -> list[Value]:
        zero = self._start(m, input, None)
        return self.do_lstm_cell(input, (zero, zero) if hx is None else hx, *self._cell())
