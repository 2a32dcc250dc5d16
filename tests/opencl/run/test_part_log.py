"""The gradient log of a part: where its rows are, and how many find room."""

from __future__ import annotations

import pytest

from amphw.engine.lowering.lower import lower
from amphw.engine.numbering import WORTH_REDUCING
from amphw.engine.tiles.code import TiledUnit
from amphw.engine.tiles.tiling import tile
from amphw.ir.update import NodeParameters, UpdateRule
from amphw.opencl import abi
from amphw.opencl.run.log import GradientLog, LogRows
from tests.graphs import lookup

PLACE = 1001
NODE = NodeParameters((), UpdateRule(), {})


@pytest.fixture(scope="module")
def cell() -> TiledUnit:
    """A node that logs the rows of a product, and integers."""
    lowered = lower(lookup.build())
    tiled = tile(lowered.units[lowered.by_name["cell"]])
    assert len(tiled.log_buffers) > 1 and tiled.log_ints
    return tiled


@pytest.mark.parametrize("share", [0, 100, 5000, 1 << 20])
def test_its_pieces_lie_apart_within_its_share(cell: TiledUnit, share: int) -> None:
    log, end = GradientLog.at(PLACE, share, cell, NODE)
    strides = [abi.row_stride(width) for width, _ in cell.log_buffers] + [2] * len(cell.log_ints)
    places = [*log.rows.buffers, *log.rows.ints, end]
    assert places[0] >= PLACE and len(places) == len(strides) + 1
    for place, stride, behind in zip(places, strides, places[1:], strict=False):
        assert place % 16 == 0 and place + log.capacity * stride <= behind
    assert log.capacity * sum(strides) <= share
    assert log.capacity == 2 * WORTH_REDUCING or (log.capacity + 1) * (sum(strides) + len(strides)) > share


def test_rows_fit_until_it_is_full(cell: TiledUnit) -> None:
    log, _ = GradientLog.at(PLACE, 1 << 20, cell, NODE)
    assert log.fits([log.capacity] * len(cell.spaces))
    assert not log.fits([log.capacity + 1] * len(cell.spaces))
    log.rows.rows = [5] * len(cell.spaces)
    assert log.fits([log.capacity - 5] * len(cell.spaces))
    assert not log.fits([log.capacity - 4] * len(cell.spaces))


def test_a_job_has_rows_by_space_and_then_places() -> None:
    header = LogRows([320, 640], [960], [7, 9]).header()
    assert header[abi.LOG_ROWS : abi.LOG_ROWS + 2].tolist() == [7, 9]
    assert header[abi.LOG_BUFFERS :].tolist() == [320, 640, 960]
