"""Modules of PyTorch as layers: what they compute and their gradients are those of autograd."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.frontend.compile import Compiled
from amphw.ir.device import Mode
from amphw.ir.nodes import NPT
from tests.conformance.harness import assert_same, reference, run

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
ROWS, DEEP = 5, 4  # instances, and width of what the first layer gets


def module(forward: Callable[..., Any], **parts: Any) -> Any:
    """A module with this forward function and these parts; a number or a tuple is a parameter's shape."""
    made = type("Module", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        drawn = isinstance(part, int | tuple)
        setattr(made, name, nn.Parameter(torch.randn(part) * 0.5) if drawn else part)
    return made


class Block(nn.Module):
    """Modules in modules, as they are written."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([nn.Linear(width, 7), nn.Linear(7, width, bias=False)])

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        for layer in self.layers:
            y = torch.tanh(layer(y))
        y = y + x
        return y.view(y.size(0), -1)


MODULES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 3), (6,)),
    "linear-without-bias": (lambda: nn.Linear(6, 3, bias=False), (6,)),
    "layer-norm": (lambda: nn.LayerNorm(6), (6,)),
    "layer-norm-plain": (lambda: nn.LayerNorm(6, elementwise_affine=False), (6,)),
    "activations": (
        lambda: nn.Sequential(
            *(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 5), nn.Sigmoid(), nn.Flatten()),
            *(nn.Identity(), nn.Linear(5, 5), nn.Tanh(), nn.SiLU(), nn.Softmax(dim=1)),
        ),
        (6,),
    ),
    "log-softmax": (lambda: nn.LogSoftmax(-1), (6,)),
    "functions": (
        lambda: module(lambda self, x: F.softmax(F.relu(x) + torch.sigmoid(x) * x.tanh() - F.silu(x), -1)),
        (6,),
    ),
    "arithmetic": (
        lambda: module(lambda self, x, y: (2 - x) * 3.0 + x / (2 + y * y) - -y / 4 + 1 / (x * x + 1)),
        (6, 6),
    ),
    "roots-and-powers": (
        lambda: module(lambda self, x: torch.exp(-x) + (x**2 + 1).log() + x.abs().sqrt() + torch.pow(x, 3)),
        (6,),
    ),
    "names-of-arithmetic": (
        lambda: module(
            lambda self, x, y: torch.add(x, y, alpha=2).sub(1).mul(y).neg() + torch.rsqrt(y * y + 1)
        ),
        (6, 6),
    ),
    "one-column": (
        lambda: module(lambda self, x: x - x.mean(-1, keepdim=True) + torch.sum(x, dim=1, keepdim=True) * x),
        (6,),
    ),
    "columns": (
        lambda: module(
            lambda self, x, y: torch.cat([x[:, 1:3], y.chunk(3, dim=-1)[2], x[..., -1:] * y[..., ::1]], -1)
        ),
        (5, 5),
    ),
    "split": (lambda: module(lambda self, x: torch.split(x, [1, 4, 2], dim=1)[1] + x.split(4, -1)[0]), (7,)),
    "weights": (
        lambda: module(
            lambda self, x: torch.addmm(self.b, x @ self.W, self.V.t(), alpha=0.5) * self.scale - self.s,
            W=(6, 4),
            V=(3, 4),
            b=(3,),
            scale=(1, 3),
            s=(),
        ),
        (6,),
    ),
    "functional-linear": (lambda: module(lambda self, x: F.linear(x, self.W, self.b), W=(3, 6), b=3), (6,)),
    "used-twice": (
        lambda: module(lambda self, x: self.inner(self.inner(x)) + self.inner.bias, inner=nn.Linear(6, 6)),
        (6,),
    ),
    "block": (lambda: nn.Sequential(Block(6), Block(6)), (6,)),
    "several-results": (lambda: module(lambda self, x: (x * 2, self.l(x)), l=nn.Linear(6, 2)), (6,)),
    "buffer": (lambda: module(lambda self, x: x * self.k, k=nn.Buffer(torch.tensor(0.3))), (6,)),
    "rnn-cell": (lambda: nn.RNNCell(4, 3, nonlinearity="relu"), (4, 3)),
    "gru-cell": (lambda: nn.GRUCell(4, 3), (4, 3)),
    "lstm-cell": (lambda: nn.LSTMCell(4, 3), (4, 3, 3)),
    "cell-from-zero": (lambda: module(lambda self, x: self.c(x)[0], c=nn.LSTMCell(4, 3)), (4,)),
    "sizes": (
        lambda: module(
            lambda self, x: x.reshape(x.shape[0], x.size(-1)) * x.shape[-1] + x.view(-1, 4)[..., :]
        ),
        (4,),
    ),
    "constants": (
        lambda: module(lambda self, x: torch.ones_like(x) * x + torch.zeros_like(x) - x.detach() * x.clone()),
        (4,),
    ),
    "dropout-in-inference": (lambda: module(lambda self, x: F.dropout(x, 0.5, False)), (4,)),
    "default-operand": (lambda: module(lambda self, x, factor=0.5, bias=None: x * factor), (4,)),
}


def gradients(m: Any, loss: Any) -> dict[str, np.ndarray]:
    """By our names, in PyTorch's layout."""
    m.zero_grad()
    loss.backward()
    return {n.replace(".", "_"): p.grad.numpy() for n, p in m.named_parameters()}


def assert_gradients(found: dict[str, np.ndarray], node: str, expected: dict[str, np.ndarray]) -> None:
    ours = {k.removeprefix(f"{node}."): g for k, g in found.items() if k.startswith(f"{node}.")}
    assert ours.keys() == {n for n, g in expected.items() if n in ours or np.abs(g).max() > 0}
    for name, g in ours.items():
        want = expected[name].reshape(g.shape) if g.size == g.shape[-1] else expected[name]
        np.testing.assert_allclose(g if g.shape == want.shape and _near(g, want) else g.T, want, 1e-5, 1e-6)


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, 1e-5, 1e-6))


def computed(m: Any, operands: list[Any]) -> Any:
    """All results side by side."""
    made = m(operands[0], tuple(operands[1:])) if isinstance(m, nn.LSTMCell) else m(*operands)
    return torch.cat(made, -1) if isinstance(made, tuple) else made


def imported(m: Any, *widths: int) -> Compiled:
    """Regression on what the module makes of linear functions of x: so its operands' gradients count too."""
    layer = fe.from_torch(m)
    first = [fe.Linear(w, name=f"first{k}") for k, w in enumerate(widths)]
    made = computed(m, [torch.zeros(1, w) for w in widths])

    def model(x: Any) -> None:
        y = layer(*(f(x.x) for f in first))
        fe.regress(fe.concat(*y) if isinstance(y, list) else y, x.y)

    return fe.compile(model, fe.Record(x=fe.Floats(DEEP), y=fe.Floats(made.shape[1])))


@pytest.mark.parametrize("name", MODULES)
def test_results_and_gradients_are_those_of_autograd(name: str) -> None:
    torch.manual_seed(1)
    make, widths = MODULES[name]
    m = make()
    compiled, rng = imported(m, *widths), np.random.default_rng(2)
    plain = [
        {"x": rng.normal(size=DEEP).astype(np.float32), "y": rng.normal(size=compiled.spec.parts["y"].width)}  # type: ignore[attr-defined]
        for _ in range(ROWS)
    ]
    instances = [compiled.encode(p, i) for i, p in enumerate(plain)]
    for number, instance in enumerate(instances):
        instance.number = number
    expected = reference(compiled.graph, instances)

    m = m.double()
    first = [nn.Linear(DEEP, w).double() for w in widths]
    for k, f in enumerate(first):
        f.weight.data = torch.from_numpy(expected.parameters[f"first{k}.W"].T.copy())
        f.bias.data = torch.from_numpy(expected.parameters[f"first{k}.b"].copy())
    x = torch.tensor(np.array([p["x"] for p in plain], np.float64))
    y = torch.tensor(np.array([p["y"] for p in plain]).astype(np.float32).astype(np.float64))
    loss = (computed(m, [f(x) for f in first]) - y).square().sum()
    theirs = gradients(nn.ModuleList([m, *first]), loss)
    assert sum(expected.losses.values()) == pytest.approx(loss.item(), rel=1e-6)
    assert_gradients(expected.gradients, "layer", {n[2:]: g for n, g in theirs.items() if n[:2] == "0_"})
    for k in range(len(widths)):
        own = {"W": theirs[f"{k + 1}_weight"], "b": theirs[f"{k + 1}_bias"]}
        assert_gradients(expected.gradients, f"first{k}", own)

    device = CpuDevice()
    try:
        assert_same(run(device, compiled.graph, instances, workers=2), expected)
    finally:
        device.close()


def test_a_layer_starts_with_the_weights_and_leaves_them_alone() -> None:
    m = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    (node,) = (n for n in imported(m, 3).graph.nodes.values() if n.name == "layer")
    weight, bias = node.params
    assert (weight.name, weight.shape, bias.name) == ("0_weight", (3, 2), "0_bias")
    assert weight.values is not None
    np.testing.assert_array_equal(weight.values, m[0].weight.detach().numpy().T)
    m[0].weight.data.zero_()
    assert weight.values.any()


def test_a_module_without_weights_is_no_parameterised_node() -> None:
    assert isinstance(imported(nn.Softmax(-1), 3).graph.nodes["layer"], NPT)


def test_cells_and_embeddings_in_a_loop() -> None:
    """One embedding looked up in two places, one of whose rows is padding and not trained."""
    torch.manual_seed(3)
    words, rnn, out = nn.Embedding(7, 4, padding_idx=2), nn.LSTMCell(4, 3), nn.Linear(7, 3)
    embed, cell, head = fe.from_torch(words), fe.from_torch(rnn), fe.from_torch(out)

    def model(x: Any) -> None:
        def step(state: Any, token: Any) -> Any:
            return tuple(cell(token, *state))

        h, _ = fe.fold(step, (fe.constant(3), fe.constant(3)), embed(x.tokens))
        first = embed(x.extra)
        fe.classify(head(fe.concat(h, first)), x.label)

    tokens = fe.Sequence(fe.Int(7), most=5)
    compiled = fe.compile(model, fe.Record(tokens=tokens, extra=fe.Int(7), label=fe.Int(3)))
    plain = [
        {"tokens": [4], "extra": 1, "label": 2},
        {"tokens": [2, 2, 1], "extra": 2, "label": 0},
        {"tokens": [6, 0, 2, 6, 5], "extra": 5, "label": 1},
    ]
    instances = [compiled.encode(p) for p in plain]
    for number, instance in enumerate(instances):
        instance.number = number
    found = reference(compiled.graph, instances)
    device = CpuDevice()
    try:
        assert_same(run(device, compiled.graph, instances, workers=2), found)
    finally:
        device.close()

    whole = nn.ModuleList([words, rnn, out]).double()
    loss = torch.zeros((), dtype=torch.float64)
    for p in plain:
        e = words(torch.tensor(p["tokens"]))
        h = c = torch.zeros(1, 3, dtype=torch.float64)
        for token in e:
            h, c = rnn(token[None], (h, c))
        extra = words(torch.tensor([p["extra"]]))
        loss = loss + F.cross_entropy(out(torch.cat([h, extra], 1)), torch.tensor([p["label"]]))
    theirs = gradients(whole, loss)
    assert sum(found.losses.values()) == pytest.approx(loss.item(), rel=1e-6)
    for k, node in enumerate(("embed", "cell", "head")):
        want = {n[2:]: g for n, g in theirs.items() if n.startswith(f"{k}_")}
        assert_gradients(found.gradients, node, want)


def test_tied_weights_are_one_parameter() -> None:
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    m[1].weight = m[0].weight
    (node,) = (n for n in imported(m, 4).graph.nodes.values() if n.name == "layer")
    assert [p.name for p in node.params] == ["0_weight", "0_bias", "1_bias"]


def test_dropout_is_as_in_the_module() -> None:
    """Half of the numbers are left out in training, none in inference, and none after eval()."""
    m = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    m[0].weight.data, m[0].bias.data = torch.zeros(64, 64), torch.ones(64)
    for training in (True, False):
        layer = fe.from_torch(m.train(training))

        def model(x: Any, layer: Any = layer) -> None:
            for k in range(2):
                y = layer(x.x)
                fe.loss(fe.sum_columns(y) * (1 / 64), name=f"loss{k}")

        compiled = fe.compile(model, fe.Record(x=fe.Sequence(fe.Floats(64), most=40)))
        instance = compiled.encode({"x": np.ones((40, 64))})
        losses = {mode: reference(compiled.graph, [instance], mode=mode).losses[0] / 80 for mode in Mode}
        assert losses[Mode.INFER] == pytest.approx(1)
        assert (losses[Mode.TRAIN] == pytest.approx(1)) != training
        assert losses[Mode.TRAIN] == pytest.approx(1, abs=0.1)


def _condition(self: Any, x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def _frozen() -> Any:
    return nn.Linear(4, 4).requires_grad_(False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "module": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Softplus())),
        r"torch\.nn\.Softplus at '1\.0' has no counterpart here$",
    ),
    "loop": (
        lambda: module(lambda self, x: self.lstm(x), lstm=nn.LSTM(4, 4)),
        r"HERE: torch\.nn\.LSTM at 'lstm' has no counterpart here; loops belong to the model: use "
        r"LSTMCell in fe\.fold$",
    ),
    "function": (
        lambda: nn.Sequential(module(lambda self, x: torch.erf(x))),
        r"HERE: torch\.erf in '0' has no counterpart here$",
    ),
    "method": (lambda: module(lambda self, x: x.cumsum(0)), "HERE: Tensor.cumsum has no counterpart here$"),
    "control-flow": (
        lambda: module(_condition),
        r"HERE: the module cannot be traced: symbolically traced variables cannot be used as inputs to "
        r"control flow; decisions and loops belong to the model: fe\.cond, fe\.scan$",
    ),
    "loop-over-rows": (
        lambda: module(lambda self, x: torch.cat(list(x), 1)),
        "HERE: the module cannot be traced: Proxy object cannot be iterated; decisions and loops belong "
        r"to the model: fe\.cond, fe\.scan$",
    ),
    "rows-together": (
        lambda: module(lambda self, x: torch.cat([x, x], 0)),
        r"HERE: torch\.cat: along dimension 0; a value is \[rows, width\], and only its columns, "
        "-1, are together",
    ),
    "reshaped": (
        lambda: module(lambda self, x: x.view(x.size(0), 2, 2)),
        r"HERE: Tensor\.view: \[rows, 4\] cannot become \[rows, 2, 2\]; rows stay rows, and columns columns",
    ),
    "argument": (
        lambda: module(lambda self, x: torch.div(x, 2, rounding_mode="floor")),
        r"HERE: torch\.div: called in a way that is not known here: got an unexpected keyword argument "
        "'rounding_mode'",
    ),
    "widths": (
        lambda: module(lambda self, x: self.inner(x), inner=nn.Linear(5, 3)),
        r"HERE: torch\.nn\.Linear at 'inner': matmul: the operand has width 4, parameter 'inner_weight' has "
        r"5 rows \(the layer is used at .*test_torch_import\.py:\d+\)$",
    ),
    "both-ways": (
        lambda: module(lambda self, x: x @ self.W @ self.W.T, W=nn.Parameter(torch.eye(4))),
        r"HERE: operator\.matmul: the parameter 'W' is used as it is and transposed; that takes two",
    ),
    "buffer": (
        lambda: module(lambda self, x: x * self.k, k=nn.Buffer(torch.ones(4))),
        "HERE: the tensor 'k' is no parameter, and more than a number; make it one$",
    ),
    "in-place": (
        lambda: module(lambda self, x: F.relu(x, inplace=True) + x),
        r"HERE: torch\.nn\.functional\.relu works in place on what is read elsewhere; use a new value$",
    ),
    "in-place-view": (
        lambda: module(lambda self, x: x[:, :2].relu_()),
        r"HERE: Tensor\.relu_ works in place on what is read elsewhere; use a new value$",
    ),
    "frozen": (_frozen, r"the parameter 'weight' is frozen, and a layer trains all that it has; call "),
    "row-picked": (
        lambda: module(lambda self, x: x[0]),
        r"HERE: operator\.getitem: a value is read by columns",
    ),
    "single-column": (
        lambda: module(lambda self, x: x[:, 0]),
        r"HERE: operator\.getitem: .* stay a dimension",
    ),
    "no-value": (lambda: module(lambda self, x: {"y": x}), "the result of the module: a value was expected"),
    "operands": (lambda: module(lambda self, x, y: x), r"the module takes the operands \(x, y\), got 1$"),
    "any-operands": (lambda: module(lambda self, *xs: xs[0]), "cannot be traced|forward takes"),
    "index": (
        lambda: nn.Embedding(4, 2),
        "the operand 'input' of the module is an Integer, the index of an em",
    ),
    "no-weights-yet": (
        lambda: nn.Linear(4, 4, device="meta"),
        "the parameter 'weight' has no values: Cannot copy out of meta tensor",
    ),
    "hooks": (lambda: _hooked(), "the module has hooks at '0', which a trace does not see$"),
}


def _hooked() -> Any:
    m = nn.Sequential(nn.Linear(4, 4))
    m[0].register_forward_hook(lambda m, x, y: y * 2)
    return m


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_counterpart_is_refused_with_its_place(name: str) -> None:
    make, text = REFUSED[name]
    m = make()

    def model(x: Any) -> None:
        fe.loss(fe.sum_columns(fe.from_torch(m)(x.x)))

    with pytest.raises(fe.FrontendError) as caught:
        fe.compile(model, fe.Record(x=fe.Floats(4)))
    assert re.search(text.replace("HERE", r"test_torch_import\.py:\d+"), str(caught.value)), caught.value


def test_only_modules_are_taken() -> None:
    with pytest.raises(fe.FrontendError, match=r"from_torch takes a torch\.nn\.Module, got 3$"):
        fe.from_torch(3)


def test_the_program_of_the_manual_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "language.md"
    (program,) = re.findall(
        r"^```text\n(import torch\n.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
    )
    exec(compile(program, str(page), "exec"), {})
