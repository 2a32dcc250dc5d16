"""Programs of torch.export, and instances of each length for them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from amphw import frontend as fe
from tests.frontend.modules import torch

MOST = 5
STEPS = fe.Axis("steps", most=MOST)
SPEC = fe.Record(
    x=fe.Along(STEPS, fe.Floats(4)),
    tokens=fe.Along(STEPS, fe.Int(9)),
    v=fe.Floats(4),
    k=fe.Int(3),
    image=fe.Floats(50),
)
"""What the operands of a program are, by their names."""

SHAPES = {"x": (3, 4), "tokens": (3,), "v": (4,), "k": (), "image": (1, 2, 5, 5)}


def exported(module: Any, shapes: dict[str, Any] | None = None) -> Any:
    """The program of a module whose operands are called as in `SPEC`; shapes: other ones of its example."""
    example, dynamic = [], []
    sizes = {**SHAPES, **(shapes or {})}
    length = torch.export.Dim("n", min=1, max=MOST)
    for name in operands(module):
        shape = sizes[name]
        drawn = torch.randint(0, 3, shape) if name in ("tokens", "k") else torch.randn(shape)
        example.append(drawn)
        places = {d: length for d, size in enumerate(shape) if size == 3}
        dynamic.append(places or None)
    with warnings.catch_warnings():  # PyTorch warns of what it does itself
        warnings.simplefilter("ignore")
        return torch.export.export(module, tuple(example), dynamic_shapes=tuple(dynamic))


def operands(module: Any) -> list[str]:
    return [name for name in inspect.signature(type(module).forward).parameters if name != "self"]


def saved(program: Any, folder: Path) -> Path:
    """The program as a file."""
    path = folder / "program.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    return path


def instance(length: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng((seed, length))
    return {
        "x": rng.normal(size=(length, 4)),
        "tokens": rng.integers(0, 9, length),
        "v": rng.normal(size=4),
        "k": int(rng.integers(0, 3)),
        "image": rng.normal(size=50),
    }


def as_results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple | list) else [made]


def compiled(net: Any, names: list[str]) -> fe.Compiled:
    """A model with a loss for each result: the sum of its squares. It reports the result."""

    def model(x: Any) -> None:
        for i, y in enumerate(as_results(net(*(getattr(x, name) for name in names)))):
            fe.loss(fe.sum_columns(y * y), name=f"loss{i}", y=y)

    return fe.compile(model, SPEC)


def assert_same_results(ours: dict[str, Any], theirs: list[Any]) -> None:
    """Each of the program's results is ours, which has a row for each position."""
    for i, y in enumerate(theirs):
        found, y = ours[f"loss{i}"]["y"], y.detach().double()
        rows = [y.movedim(k, 0) for k, size in enumerate(y.shape) if size == len(found)]
        rows += [y] if len(found) == 1 else []
        assert any(
            torch.allclose(torch.tensor(found), r.reshape(len(found), -1), rtol=1e-4, atol=1e-5) for r in rows
        )


def assert_like_autograd(
    module: Any,
    net: Any,
    shapes: dict[str, Any] | None = None,
    lengths: range = range(1, MOST + 1),
    plain_forward: Callable[..., Any] | None = None,
) -> fe.Compiled:
    """The gradients of all parameters for an instance of each length are those of autograd.

    plain_forward: the same written as Python's loop, where PyTorch differentiates its own wrongly or slowly.
    """
    names = operands(module)
    made = compiled(net, names)
    read = set[str]()
    for length in lengths:
        for seed in range(2):
            plain = instance(length, seed)
            module.zero_grad()
            given = []
            for name in names:
                shape = [length if d == 3 else d for d in {**SHAPES, **(shapes or {})}[name]]
                kind = torch.int64 if name in ("tokens", "k") else torch.float32
                given.append(torch.tensor(np.asarray(plain[name]), dtype=kind).reshape(shape))
            results = as_results(plain_forward(module, *given) if plain_forward else module(*given))
            assert_same_results(made.outputs(plain), results)
            loss = sum((y * y).sum() for y in results)
            loss.backward()
            (found,) = made.to_torch(made.gradients(plain)).values()
            for path, parameter in module.named_parameters():
                theirs = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                theirs = theirs.double()  # as ours are computed
                if parameter.grad is not None:
                    read.add(path)
                if path in read:
                    torch.testing.assert_close(
                        found[path], theirs, rtol=1e-4, atol=1e-4, msg=f"{path}, {length}"
                    )
            assert found.keys() == module.state_dict().keys()
    assert read == {p for p, _ in module.named_parameters()}, "each parameter has had a gradient"
    return made
