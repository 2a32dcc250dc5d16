"""Images: shapes of layers, what is refused, and where a tile may cut a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.tiling import tile, tile_programs
from amphw.ir.check import infer
from amphw.ir.derive import differentiate, inference
from amphw.ir.errors import GraphError, ProgramError
from amphw.ir.expr import ROWS
from amphw.ir.functions import images, maximum, patches, sum_rows
from amphw.ir.graph import Graph
from amphw.ir.instance import Schema
from amphw.ir.nodes import NPT, Source
from amphw.ir.passes import fuse
from amphw.ir.primitives import RowContext, ValueType
from amphw.ir.primitives.images import Windows
from amphw.ir.program import Program, Value, trace
from amphw.ir.routing import Discard


def compiled(layer: Callable[[Any], Any], width: int) -> Graph:
    head, rows = fe.Linear(3), fe.Axis("batch", 8)

    def model(x: Any) -> None:
        fe.classify(head(layer(x.image.item)), x.label.item)

    spec = fe.Record(image=fe.Along(rows, fe.Floats(width)), label=fe.Along(rows, fe.Int(3)))
    return fe.compile(model, spec).graph


@pytest.mark.parametrize(
    ("layer", "out"),
    [
        (fe.Conv2d((28, 28, 1), 10, 5), (24, 24, 10)),
        (fe.Conv2d((28, 28, 1), 10, 5, padding=2), (28, 28, 10)),
        (fe.Conv2d((7, 9, 2), 4, (3, 2), stride=2, padding=1), (4, 5, 4)),
        (fe.MaxPool((24, 24, 10), 2), (12, 12, 10)),
        (fe.MaxPool((5, 7, 3), 2), (2, 3, 3)),
        (fe.MaxPool((5, 5, 3), 3, stride=1), (3, 3, 3)),
    ],
)
def test_shapes(layer: Any, out: tuple[int, int, int]) -> None:
    assert layer.out == out
    image = layer.windows.image
    graph = compiled(layer, int(np.prod(image)))
    assert graph.nodes["head"].params[0].shape[0] == np.prod(out)


def test_an_image_of_another_size_is_refused() -> None:
    with pytest.raises(fe.FrontendError, match=r"Conv2d is for images of 5 x 5 x 1 = 25 numbers, got 24"):
        compiled(fe.Conv2d((5, 5, 1), 2, 3), 24)
    with pytest.raises(fe.FrontendError, match=r"MaxPool is for images of 4 x 4 x 2 = 32 numbers, got 16"):
        compiled(fe.MaxPool((4, 4, 2), 2), 16)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(6, 1, 0), (0, 1, 0), (3, 0, 0), (3, 1, 3), (3, 1, -1)]
)
def test_windows_that_do_not_fit_are_refused(size: int, stride: int, padding: int) -> None:
    with pytest.raises(fe.FrontendError, match="in an image of 5 x 5 x 1"):
        fe.Conv2d((5, 5, 1), 2, size, stride=stride, padding=padding)


def test_windows_of_unequal_sides_need_a_distance() -> None:
    with pytest.raises(fe.FrontendError, match=r"1 x 3 pixels do not lie side by side .*: stride=\.\.\."):
        fe.MaxPool((4, 6, 1), (1, 3))
    assert fe.MaxPool((4, 6, 1), (2, 2)).out == (2, 3, 1)
    pool = fe.MaxPool((3, 4, 1), (1, 3), stride=1)
    assert pool.out == (3, 2, 1)
    image = np.array([[5, 0, 1, 2], [-4, -3, -2, -1], [0, 8, 0, 9]], np.float64)
    (found,) = trace(pool, {"x": 12}).run(RowContext(1, {"rows": 1}), [image.reshape(1, 12)], [], {})
    assert found.tolist() == [[5, 2, -2, -1, 8, 9]]


# --- programs ---------------------------------------------------------------------------------------


def _pool(x: Value) -> Value:
    windows = Windows((4, 4, 1), (2, 1), 2)
    found = patches(x, windows)
    halves = [found.builder.emit("slice", [found], start=k, width=1) for k in (0, 1)]
    return images(maximum(*halves), windows.down, windows.across)


def test_windows_are_cut_out_again_and_not_kept() -> None:
    derivative = differentiate(trace(_pool, {"x": 16}))
    assert derivative.residuals == (("input", 0),)
    assert [i.op for i in derivative.backward.instrs].count("patches") == 2  # of x, and of the gradient


def test_a_space_has_as_many_rows_as_there_are_windows() -> None:
    program = trace(_pool, {"x": 16})
    assert dict(program.spaces) == {"rows_2x2": ROWS * 4}
    assert Program.from_json(program.to_json()) == program
    wrong = Program(**{**vars(program), "spaces": (("rows_2x2", ROWS * 7),)})
    g = Graph("g", Schema({}, {}, {"x": 16}))
    g.add(Source("x", width=16, data="x"))
    g.add(NPT("pool", wrong))
    g.add(Discard("end"))
    g.connect("x", "pool", "end")
    with pytest.raises(GraphError, match="patches has 4 windows for each of the 1 rows in 'rows'"):
        infer(g)


def test_images_lie_in_rows_or_in_a_space_of_the_program() -> None:
    with pytest.raises(ProgramError, match="images lie in 'rows' or in a space that the program opens"):
        trace(lambda x: patches(x, Windows((4, 4, 1), (2, 2))), {"x": ValueType("float", "members", 16)})


def test_a_tile_may_end_between_two_images() -> None:
    conv = fe.Conv2d((6, 6, 1), 2, 3, activation=fe.relu, name="conv")
    graph = fuse(compiled(lambda x: fe.MaxPool(conv.out, 2)(conv(x)), 36))
    (unit,) = (u for u in lower(graph).units if u.name.startswith("conv"))
    tiled = tile(unit)
    assert tiled.forward.factors == (1, 16, 4) and tiled.backward is not None
    assert tiled.backward.factors == (1, 16, 4)
    # The convolution's windows are in no message and are not saved: only its result is.
    assert tiled.saved == ((32, 0),)


def test_where_rows_meet_a_tile_holds_whole_messages() -> None:
    program = trace(
        lambda x: sum_rows(patches(x, Windows((4, 4, 1), (2, 2))), "one"), {"x": 16}, spaces={"one": 1}
    )
    spaces = ["rows", *(name for name, _ in program.spaces)]
    tiled = tile_programs(program, differentiate(program), inference(program), spaces)
    assert tiled.forward.factors == ()
