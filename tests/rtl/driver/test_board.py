"""A board behind a serial port: the driver, the port, and the generated circuit with its serial line."""

from __future__ import annotations

import os
import re
import sys
import threading
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amphw.cpu_runtime import planes
from amphw.host.devices import make_device
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError
from amphw.mixed.device import MixedDevice
from amphw.rtl.build.circuit import FILE, Circuit, CircuitError
from amphw.rtl.driver import board_check
from amphw.rtl.driver.board import Argument, BoardDevice
from amphw.rtl.driver.serial_line import SerialLine
from amphw.rtl.fixed.device import FixedDevice
from amphw.rtl.isa.wire import Kind, pack
from amphw.rtl.isa.word_frames import Encoder
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.hardware import hardware_plan
from tests.conformance.harness import run
from tests.rtl.driver.small_board import FORMATS, KEYS, OPTIONS, RULE, SIZES, assert_trains, plan, problem

pytest.importorskip("amaranth")
pytest.importorskip("serial")

from sim.board import SimulatedBoard

# Building the simulated circuit takes a minute.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def one_board() -> Iterator[SimulatedBoard]:
    with SimulatedBoard(plan()) as made:
        yield made


@pytest.fixture
def board(one_board: SimulatedBoard) -> Iterator[SimulatedBoard]:
    """As a bench does, with whatever the test before has left in it."""
    one_board.damage = {}
    yield one_board
    one_board.unplug()
    one_board.plug()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `amphw rtl` leaves of the circuit, for its driver."""
    (tmp_path / FILE).write_text(Circuit.of(plan(), "ulx3s-85f", 1_000_000, 1).text())
    return tmp_path


def test_training_on_a_board_is_that_of_the_model_of_its_arithmetic(
    board: SimulatedBoard, folder: Path
) -> None:
    """Every bit of every byte passes through the simulated serial line, and every weight ends up the same."""
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_a_board_that_was_left_while_it_trained(board: SimulatedBoard, folder: Path) -> None:
    """Its host has died. What is in flight in it does not get into the next run."""
    graph, instances = problem()
    device = BoardDevice(f"{board.port},circuit={folder}")
    device.load(graph, {"*": RULE}, OPTIONS)
    device.submit(0, 1, instances[0], Mode.TRAIN)
    while not device.stats.forward > 1:  # the loss has its message; the gradient is never sent
        device.turn()
    device.link.close()
    assert_trains(BoardDevice(f"{board.port},circuit={folder}"))


def test_a_board_that_was_left_within_a_message(board: SimulatedBoard, folder: Path) -> None:
    """The host before has died; its last bytes were half a header, and some that are no words at all."""
    left = [*pack(Kind.BEGIN), *pack(Kind.TABLE, words=9)[:7]]
    with open(board.port, "wb", buffering=0) as port:
        port.write(b"\xff\x00\x55" + Encoder().feed(np.array(left, np.uint16)))
    device = BoardDevice(f"{board.port},circuit={folder}")
    device.load(problem()[0], {"*": RULE}, OPTIONS)
    given = device.given["cell"].values
    read = device.parameters()["cell"].values
    assert all(np.abs(read[k] - given[k]).max() < 2**-12 for k in given)
    device.close()


def test_a_board_with_another_circuit(board: SimulatedBoard) -> None:
    """No file says what is in it: its memories do."""
    settings = {"lanes": 4, "payload": 1 << 11, "firings": 128, "places": 64, "table": 128}
    device = BoardDevice(f"{board.port},{FORMATS}")
    with pytest.raises(CircuitError, match="is another than this run's: firings are not 128. Flash the one"):
        device.load(problem()[0], {"*": RULE}, DeviceOptions(2, 0, "self", 3, settings=settings))


def test_a_board_that_dies(board: SimulatedBoard, folder: Path) -> None:
    graph, instances = problem()
    device = BoardDevice(f"{board.port},circuit={folder},silence=3")
    device.load(graph, {"*": RULE}, OPTIONS)
    board.unplug()
    with pytest.raises(DeviceLostError, match=f"the serial port {board.port} has gone|silent"):
        device.submit(0, 1, instances[0], Mode.TRAIN)
        device.drain()
    device.close()
    assert set(device.parameters()) == {"cell", "head"}  # those of the start


@pytest.mark.parametrize("byte", [1_000, 2_000])
def test_a_byte_that_is_wrong(board: SimulatedBoard, folder: Path, byte: int) -> None:
    board.damage = {board.sent + byte: 0xFF, board.sent + byte + 1: 0xFF}  # the first byte of a word alone
    device = BoardDevice(f"{board.port},circuit={folder}")
    with pytest.raises(DeviceLostError, match=f"the line from {board.port} is bad: "):
        device.load(problem()[0], {"*": RULE}, OPTIONS)
    assert device.link is None


def test_a_port_that_somebody_else_holds(board: SimulatedBoard) -> None:
    holder = SerialLine(board.port, 1_000_000, 1.0)
    with pytest.raises(
        DeviceAbsentError, match=f"{board.port} cannot be opened .*If another program holds it"
    ):
        SerialLine(board.port, 1_000_000, 1.0)
    holder.close()
    SerialLine(board.port, 1_000_000, 1.0).close()


@pytest.mark.hardware
@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_board_beside_the_cpu(tmp_path: Path) -> None:
    """It has the cell, through which each sequence goes step by step; the CPU has the rest, in floats."""
    graph, instances = problem()
    cell = hardware_plan(graph, {"*": RULE}, Formats.parse(FORMATS), SIZES, ["cell"])
    (tmp_path / FILE).write_text(Circuit.of(cell, "ulx3s-85f", 1_000_000, 1).text())
    place = {"place": "cell=part,head=cpu"}
    with SimulatedBoard(cell) as board:
        mixed = MixedDevice({"part": BoardDevice(f"{board.port},circuit={tmp_path}")})
        found = run(mixed, graph, instances, **KEYS, **place)
        mixed.close()
    model = MixedDevice({"part": FixedDevice(FORMATS)})
    expected = run(model, graph, instances, **KEYS, **place)
    model.close()
    assert found.losses == expected.losses
    for key, value in expected.parameters.items():
        assert np.array_equal(found.parameters[key], value), key


# --- without a board --------------------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal: the end of whoever plays the board, and the port."""
    master, slave = os.openpty()
    tty.setraw(slave)
    yield master, os.ttyname(slave)
    os.close(master)
    os.close(slave)


def test_garbage_from_whatever_is_connected(
    terminal: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    master, port = terminal
    monkeypatch.setattr(board_check, "QUIET", 0.02)
    stop = threading.Event()

    def babble() -> None:
        rng = np.random.default_rng(1)
        os.set_blocking(master, False)
        while not stop.wait(0.005):
            os.write(master, rng.bytes(50))
            try:
                os.read(master, 4096)
            except BlockingIOError:
                pass

    thread = threading.Thread(target=babble)
    thread.start()
    try:
        with pytest.raises(DeviceLostError, match="that is no amphw circuit's, or the baud rate is another"):
            BoardDevice(f"{port},{FORMATS}").load(problem()[0], {"*": RULE}, OPTIONS)
    finally:
        stop.set()
        thread.join()


def test_a_port_that_is_not_there() -> None:
    with pytest.raises(DeviceAbsentError, match=r"^there is no serial port /dev/ttyNONE\. USB serial ports"):
        make_device("board:/dev/ttyNONE,q4.12")


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_in_a_run_with_others_the_cpu_takes_its_place() -> None:
    device = make_device("cpu,board:/dev/ttyNONE,q7.9,w=q5.11,baud=115200")
    assert isinstance(device, MixedDevice)
    assert device.explained()[0].startswith(
        "WARNING: board is not there, the cpu takes its place: there is no serial port /dev/ttyNONE. "
    )


def test_without_pyserial_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(DeviceAbsentError, match=r"pip install 'amphw\[board\]' brings it"):
        make_device("board:/dev/null")


def test_the_argument() -> None:
    about = Argument.parse("/dev/ttyUSB0,q7.9,w=q5.11,baud=115200,g=q6.10")
    assert about == Argument("/dev/ttyUSB0", "q7.9,w=q5.11,g=q6.10", "", 115200)
    assert Argument.parse("COM3,circuit=hw,silence=2.5") == Argument("COM3", circuit="hw", silence=2.5)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the device 'board:' names no port: write board:PORT,circuit=FOLDER, or"),
        ("baud=3", "the device 'board:baud=3' names no port: "),
        ("p,baud=fast", "the device 'board:p,baud=fast': baud=fast is no number above 0; write"),
        ("p,silence=-1", "silence=-1 is no number above 0"),
        ("p,q4.12,circuit=x", "says q4.12: a circuit has the formats that it was built with"),
        ("p,circuit=/nowhere", "/nowhere cannot be read (No such file or directory): name the folder"),
        ("p,q4.12,baudd=3", "'baudd=3' in the number formats"),
    ],
)
def test_an_argument_that_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(AmphwError, match=re.escape(complaint)):
        BoardDevice(text)


# --- the circuit's file -----------------------------------------------------------------------------


def test_a_circuit_is_read_as_it_was_written(folder: Path) -> None:
    found = Circuit.read(folder)
    assert found == Circuit.of(plan(), "ulx3s-85f", 1_000_000, 1) == Circuit.read(folder / FILE)
    found.check(plan())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no circuit's file"),
        ('{"version": 99}', "was written by another version of amphw"),
        ('{"version": 2}', "is no circuit's file"),
        ("[]", "is no circuit's file"),
    ],
)
def test_a_circuit_file_that_is_none(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(CircuitError, match=complaint):
        Circuit.read(tmp_path)


def test_a_circuit_of_something_else_says_what_differs() -> None:
    graph, _ = problem()
    circuit, formats = Circuit.of(plan()), Formats.parse(FORMATS)
    for other, complaint in (
        (hardware_plan(graph, {"*": replace(RULE, lr=0.01)}, formats, SIZES), "rules of update: optimizer"),
        (
            hardware_plan(graph, {"*": RULE}, Formats(), SIZES),
            f"number formats: {formats} instead of {Formats()}",
        ),
        (
            hardware_plan(graph, {"*": RULE}, replace(formats, accumulator=42), SIZES),
            r"layers whose sums take 42 bits, where the circuit has 40 \(--set model",
        ),
        (hardware_plan(graph, {"*": RULE}, formats, replace(SIZES, lanes=8)), "lanes: 4 instead of 8"),
        (hardware_plan(graph, {"*": RULE}, formats, SIZES, ["cell"]), "nodes: .* instead of cell"),
    ):
        with pytest.raises(CircuitError, match=complaint):
            circuit.check(other)
    wider = hardware_plan(problem(3)[0], {"*": RULE}, formats, SIZES)
    with pytest.raises(CircuitError, match=r"the model or its sizes \(--set model"):
        circuit.check(wider)


def test_more_keys_than_the_circuit_has(terminal: tuple[int, str], folder: Path) -> None:
    device = BoardDevice(f"{terminal[1]},circuit={folder}")
    with pytest.raises(
        CircuitError, match="has 2 slots, the run wants 20: --set max_active_keys=1 --set max_"
    ):
        device.load(problem()[0], {"*": RULE}, DeviceOptions(4, 16))
    (folder / "run.toml").write_text("")
    with pytest.raises(CircuitError, match=f"built with: --config {folder}/run.toml$"):
        device.load(problem()[0], {"*": RULE}, DeviceOptions(4, 16))
    with pytest.raises(CircuitError, match=f"rules of update.* built with: --config {folder}/run.toml$"):
        device.load(problem()[0], {"*": replace(RULE, lr=0.01)}, DeviceOptions(1, 1))
    assert device.capabilities().notes == f"ulx3s-85f at {terminal[1]}, 1,000,000 baud"
