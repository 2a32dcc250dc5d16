"""A board in a network: the driver, a UDP socket, and the generated circuit with its link over Ethernet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from amphw.ir.device import Mode
from amphw.ir.errors import DeviceAbsentError, DeviceLostError
from amphw.rtl.build.circuit import FILE, Circuit, CircuitError
from amphw.rtl.driver import udp_line
from amphw.rtl.driver.board import BoardDevice
from amphw.rtl.fixed.device import FixedDevice
from tests.conformance.harness import run
from tests.rtl.driver.small_board import FORMATS, KEYS, OPTIONS, RULE, assert_trains, plan, problem

pytest.importorskip("amaranth")

from sim.network_board import NetworkBoard

# Building the simulated circuit takes a minute.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def one_board() -> Iterator[NetworkBoard]:
    with NetworkBoard(plan(), Circuit.of(plan()).identity) as made:
        yield made


@pytest.fixture
def board(one_board: NetworkBoard) -> Iterator[NetworkBoard]:
    """As a bench does, with whatever the test before has left in it."""
    one_board.lose = one_board.double = one_board.delay = one_board.spoil = 0.0
    yield one_board
    one_board.unplug()
    one_board.plug()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `amphw rtl` leaves of the circuit, for its driver."""
    (tmp_path / FILE).write_text(Circuit.of(plan(), "ecpix5-85f", 0, 1).text())
    return tmp_path


def test_training_in_a_network_is_that_of_the_model_of_its_arithmetic(
    board: NetworkBoard, folder: Path
) -> None:
    """Every byte of every frame passes through the circuit's link, and every weight ends up the same."""
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_so_it_is_in_a_bad_network(board: NetworkBoard, folder: Path) -> None:
    """That loses, doubles, exchanges and damages datagrams: all of it is repaired, nothing is noticed."""
    board.lose, board.double, board.delay, board.spoil = 0.03, 0.03, 0.03, 0.03
    before = board.lost
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))
    assert board.lost > before


def test_a_cable_that_is_pulled_and_plugged_in_again(board: NetworkBoard, folder: Path) -> None:
    """In the middle of training: the run waits, and goes on."""
    graph, instances = problem()
    device = BoardDevice(f"{board.port},circuit={folder}")
    device.load(graph, {"*": RULE}, OPTIONS)
    device.submit(0, 1, instances[0], Mode.TRAIN)
    while not device.stats.forward > 1:
        device.turn()
    board.unplug()
    again = threading.Timer(1.5, board.plug)
    again.start()
    [report] = device.drain()
    again.join()
    expected = run(FixedDevice(FORMATS), graph, instances[:1], **KEYS)
    assert {report.number: sum(s["loss"] for s in report.sums.values())} == expected.losses
    device.close()


def test_a_cable_that_stays_pulled(board: NetworkBoard, folder: Path) -> None:
    graph, instances = problem()
    device = BoardDevice(f"{board.port},circuit={folder},silence=2")
    device.load(graph, {"*": RULE}, OPTIONS)
    board.unplug()
    with pytest.raises(DeviceLostError, match="see whether its cable is plugged in and the board is powered"):
        device.submit(0, 1, instances[0], Mode.TRAIN)
        device.drain()
    device.close()
    assert set(device.parameters()) == {"cell", "head"}  # those of the start


def test_a_host_that_has_died_while_it_trained(board: NetworkBoard, folder: Path) -> None:
    """It does not end its session. What is in flight does not get into the next one's, which waits for it."""
    graph, instances = problem()
    device = BoardDevice(f"{board.port},circuit={folder}")
    device.load(graph, {"*": RULE}, OPTIONS)
    device.submit(0, 1, instances[0], Mode.TRAIN)
    while not device.stats.forward > 1:  # the loss has its message; the gradient is never sent
        device.turn()
    device.link.line._socket.close()
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_another_host_is_refused_while_one_trains(
    board: NetworkBoard, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_line, "HOLD", 0.0)
    first = BoardDevice(f"{board.port},circuit={folder}")
    graph, instances = problem()
    first.load(graph, {"*": RULE}, OPTIONS)
    busy, stop = threading.Event(), threading.Event()

    def works() -> None:
        while not stop.is_set():
            first.submit(0, 1, instances[0], Mode.TRAIN)
            first.drain()
            busy.set()

    thread = threading.Thread(target=works)
    thread.start()
    busy.wait()
    second = BoardDevice(f"{board.port},circuit={folder}")
    try:
        with pytest.raises(
            DeviceAbsentError, match=r"is driven by another host, 127\.0\.0\.1:\d+: it can be"
        ):
            second.load(problem()[0], {"*": RULE}, OPTIONS)
    finally:
        stop.set()
        thread.join()
    first.close()


def test_another_circuit_says_so_itself(
    board: NetworkBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of the same sizes with other learning rates, which a serial line cannot tell."""
    made = Circuit.of(plan())
    (tmp_path / FILE).write_text(made.text().replace(made.updates, "0123456789abcdef"))
    device = BoardDevice(f"{board.port},circuit={tmp_path}")
    monkeypatch.setattr(Circuit, "check", lambda self, plan: None)  # the run's is that of the file
    with pytest.raises(CircuitError, match=f"the circuit at {board.port} is another than that in {tmp_path}"):
        device.load(problem()[0], {"*": RULE}, OPTIONS)
