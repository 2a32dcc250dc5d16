"""A board at a port of USB: the driver of serial ports, a host of USB, and the generated circuit with its
link over the wires of USB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amphw.ir.device import Mode
from amphw.ir.errors import DeviceLostError
from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.driver.board import BoardDevice
from tests.rtl.driver.small_board import OPTIONS, RULE, assert_trains, plan, problem

pytest.importorskip("amaranth")
pytest.importorskip("luna")
pytest.importorskip("serial")

from sim.usb_board import UsbBoard

# Building the simulated circuit takes a minute.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def one_board() -> Iterator[UsbBoard]:
    with UsbBoard(plan()) as made:
        yield made


@pytest.fixture
def board(one_board: UsbBoard) -> Iterator[UsbBoard]:
    """As a bench does, with whatever the test before has left in it."""
    one_board.spoil = one_board.lose = 0.0
    yield one_board
    one_board.unplug()
    one_board.plug()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `amphw rtl` leaves of the circuit, for its driver."""
    (tmp_path / FILE).write_text(Circuit.of(plan(), "ulx3s-85f", 12_000_000, 1).text())
    return tmp_path


def test_training_over_usb_is_that_of_the_model_of_its_arithmetic(board: UsbBoard, folder: Path) -> None:
    """Every bit of every packet is on the wires, and every weight ends up the same."""
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_so_it_is_over_bad_wires(board: UsbBoard, folder: Path) -> None:
    """On which packets are damaged and confirmations lost: all of it is repaired, nothing is noticed."""
    board.spoil, board.lose = 0.05, 0.05
    before = dict(board.host.counts)
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))
    assert board.host.counts["again"] > before["again"] + 10
    assert board.host.counts["silence"] > before["silence"] + 10


def test_a_host_that_has_died_while_it_trained(board: UsbBoard, folder: Path) -> None:
    """What is in flight in the board does not get into the next run."""
    device = BoardDevice(f"{board.port},circuit={folder}")
    graph, instances = problem()
    device.load(graph, {"*": RULE}, OPTIONS)
    device.submit(0, 1, instances[0], Mode.TRAIN)
    while not device.stats.forward > 1:  # the loss has its message; the gradient is never sent
        device.turn()
    device.link.close()
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_a_cable_that_is_pulled(board: UsbBoard, folder: Path) -> None:
    """The device is lost; plugged in again, the board can be used by the next run."""
    device = BoardDevice(f"{board.port},circuit={folder},silence=3")
    graph, instances = problem()
    device.load(graph, {"*": RULE}, OPTIONS)
    board.unplug()
    with pytest.raises(DeviceLostError, match=f"the serial port {board.port} has gone|silent"):
        device.submit(0, 1, instances[0], Mode.TRAIN)
        device.drain()
    device.close()
    board.plug()
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_training_at_high_speed(folder: Path) -> None:
    with UsbBoard(plan(), high=True) as board:
        assert_trains(BoardDevice(f"{board.port},circuit={folder}"))
