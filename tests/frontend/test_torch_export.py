"""Programs of torch.export with loops and decisions: gradients are those of autograd for each length."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amphw
from amphw import frontend as fe
from tests.frontend.modules import F, module, nn, torch
from tests.frontend.programs import assert_like_autograd, compiled, exported, saved

mapped = pytest.importorskip("torch._higher_order_ops.map").map
scan = pytest.importorskip("torch._higher_order_ops.scan").scan
while_loop = pytest.importorskip("torch._higher_order_ops.while_loop").while_loop
pytestmark = pytest.mark.filterwarnings("ignore:::torch")


def recurrent(self: Any, tokens: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = self.cell(x[None], h)
        return h, h.clone()

    return self.head(scan(step, torch.zeros(1, 6), self.embed(tokens))[0])


def lstm(self: Any, x: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = self.cell(x[None], state)
        return (h, c), torch.tanh(h)

    (h, _), ys = scan(step, (self.h.expand(1, 6), torch.zeros(1, 6)), x)
    return h, self.head(ys)


def by_hand(self: Any, x: Any, v: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = torch.tanh(x @ self.W + h @ self.U + self.b) * torch.sigmoid(v)
        return h, h * 2

    h, ys = scan(step, torch.zeros(4), x, reverse=True)
    return h, ys + x


def both_ways(self: Any, x: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = torch.tanh(self.inner(torch.cat([x, h])))
        return h, h.clone()

    _, ahead = scan(step, torch.zeros(4), x)
    _, back = scan(step, torch.zeros(4), x, reverse=True)
    return torch.cat([ahead, back], 1) * self.scale


def attending(self: Any, x: Any) -> Any:
    """Each turn of a loop reads all positions."""

    def step(h: Any, y: Any) -> Any:
        fits = torch.softmax((x * self.inner(h)).sum(-1), 0)
        h = torch.tanh((x * fits[:, None]).sum(0) + y)
        return h, h.clone()

    return scan(step, torch.zeros(4), x)


SCANS: dict[str, Callable[[], Any]] = {
    "gru": lambda: module(recurrent, embed=nn.Embedding(9, 4), cell=nn.GRUCell(4, 6), head=nn.Linear(6, 3)),
    "lstm": lambda: module(lstm, cell=nn.LSTMCell(4, 6), head=nn.Linear(6, 3), h=6),
    "by-hand-from-the-end": lambda: module(by_hand, W=(4, 4), U=(4, 4), b=4),
    "one-cell-both-ways": lambda: module(both_ways, inner=nn.Linear(8, 4), scale=8),
    "attending": lambda: module(attending, inner=nn.Linear(4, 4)),
}


def step_twice(self: Any, x: Any, k: Any) -> Any:
    y = torch.cond(k == 1, lambda x: self.a(x), lambda x: torch.tanh(self.b(x)), (x,))
    h = y.mean(0)
    return torch.cond(h.sum() > 0, lambda h: self.a(h), lambda h: h * self.s, (h,)), y


def each(self: Any, x: Any, v: Any) -> Any:
    return mapped(lambda row, v: torch.tanh(self.inner(row)) + v * self.s, x, v)


def pairs(self: Any, x: Any) -> Any:
    keys = self.key(x)

    def look(row: Any, keys: Any) -> Any:
        return torch.softmax((keys * self.query(row)).sum(-1, keepdim=True), 0).mul(keys).sum(0)

    return mapped(look, x, keys)


def conditions(self: Any, x: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = torch.cond(x.sum() > h.sum(), lambda x, h: self.a(x + h), lambda x, h: h - self.b(x), (x, h))
        return h, h.clone()

    return scan(step, torch.zeros(4), x)


FLOWS: dict[str, Callable[[], Any]] = {
    "cond": lambda: module(step_twice, a=nn.Linear(4, 4), b=nn.Linear(4, 4), s=4),
    "map": lambda: module(each, inner=nn.Linear(4, 4), s=()),
    "map-over-pairs": lambda: module(pairs, key=nn.Linear(4, 3), query=nn.Linear(4, 3)),
    "cond-in-scan": lambda: module(conditions, a=nn.Linear(4, 4), b=nn.Linear(4, 4)),
}


def along(self: Any, x: Any) -> Any:
    y = torch.relu(self.same(x.t()[None]))
    y = self.causal(F.pad(y, (4, 0)))[0].t()
    return y, (y - y.mean(0)) * self.s


def reductions(self: Any, x: Any, tokens: Any) -> Any:
    y = self.inner(x) + self.place(torch.arange(x.shape[0]))
    whole = y.sum() + y.mean() * y.amax()
    parts = torch.stack([y.sum(0), y.mean(0), y.amax(0), y.max(0)[0], y[-1], y[0], y.sum(0) / x.shape[0]])
    return (
        whole,
        parts,
        torch.softmax(y, 0),
        torch.log_softmax(y, dim=0),
        y.flip(0) * self.s,
        y[tokens.shape[0] - 1],
    )


def look_up(self: Any, x: Any, k: Any, tokens: Any) -> Any:
    y = self.embed((tokens + k) % 9) * (tokens == k)[:, None]
    return y.sum(0), (self.embed(k) * x[0]).sum(), torch.where(tokens[:, None] < 3, y, self.s)


def heads(self: Any, x: Any) -> Any:
    """As it is written for several heads: [1, n, heads, width] with the heads before the positions."""
    x = x[None]
    q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.out(y.transpose(1, 2).flatten(2))


def pixels(self: Any, image: Any) -> Any:
    y = F.max_pool2d(torch.relu(self.first(image)), 2, stride=1)
    return self.top(F.avg_pool2d(torch.tanh(self.second(y)), 2).flatten(1))


def written(self: Any, x: Any, v: Any) -> Any:
    y = self.inner(x)
    y += v
    first = y[:, :1]
    y.mul_(self.s)
    y[:, 2] = v[0]
    return y.relu_(), first


def pooled(self: Any, x: Any, v: Any) -> Any:
    """A cell that begins outside of its loop, and attention that is written as a product."""

    def step(h: Any, x: Any) -> Any:
        h = self.cell(x[None], h)
        return h, h.clone()

    h = self.cell(v[None], torch.zeros(1, 4))
    h, ys = scan(step, h, x)
    weights = torch.softmax(self.score(ys[:, 0]), 0)
    return weights.t() @ ys[:, 0], torch.max(h, v), torch.minimum(h, v)


OTHERS: dict[str, Callable[[], Any]] = {
    "conv1d": lambda: module(
        along, same=nn.Conv1d(4, 3, 3, padding=1), causal=nn.Conv1d(3, 2, 3, dilation=2, bias=False), s=2
    ),
    "reductions": lambda: module(reductions, inner=nn.Linear(4, 3), place=nn.Embedding(5, 3), s=3),
    "integers": lambda: module(look_up, embed=nn.Embedding(9, 4), s=4),
    "attention": lambda: module(heads, qkv=nn.Linear(4, 12), out=nn.Linear(4, 3)),
    "pooled": lambda: module(pooled, cell=nn.GRUCell(4, 4), score=nn.Linear(4, 1)),
    "in-place": lambda: module(written, inner=nn.Linear(4, 4), s=4),
    "conv2d": lambda: module(
        pixels, first=nn.Conv2d(2, 3, 3, padding=1), second=nn.Conv2d(3, 2, 2), top=nn.Linear(2, 3)
    ),
}


@pytest.mark.parametrize("name", [*SCANS, *FLOWS, *OTHERS])
def test_gradients_are_those_of_autograd_for_each_length(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    made = {**SCANS, **FLOWS, **OTHERS}[name]()
    assert_like_autograd(made, fe.from_export(saved(exported(made), tmp_path)))


def test_a_program_need_not_be_saved() -> None:
    made = FLOWS["map"]()
    assert_like_autograd(made, fe.from_export(exported(made)))


def counted(self: Any, v: Any) -> Any:
    def body(i: Any, h: Any) -> Any:
        return i + 1, torch.tanh(self.inner(h))

    return while_loop(lambda i, h: (i < 3) & (h.sum() < 9), body, (torch.zeros((), dtype=torch.int64), v))


def counted_plainly(self: Any, v: Any) -> Any:
    i, h = torch.zeros(()), v
    while i < 3 and h.sum() < 9:
        i, h = i + 1, torch.tanh(self.inner(h))
    return i, h


def decided(self: Any, x: Any) -> Any:
    h = self.inner(x.mean(0))
    return while_loop(lambda h: h.abs().sum() > 0.3, lambda h: (self.inner(torch.tanh(h)) * x.sum(),), (h,))[
        0
    ]


def decided_plainly(self: Any, x: Any) -> Any:
    h, turns = self.inner(x.mean(0)), 0
    while h.abs().sum() > 0.3 and turns < 4:
        h, turns = self.inner(torch.tanh(h)) * x.sum(), turns + 1
    return h


def test_a_loop_that_counts_has_a_bound_of_itself() -> None:
    torch.manual_seed(1)
    made = module(counted, inner=nn.Linear(4, 4))
    assert_like_autograd(made, fe.from_export(exported(made)), plain_forward=counted_plainly)


def test_a_loop_that_the_network_ends_has_the_bound_that_is_given() -> None:
    torch.manual_seed(1)
    made = module(decided, inner=nn.Linear(4, 4))
    program = exported(made)
    assert_like_autograd(made, fe.from_export(program, most=4), plain_forward=decided_plainly)
    with pytest.raises(fe.FrontendError, match=r"while_loop: .* bound: from_export\(..., most=n\)"):
        compiled(fe.from_export(program), ["x"])


class Sentence(nn.Module):  # type: ignore[misc, name-defined]
    """Of a batch of sequences the last state of each."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(9, 4), nn.GRUCell(4, 6), nn.Linear(6, 3)

    def forward(self, tokens: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = self.cell(x, h)
            return h, h.clone()

        start = torch.zeros(tokens.shape[0], 6)
        return self.head(scan(step, start, self.embed(tokens).transpose(0, 1))[0])


def batched() -> Any:
    """Both the batch and the length differ."""
    dims = {0: torch.export.Dim("b", min=1), 1: torch.export.Dim("n", min=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = Sentence()
        return module, torch.export.export(
            module, (torch.zeros(2, 3, dtype=torch.int64),), dynamic_shapes=(dims,)
        )


def tokens_of(length: int) -> list[int]:
    return [(3 * k + length) % 9 for k in range(length)]


def test_a_batch_is_one_instance_and_a_program_may_be_used_twice() -> None:
    torch.manual_seed(1)
    made, program = batched()
    net = fe.from_export(program)

    def model(x: Any) -> None:
        fe.classify(net(x.a) + net(x.b), x.label)

    spec = fe.Record(**{k: fe.Sequence(fe.Int(9), most=5) for k in "ab"}, label=fe.Int(3))
    c = fe.compile(model, spec)
    a, b = tokens_of(4), tokens_of(2)
    found = c.to_torch(c.gradients({"a": a, "b": b, "label": 1}))["net"]
    F.cross_entropy(made(torch.tensor([a])) + made(torch.tensor([b])), torch.tensor([1])).backward()
    for path, parameter in made.named_parameters():
        torch.testing.assert_close(found[path], parameter.grad.double(), rtol=1e-4, atol=1e-5)


def test_within_a_sequence_of_sequences_it_is_of_the_inner_one() -> None:
    torch.manual_seed(1)
    made, program = batched()
    net = fe.from_export(program)
    word = fe.Record(letters=fe.Sequence(fe.Int(9), most=5), label=fe.Int(3))
    spec = fe.Record(words=fe.Sequence(word, most=3))
    c = fe.compile(lambda x: fe.classify(net(x.words.letters), x.words.label), spec)
    given = [tokens_of(n) for n in (2, 5, 1)]
    found = c.to_torch(c.gradients({"words": [{"letters": w, "label": 2} for w in given]}))["net"]
    sum(F.cross_entropy(made(torch.tensor([w])), torch.tensor([2])) for w in given).backward()
    for path, parameter in made.named_parameters():
        torch.testing.assert_close(found[path], parameter.grad.double(), rtol=1e-4, atol=1e-5)


def test_what_was_learnt_computes_the_same_in_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(1)
    made, program = batched()
    net = fe.from_export(saved(program, tmp_path))

    def model(x: Any) -> None:
        fe.classify(net(x.tokens), x.label)

    spec = fe.Record(tokens=fe.Sequence(fe.Int(9), most=5), label=fe.Int(3))
    data = [{"tokens": tokens_of(1 + k % 5), "label": k % 3} for k in range(60)]
    run = amphw.train(model, data, spec=spec, epochs=1, progress=False, lr=0.02)
    for state in (run.to_torch(), amphw.load(run.save(tmp_path / "run")).to_torch()):
        assert state.keys() == {"net"} and state["net"].keys() == program.state_dict.keys()
        made.load_state_dict(state["net"])
        for x in data[:5]:
            ours = float(run.outputs(x)["loss"]["loss"][0, 0])
            theirs = F.cross_entropy(made(torch.tensor([x["tokens"]])), torch.tensor([x["label"]]))
            assert ours == pytest.approx(theirs.item(), rel=1e-5)
