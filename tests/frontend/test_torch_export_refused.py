"""What a program of torch.export has that has no counterpart is named, with the line that it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amphw import frontend as fe
from tests.frontend.modules import F, nn, torch
from tests.frontend.programs import SPEC, compiled, exported, operands

scan = pytest.importorskip("torch._higher_order_ops.scan").scan
pytestmark = pytest.mark.filterwarnings("ignore:::torch")


class Unknown(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return torch.erf(x)  # here


class Inside(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return scan(lambda h, y: (h + y, torch.erf(y)), torch.zeros(4), x)  # here


class Longer(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, v: Any) -> Any:
        return torch.cat([v[None], x])  # here


class Pairs(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x @ x.t()  # here


class Narrow(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)

    def forward(self, x: Any) -> Any:
        y = x.t()[None]
        return F.conv1d(y, self.conv.weight, padding=2)  # here


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)

    def forward(self, tokens: Any) -> Any:
        y = self.embed(tokens).sum(0)
        return F.linear(y, self.embed.weight)  # here


CASES: dict[type, str] = {
    Unknown: "aten.erf: has no counterpart here",
    Inside: "aten.erf: has no counterpart here",
    Longer: "aten.cat: makes positions that no sequence of the instance has",
    Pairs: "aten.matmul: is of every pair of positions",
    Narrow: "aten.conv1d: gives a length of",
    Tied: "aten.linear: the parameter 'embed_weight' is used here in another way than at",
}


@pytest.mark.parametrize("of", CASES, ids=lambda of: of.__name__)
def test_it_is_named_with_its_line(of: type, tmp_path: Path) -> None:
    lines = Path(__file__).read_text().splitlines()
    start = lines.index(f"class {of.__name__}(nn.Module):  # type: ignore[misc, name-defined]")
    line = next(k for k, text in enumerate(lines[start:], start + 1) if text.endswith("# here"))
    path = tmp_path / "program.pt2"
    torch.export.save(exported(of()), path)
    with pytest.raises(fe.FrontendError, match=re.escape(CASES[of])) as found:
        fe.from_export(path)
    assert f"test_torch_export_refused.py:{line}: " in str(found.value)


class Sum(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, v: Any) -> Any:
        return scan(lambda h, y: (h + y, h * y), v, x)


def fixed(module: Any, *example: Any) -> Any:
    return torch.export.export(module, example)


def test_a_program_for_one_length_is_refused_with_the_remedy() -> None:
    net = fe.from_export(fixed(Sum(), torch.randn(3, 4), torch.randn(4)))
    told = r"'x' is \[3, 4\] in the program, specialised to this length, "
    match = told + r".*dynamic_shapes=.*Dim\('n', min=1, max=5\)"
    with pytest.raises(fe.FrontendError, match=match):
        compiled(net, ["x", "v"])
    with pytest.raises(
        fe.FrontendError, match="goes over a length of 3 for which the program is specialised"
    ):
        fe.compile(
            lambda x: fe.loss(fe.sum_columns(net(x.rows, x.v)[0])),
            fe.Record(rows=fe.Floats(12), v=fe.Floats(4)),
        )


def test_associative_scan_is_refused() -> None:
    associative = pytest.importorskip("torch._higher_order_ops.associative_scan").associative_scan

    class Associative(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return associative(lambda a, b: a + b, x, 0, combine_mode="generic")

    with pytest.raises(fe.FrontendError, match="associative_scan is exported for one length alone"):
        compiled(fe.from_export(fixed(Associative(), torch.randn(3, 4))), ["x"])


def test_lengths_that_the_program_is_not_for_are_refused() -> None:
    length = torch.export.Dim("n", min=2, max=3)
    shapes = ({0: length}, None)
    program = torch.export.export(Sum(), (torch.randn(3, 4), torch.randn(4)), dynamic_shapes=shapes)
    with pytest.raises(fe.FrontendError, match=r"from 2 to 3, and here it is from 1 to 5; .*min=1, max=5"):
        compiled(fe.from_export(program), ["x", "v"])


def test_what_trains_otherwise_is_refused() -> None:
    class Counting(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return x * self.count

    with pytest.raises(fe.FrontendError, match=r"changes 'count' while it runs"):
        fe.from_export(fixed(Counting(), torch.randn(3, 4)))
    with pytest.raises(fe.FrontendError, match="changes 'running_mean' while it runs"):
        fe.from_export(fixed(nn.BatchNorm1d(4), torch.randn(3, 4)))
    frozen = nn.Linear(4, 4)
    frozen.weight.requires_grad_(False)
    with pytest.raises(fe.FrontendError, match="the parameter 'weight' is frozen"):
        fe.from_export(fixed(frozen, torch.randn(3, 4)))


OPERANDS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "too-few": (lambda net, x: net(x.x), r"the program takes the operands \(x, v\), got 1"),
    "an-integer": (
        lambda net, x: net(x.tokens, x.v),
        "the operand 'x' of the program is a value, got Integer",
    ),
    "no-positions": (lambda net, x: net(x.v, x.v), "goes along the length '.*', which no operand has here"),
    "width": (
        lambda net, x: net(x.x, x.image),
        r"the operand 'v' has 4 numbers \[4\] in the program, got 50",
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_do_not_fit_are_refused(name: str) -> None:
    use, match = OPERANDS[name]
    net = fe.from_export(exported(Sum()))
    assert operands(Sum()) == ["x", "v"]
    with pytest.raises(fe.FrontendError, match=match):
        fe.compile(lambda x: fe.loss(fe.sum_columns(use(net, x)[0])), SPEC)


class Product(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any, y: Any) -> Any:
        return x[:, None] * y[None]


def test_pairs_of_positions_are_not_taken_for_equal_ones() -> None:
    dims = tuple({0: torch.export.Dim(name, min=1)} for name in "nm")
    program = torch.export.export(Product(), (torch.randn(3, 4), torch.randn(2, 4)), dynamic_shapes=dims)
    net = fe.from_export(program)
    with pytest.raises(fe.FrontendError, match="aten.mul: is of every pair of positions of"):
        fe.compile(lambda x: fe.loss(fe.sum_columns(net(x.x, x.x))), SPEC)


def test_positions_of_another_operand_are_not_hidden_in_one() -> None:
    dims = tuple({0: torch.export.Dim(name, min=1)} for name in "nm")

    class Sums(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return x.sum(0) * y

    program = torch.export.export(Sums(), (torch.randn(3, 4), torch.randn(2, 4)), dynamic_shapes=dims)
    net = fe.from_export(program)
    words = fe.Sequence(fe.Record(v=fe.Floats(4), letters=fe.Sequence(fe.Floats(4), most=3)), most=3)
    with pytest.raises(fe.FrontendError, match="'x' depends on .*, along which the program goes for another"):
        fe.compile(lambda x: fe.loss(fe.sum_columns(net(x.words.letters, x.words.v))), fe.Record(words=words))


class Rounded(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x.long() * 2


class Divided(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return torch.div(x, 2.0, rounding_mode="floor")


@pytest.mark.parametrize(
    ("of", "match"),
    [
        (Rounded, "aten._?to.*: rounds what is computed to integers"),
        (Divided, "aten.div: is called in a way that is not known here: .*rounding_mode"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(of: type, match: str) -> None:
    with pytest.raises(fe.FrontendError, match=match):
        compiled(fe.from_export(exported(of())), ["x"])


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fe.FrontendError, match="from_export takes what torch.export.export gives"):
        fe.from_export(nn.Linear(2, 2))
    with pytest.raises(fe.FrontendError, match=r"there is no file '.*none.pt2'"):
        fe.from_export(tmp_path / "none.pt2")
    (tmp_path / "odd.pt2").write_bytes(b"odd")
    with pytest.raises(fe.FrontendError, match=r"odd.pt2' is no exported program"):
        fe.from_export(tmp_path / "odd.pt2")
