"""Parts of a run in processes of their own: as in this one, until a process dies, stops or is garbled."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from amphw.cpu_runtime import planes
from amphw.engine.lowering.lower import lower
from amphw.engine.parts.kernel import KernelPart
from amphw.engine.parts.remote import BEAT, MISSED, RemotePart
from amphw.engine.parts.ring import POSITIONS
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.ir.device import Capabilities, DeviceOptions, Mode
from amphw.ir.errors import AmphwError, DeviceAbsentError, DeviceLostError
from amphw.ir.reference import ReferenceDevice
from amphw.mixed.device import MixedDevice
from tests.conformance.harness import assert_same, reference, run
from tests.conformance.test_mixed import alternately
from tests.daily import daily
from tests.graphs.cases import CASES
from tests.host.test_lost_parts import Notes, chosen
from tests.host.training import MODEL, settings

pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")


def numpy_part() -> KernelPart:
    return KernelPart(Capabilities("numpy", "cpu"), chosen)


class InProcess(ReferenceDevice):
    """Offers a part in a process; `parts` are all that it has offered."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[RemotePart] = []

    def part(self) -> RemotePart:
        self.parts.append(RemotePart(numpy_part))
        return self.parts[-1]


@pytest.mark.parametrize(
    "name", daily(["rnn-alternate", "decide"], ["tree-leaves", "message-passing", "fe-letters"])
)
def test_it_is_the_same_in_a_process(name: str) -> None:
    (case,) = [c for c in CASES if c.name == name]
    graph, instances = case.build(), case.instances()
    device = MixedDevice({"one": InProcess(), "two": InProcess()})
    found = run(device, graph, instances, place=alternately(graph, 0))
    device.close()
    assert found.forward == found.backward
    assert_same(found, reference(graph, instances))


def test_parameters_go_both_ways() -> None:
    device = make_device("process:null")
    graph = MODEL.graph(MODEL.config())
    found = run(device, graph, [MODEL.training(MODEL.config(), 0, 1)[0]])
    shown = device.parameters()
    for p in shown.values():
        p.values = {name: np.full_like(v, 0.5) for name, v in p.values.items()}
    device.submit(0, 9, MODEL.training(MODEL.config(), 0, 1)[0], Mode.INFER)
    device.drain()
    assert all(np.all(v == 0.5) for p in device.parameters().values() for v in p.values.values())
    assert found.forward == found.backward
    device.close()
    assert all(np.all(v == 0.5) for p in device.parameters().values() for v in p.values.values())


class SlowToArrive:
    """Makes a part, and takes its time to be unpacked in another process."""

    def __call__(self) -> KernelPart:
        return numpy_part()

    def __setstate__(self, state: Any) -> None:
        time.sleep(4.5)

    def __getstate__(self) -> str:
        return "slow"


@pytest.mark.thorough
def test_a_process_that_is_slow_to_start_is_told_of() -> None:
    graph, instances = CASES[0].build(), CASES[0].instances()

    class Slow(ReferenceDevice):
        def part(self) -> RemotePart:
            return RemotePart(SlowToArrive())

    device = MixedDevice({"one": Slow(), "two": InProcess()})
    with pytest.warns(RuntimeWarning, match="has said nothing since it was started"):
        found = run(device, graph, instances, place=alternately(graph, 0), silence=4.0)
    device.close()
    assert found.forward == found.backward


def killed(part: RemotePart) -> None:
    os.kill(part.process.pid, signal.SIGKILL)


def frozen(part: RemotePart) -> None:
    os.kill(part.process.pid, signal.SIGSTOP)


def garbled(part: RemotePart) -> None:
    """Whatever stands in the ring back, and whatever comes next."""
    ring = part._back
    ring._buf[POSITIONS.size : POSITIONS.size + 4096] = bytes([0xAA]) * 4096
    original = ring._read
    ring._read = lambda position, length: bytearray(b"\xaa" * length)  # type: ignore[method-assign]
    assert original


def repeated(part: RemotePart) -> None:
    """A packet is sent under the number of the one before."""
    part._to._sent -= 1


def skipped(part: RemotePart) -> None:
    part._to._sent += 1


def lost(part: RemotePart) -> None:
    """The next packet, and the host may wait for its answer before it sends another one."""
    ring, plain = part._to, part._to.send

    def send(*packet: Any) -> None:
        ring._sent += 1
        ring.send = plain  # type: ignore[method-assign]

    ring.send = send  # type: ignore[method-assign]


@pytest.fixture
def undisturbed() -> Iterator[Any]:
    yield trained(lambda part: None, 10**9)[0]


def trained(fault: Callable[[RemotePart], None], at: int) -> tuple[Any, list[str]]:
    """Train, with a fault of the first part when so many instances have been submitted."""
    one = InProcess()

    class Watched(MixedDevice):
        submitted = 0

        def submit(self, *arguments: Any) -> None:
            Watched.submitted += 1
            if Watched.submitted == at:
                fault(one.parts[-1])
            super().submit(*arguments)

    notes = Notes()
    device = Watched({"one": one})
    cfg = settings("max_active_keys=1", "device.place=cell=one,head=one", "device.silence=6")
    try:
        return Trainer(MODEL, cfg, device, None, notes).run(), notes.notes
    finally:
        device.close()


@pytest.mark.parametrize(
    "fault", daily([killed, lost], [frozen, garbled, repeated, skipped]), ids=lambda f: f.__name__
)
@pytest.mark.parametrize("at", daily([17], [2]))
def test_the_run_goes_on_without_the_process(fault: Any, at: int, undisturbed: Any) -> None:
    summary, notes = trained(fault, at)
    assert summary.messages["lost"] == 0 < summary.messages["forward"]
    for found, expected in zip(summary.history, undisturbed.history, strict=True):
        assert found.instances == expected.instances
        assert found.valid["loss"] == pytest.approx(expected.valid["loss"], rel=1e-4)
    (warning,) = [n for n in notes if n.startswith("WARNING: the device")]
    assert warning.startswith("WARNING: the device one was lost in epoch ")
    assert summary.device == "cpu,one, then cpu"


def test_a_call_that_may_take_long_is_lost() -> None:
    part = loaded(RemotePart(numpy_part))
    lost(part)
    with pytest.raises(DeviceLostError, match="waits and has received 1 of 2 packets: some are lost"):
        part.parameters()
    part.close()


def loaded(part: RemotePart) -> RemotePart:
    graph = MODEL.graph(MODEL.config())
    lowered = lower(graph)
    part.load(graph, lowered, [u for u in lowered.units if u.owns], {}, DeviceOptions(1, 1))
    return part


@pytest.mark.thorough
def test_a_process_that_is_left_alone_for_a_while() -> None:
    """Its signs of life wait in the ring, and say how many packets it had received then."""
    part = loaded(RemotePart(numpy_part))
    time.sleep((MISSED + 1) * BEAT)
    assert set(part.parameters()) == {"cell", "head"}
    part.close()


class Fails:
    def __call__(self) -> KernelPart:
        if multiprocessing.parent_process() is not None:
            raise AmphwError("there is no such device in this process")
        return numpy_part()


def test_a_device_that_cannot_be_made_in_its_process_says_why() -> None:
    with pytest.raises(AmphwError, match="no such device in this process"):
        loaded(RemotePart(Fails()))


class TellsThreads:
    def __call__(self) -> KernelPart:
        if multiprocessing.parent_process() is not None:
            pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
            raise AmphwError(f"threads of BLAS: {pools}")
        return numpy_part()


def test_a_process_computes_in_one_thread() -> None:
    """Threads of BLAS would fight the engine's workers for the cores."""
    with pytest.raises(AmphwError, match=r"threads of BLAS: \[1(, 1)*\]"):
        loaded(RemotePart(TellsThreads()))


def test_too_little_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceAbsentError, match="of shared memory .*No space left.*--shm-size"):
        loaded(RemotePart(numpy_part))


def test_a_device_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AmphwError, match="of which device"):
        make_device("process")
    with pytest.raises(AmphwError, match="there is no device 'nul'"):
        make_device("process:nul")
    with pytest.raises(AmphwError, match="the device reference cannot share a run with others"):
        make_device("cpu,process:reference")
