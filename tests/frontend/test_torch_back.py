"""From PyTorch and back: what was learnt here computes the same there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.frontend.saved import compiled_from_json, compiled_to_json
from tests.frontend.modules import F, nn, torch

SPEC = fe.Record(tokens=fe.Sequence(fe.Int(9), most=7), label=fe.Int(3))


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """Matrices as they are and transposed, a row of numbers, a buffer, and a parameter that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(6, 6), nn.Parameter(torch.randn(1, 6))
        self.straight = nn.Parameter(torch.randn(6, 6))
        self.unread = nn.Parameter(torch.randn(2))
        self.register_buffer("factor", torch.tensor(0.5))

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.inner(x) @ self.straight) * self.scale * self.factor + x


def modules() -> dict[str, Any]:
    torch.manual_seed(3)
    head = nn.Sequential(Block(), nn.Linear(6, 3))
    return {"embed": nn.Embedding(9, 4), "cell": nn.GRUCell(4, 6), "head": head}


def model(of: dict[str, Any]) -> Any:
    embed, cell, head = (fe.from_torch(of[name]) for name in ("embed", "cell", "head"))

    def tokens(x: Any) -> None:
        h = fe.fold(lambda h, token: cell(token, h), fe.constant(6), embed(x.tokens))
        fe.classify(head(h), x.label)

    return tokens


def logits(of: dict[str, Any], tokens: Any) -> Any:
    h = torch.zeros(1, 6)
    for token in tokens:
        h = of["cell"](of["embed"](torch.tensor([int(token)])), h)
    return of["head"](h)


def data(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    lists = [rng.integers(0, 9, rng.integers(1, 8)) for _ in range(count)]
    return [{"tokens": tokens, "label": int(tokens.sum() % 3)} for tokens in lists]


def test_what_was_learnt_computes_the_same_in_pytorch(tmp_path: Path) -> None:
    of = modules()
    run = amphw.train(model(of), data(200), spec=SPEC, epochs=2, progress=False, lr=0.02)
    amphw_losses = [float(run.outputs(x)["loss"]["loss"][0, 0]) for x in data(10)]
    for state in (run.to_torch(), amphw.load(run.save(tmp_path / "run")).to_torch()):
        there = modules()
        for name, found in state.items():
            there[name].load_state_dict(found)
        with torch.no_grad():
            theirs = [
                float(F.cross_entropy(logits(there, x["tokens"]), torch.tensor([x["label"]])))
                for x in data(10)
            ]
        np.testing.assert_allclose(amphw_losses, theirs, 1e-5)
    before, after = of["head"].state_dict(), state["head"]
    assert not torch.equal(after["0.straight"], before["0.straight"]), "it has learnt"
    for name in ("0.unread", "0.factor"):
        assert torch.equal(after[name], before[name])


def test_gradients_are_compared_with_autograds_under_its_names() -> None:
    of = modules()
    compiled = fe.compile(model(of), SPEC)
    (instance,) = data(1)
    loss = F.cross_entropy(logits(of, instance["tokens"]), torch.tensor([instance["label"]]))
    loss.backward()
    for c in (compiled, compiled_from_json(json.loads(json.dumps(compiled_to_json(compiled))))):
        found = c.to_torch(c.gradients(instance))
        assert found.keys() == of.keys()
        for name, module in of.items():
            for path, parameter in module.named_parameters():
                if parameter.grad is not None:
                    ours = found[name][path].to(parameter.grad.dtype)
                    torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)


def test_a_type_of_its_own_is_kept() -> None:
    of = modules()
    of["head"] = of["head"].double()
    compiled = fe.compile(model(of), SPEC)
    start = {n: {k: v.astype(np.float32) for k, v in p.items()} for n, p in compiled.parameters().items()}
    state = compiled.to_torch(start)
    assert {tensor.dtype for tensor in state["head"].values()} == {torch.float64}
    assert {tensor.dtype for tensor in state["cell"].values()} == {torch.float32}


def test_without_pytorch_the_way_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = fe.compile(model(modules()), SPEC)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(fe.FrontendError, match=r"to_torch needs PyTorch"):
        compiled.to_torch({})


def test_gradients_keep_their_double_precision() -> None:
    of = modules()
    compiled = fe.compile(model(of), SPEC)
    (instance,) = data(1)
    found = compiled.to_torch(compiled.gradients(instance))
    for module in of.values():
        module.double()
    h = torch.zeros(1, 6, dtype=torch.float64)
    for token in instance["tokens"]:
        h = of["cell"](of["embed"](torch.tensor([int(token)])), h)
    F.cross_entropy(of["head"](h), torch.tensor([instance["label"]])).backward()
    for name, module in of.items():
        for path, parameter in module.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(found[name][path], parameter.grad, rtol=1e-10, atol=1e-14)
