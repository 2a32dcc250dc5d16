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
from tests.frontend.modules import F, module, nn, torch

ROWS, DEEP = 5, 4  # instances, and width of what the first layer gets


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


def in_place(self: Any, x: Any) -> Any:
    """Python's operators on values that nobody else reads."""
    y = self.l(x)
    y += x
    y *= 2
    y -= 1
    y /= x * x + 1
    y **= 2
    return y


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
    "smooth-activations": (
        lambda: nn.Sequential(
            *(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 5), nn.Softplus(beta=2.0), nn.Linear(5, 5)),
            nn.GELU(approximate="tanh"),
        ),
        (6,),
    ),
    "log-softmax": (lambda: nn.LogSoftmax(-1), (6,)),
    "functions": (
        lambda: module(lambda self, x: F.softmax(F.relu(x) + torch.sigmoid(x) * x.tanh() - F.silu(x), -1)),
        (6,),
    ),
    "smooth-functions": (lambda: module(lambda self, x: F.softplus(F.gelu(x)) - F.gelu(-x)), (6,)),
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
            lambda self, x: torch.addmm(self.b, x @ self.W, self.turned.t(), alpha=0.5) * self.scale - self.s,
            W=(6, 6),
            turned=(6, 6),
            b=(6,),
            scale=(1, 6),
            s=(),
        ),
        (6,),
    ),
    "functional-linear": (
        lambda: module(lambda self, x: F.linear(x, self.turned, self.b), turned=(6, 6), b=6),
        (6,),
    ),
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
    "in-place": (lambda: module(in_place, l=nn.Linear(4, 4)), (4,)),
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
    "norms-by-the-root-of-the-square": (
        lambda: module(
            lambda self, x: self.norm(x) + F.rms_norm(x, (4,), self.w, 1e-6), norm=nn.RMSNorm(4, 1e-3), w=(4,)
        ),
        (4,),
    ),
    "bent-activations": (lambda: nn.Sequential(nn.LeakyReLU(0.2), nn.ELU(0.7), nn.Linear(5, 5)), (5,)),
    "bent-functions": (
        lambda: module(lambda self, x, y: F.elu(x) * F.leaky_relu(y) + x.maximum(y) - torch.minimum(x, y)),
        (4, 4),
    ),
    "equal-numbers": (lambda: module(lambda self, x: torch.maximum(x, x) + torch.minimum(x, x) * x), (4,)),
    "types": (
        lambda: module(lambda self, x: self.w.view(-1) * x.to(torch.float32).to(x.dtype).float(), w=(1, 4)),
        (4,),
    ),
    "sizes-put-together": (
        lambda: module(lambda self, x: self.l(x).view(x.size()[:-1] + (3,)), l=nn.Linear(4, 3)),
        (4,),
    ),
    "dropout-in-inference": (lambda: module(lambda self, x: F.dropout(x, 0.5, False)), (4,)),
    "default-operand": (lambda: module(lambda self, x, factor=0.5, bias=None: x * factor), (4,)),
}


def turned(m: Any) -> set[str]:
    """The parameters that PyTorch multiplies with transposed, which are stored the other way round here."""
    found = {n for n, _ in m.named_parameters() if n.rpartition(".")[2] == "turned"}
    for path, part in m.named_modules():
        names = {nn.Linear: ["weight"], nn.RNNCell: _CELL, nn.GRUCell: _CELL, nn.LSTMCell: _CELL}
        found |= {f"{path}.{n}".removeprefix(".") for n in names.get(type(part), ())}
    return found


_CELL = ["weight_ih", "weight_hh"]


def gradients(m: Any, loss: Any) -> dict[str, np.ndarray]:
    """By our names, in our layout."""
    m.zero_grad()
    loss.backward()
    other_way = turned(m)
    return {
        n.replace(".", "_"): (p.grad.T if n in other_way else p.grad).numpy() for n, p in m.named_parameters()
    }


def assert_gradients(found: dict[str, np.ndarray], node: str, expected: dict[str, np.ndarray]) -> None:
    ours = {k.removeprefix(f"{node}."): g for k, g in found.items() if k.startswith(f"{node}.")}
    assert ours.keys() == {n for n, g in expected.items() if n in ours or np.abs(g).max() > 0}
    for name, g in ours.items():
        want = expected[name].reshape(g.shape) if g.ndim == 1 else expected[name]  # [1, width] is a row here
        np.testing.assert_allclose(g, want, 1e-5, 1e-6, err_msg=f"{node}.{name}")


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


def test_the_program_of_the_manual_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "imports.md"
    (program,) = re.findall(
        r"^```text\n(import torch\n.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S
    )
    exec(compile(program, str(page), "exec"), {})
