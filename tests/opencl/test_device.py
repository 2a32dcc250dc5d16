"""The OpenCL device by itself: kernels that it refuses, little memory, unusual forms, opening and closing."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import DeviceLostError, ExecutionError
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from tests.conformance.harness import assert_same, reference, run
from tests.conformance.test_cpu import problem
from tests.daily import daily
from tests.graphs.cases import CASES, Case
from tests.host.training import MODEL, WIDTH, ToyConfig
from tests.opencl.devices import BASIC, PTHREAD, PTHREADS

cl = pytest.importorskip("pyopencl")

from amphw.engine.parts.arena import MemorySettingError  # noqa: E402
from amphw.opencl import OpenCLDevice  # noqa: E402
from amphw.opencl.abi import Kernel  # noqa: E402
from amphw.opencl.codegen.forms import GPU_FORM, SINGLE_FORM, Form  # noqa: E402
from amphw.opencl.platform import platforms  # noqa: E402
from amphw.opencl.platform.platforms import OpenCLError, default_form  # noqa: E402
from amphw.opencl.run import executor  # noqa: E402
from amphw.opencl.run.build import Launch, built  # noqa: E402

BY_NAME = {case.name: case for case in CASES}
RNN, TREE, DECIDE = BY_NAME["rnn-hash"], BY_NAME["tree-all"], BY_NAME["decide"]
PLAIN = DeviceOptions(8, 0, "self", 3)


def trained(device: OpenCLDevice, case: Case, count: int = 20, keys: int = 8, **settings: Any) -> None:
    """Instances through the device; outcome as the reference's."""
    graph, instances, _ = problem(case)
    found = run(device, graph, instances[:count], keys=keys, **settings)
    assert found.forward == found.backward
    assert_same(found, reference(graph, instances[:count]))


# --- kernels that cannot be built or run ------------------------------------------------------------------


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Any:
    """spoilt(change): the generated source of every unit goes through `change` before it is built."""

    def spoil(change: Any) -> None:
        real = executor.built

        def through(cl: Any, context: Any, device: Any, what: str, text: str) -> Any:
            return real(cl, context, device, what, change(text) if what == "cell1" else text)

        monkeypatch.setattr(executor, "built", through)

    return spoil


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert not [t for t in set(threading.enumerate()) - before if t.name == "amphw-opencl"]


def refused() -> str:
    graph, _, _ = problem(RNN)
    assert "cell1" in graph.nodes
    device = OpenCLDevice(PTHREAD)
    with pytest.raises(OpenCLError) as caught:
        device.load(graph, {"*": UpdateRule()}, PLAIN)
    with pytest.raises(ExecutionError, match="load a graph first"):
        device.poll()
    device.close()
    return str(caught.value)


def test_a_kernel_that_does_not_build_names_its_node_its_line_and_the_compilers_words(spoilt: Any) -> None:
    spoilt(lambda text: text + "\n__kernel void more(__global int *a) { a[0] = undeclared_name; }\n")
    text = refused()
    assert "the kernels of node 'cell1' cannot be built for opencl:1" in text
    assert "of its source, '__kernel void more(__global int *a) { a[0] = undeclared_name; }'" in text
    assert "What the compiler says:\n" in text and text.count("undeclared_name") > 1
    assert "amphw opencl MODEL --out DIR" in text


def test_a_kernel_that_is_missing_names_its_node(spoilt: Any) -> None:
    spoilt(lambda text: text.replace("cell1_", "other_"))
    text = refused()
    assert "the kernel 'cell1_" in text and "of node 'cell1' cannot run on opencl:1" in text


def launch_of(text: str, **changed: Any) -> Launch:
    found = platforms.choose(PTHREAD)[0]
    context = cl.Context([found.handle])
    program = built(cl, context, found, "cell", text)
    kernel = replace(Kernel("twice", text, (), 0, (), 1, (8,)), **changed)
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
    launch = Launch(cl, program, kernel, memory, memory, {}, None)
    launch(cl.CommandQueue(context), 0, [8], 1)
    return launch


def test_a_kernel_that_is_refused_only_when_it_is_launched_names_its_node() -> None:
    text = "__kernel void twice(__global int *a, int n, __global int *f) { a[n] *= 2; }"
    launch_of(text)
    with pytest.raises(OpenCLError) as caught:
        launch_of(text, local_size=(1 << 20,))
    told = str(caught.value)
    assert "the kernel 'twice' of node 'cell' cannot run on opencl:1" in told
    assert f"(line 1 of its source, {text!r})" in told and "INVALID_WORK_GROUP_SIZE" in told


def test_a_kernel_that_is_refused_in_mid_run_ends_it_with_the_nodes_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Refused(cl.LogicError):  # type: ignore[misc, name-defined]
        code = cl.status_code.INVALID_WORK_GROUP_SIZE

    real, calls = cl.enqueue_nd_range_kernel, [0]

    def enqueue(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] > 8:
            raise Refused("the driver counts once more")
        return real(*args, **kwargs)

    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", enqueue)
    device = OpenCLDevice(PTHREAD)
    graph, instances, _ = problem(RNN)
    device.load(graph, {"*": UpdateRule()}, PLAIN)
    with pytest.raises(OpenCLError, match="of node '.*' cannot run on opencl:1"):
        device.submit(0, 0, instances[0], Mode.TRAIN)
        while True:
            device.poll(0.05)
    with pytest.raises(OpenCLError):
        device.drain()
    device.close()


# --- little memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", daily([RNN], [TREE, DECIDE]), ids=lambda c: c.name)
@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize("memory", [300_000, 1_000_000])
def test_instances_wait_for_room(case: Case, zero_copy: bool, memory: int) -> None:
    device = OpenCLDevice(PTHREAD)
    trained(device, case, 40, keys=16, memory=memory, zero_copy=zero_copy, frame_cap=64)
    device.close()


def test_instances_wait_for_room_on_two_devices() -> None:
    device = OpenCLDevice(PTHREADS)
    trained(device, RNN, 40, keys=16, memory=300_000)
    device.close()


def test_updates_and_inference_in_little_memory() -> None:
    graph, instances, _ = problem(RNN)

    def stepwise(device: Any, **settings: Any) -> dict[str, Any]:
        device.load(
            graph, {"*": UpdateRule(lr=0.01)}, DeviceOptions(5, 5, "controller", 3, settings=settings)
        )
        for generation in range(4):
            for slot in range(5):
                device.submit(slot, generation, instances[5 * generation + slot], Mode.TRAIN)
            device.drain()
            device.update()
        for slot in range(5):
            device.submit(5 + slot, 0, instances[slot], Mode.INFER)
        losses = {r.number: r.sums for r in device.drain()}
        device.close()
        assert len(losses) == 5
        return losses

    found, expected = stepwise(OpenCLDevice(PTHREAD), memory=120_000), stepwise(ReferenceDevice())
    for number, sums in expected.items():
        for node, figures in sums.items():
            assert found[number][node] == pytest.approx(figures, rel=1e-3, abs=1e-4)


@pytest.mark.thorough
def test_more_than_fits_is_in_flight_until_it_has_retired() -> None:
    device = OpenCLDevice(PTHREAD)
    graph, instances, _ = problem(TREE)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(32, 0, "off", 3, settings={"memory": 200_000}))
    for slot in range(32):
        device.submit(slot, 0, instances[slot], Mode.TRAIN)
    waiting = [slot for slot, *_ in device.plane._waiting]  # type: ignore[union-attr]
    assert waiting
    with pytest.raises(ExecutionError, match="slot"):
        device.submit(waiting[-1], 1, instances[0], Mode.TRAIN)
    reports = device.drain()
    assert sorted(r.number for r in reports) == sorted(i.number for i in instances[:32])
    assert device.drain() == []
    device.close()


def test_a_replay_in_little_memory_gives_the_same_bits() -> None:
    graph, instances, _ = problem(RNN)
    options: dict[str, Any] = {
        "keys": 16,
        "updates": "self",
        "rule": UpdateRule(interval=7, lr=0.01),
        "memory": 400_000,
    }
    device = OpenCLDevice(PTHREAD)
    first = run(device, graph, instances[:30], log=True, **options)
    device.close()
    again = OpenCLDevice(PTHREAD, replay=device.log)
    second = run(again, graph, instances[:30], **options)
    again.close()
    for name, value in first.parameters.items():
        np.testing.assert_array_equal(value, second.parameters[name], err_msg=name)


def test_an_instance_that_never_fits_names_its_bytes_and_the_setting() -> None:
    device = OpenCLDevice(PTHREAD)
    graph, small, large = batches(2, 2000)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(2, 0, "off", 3, settings={"memory": 1 << 17}))
    size = device.planned_bytes(large, Mode.TRAIN)
    assert size is not None and size > 1 << 17
    with pytest.raises(DeviceLostError) as caught:
        device.submit(0, 0, large, Mode.TRAIN)
    told = str(caught.value)
    assert f"instance {large.number} does not fit" in told and str(size) in told
    assert "of the 131072 that are set aside. Raise device.memory" in told
    device.submit(0, 1, small, Mode.TRAIN)
    with pytest.raises(DeviceLostError, match="does not fit"):
        device.submit(1, 0, large, Mode.TRAIN)  # it may wait, and is refused once it is alone
        for _ in range(100):
            device.poll(0.05)
    device.drain()
    device.close()


@pytest.mark.thorough
def test_a_frame_that_never_fits_ends_the_run_with_what_to_do() -> None:
    """Where an instance fits, but leaves nothing for the tables and the log of its frames."""
    device = OpenCLDevice(PTHREAD)
    graph, large = batches(2000)
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3))
    taken = (device.planned_bytes(large, Mode.TRAIN) or 0) + large.data["x"].nbytes
    settings = {"memory": taken + (1 << 14)}
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(1, 0, "off", 3, settings=settings))
    with pytest.raises(DeviceLostError) as caught:
        device.submit(0, 0, large, Mode.TRAIN)
        for _ in range(100):
            device.poll(0.05)
    told = str(caught.value)
    assert "the device has no room for a frame of 2000 rows" in told and "bytes are taken" in told
    assert "Raise device.memory, or lower max_active_keys" in told
    with pytest.raises(DeviceLostError):
        device.drain()
    device.close()
    trained(device, TREE)
    device.close()


def batches(*rows: int) -> list[Any]:
    """A graph, and instances of so many rows each."""
    cfg = ToyConfig(batch=max(rows))
    made = []
    for number, n in enumerate(rows):
        table, x = np.zeros(n, np.int32), np.ones((n, WIDTH), np.float32)
        made.append(Instance({"batch": n}, {"label": table}, {"x": x}, number=number))
    return [MODEL.graph(cfg), *made]


@pytest.mark.parametrize("memory,told", [(1, "65536 bytes or more"), (-1, "65536"), (1 << 60, "at most")])
def test_memory_out_of_range_is_refused(memory: int, told: str) -> None:
    with pytest.raises(MemorySettingError, match=rf"device.memory = {memory}, .*{told}"):
        OpenCLDevice(PTHREAD).load(problem(RNN)[0], {}, DeviceOptions(settings={"memory": memory}))


# --- unusual devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument,form,cases",
    [
        (PTHREAD, SINGLE_FORM, (RNN, TREE)),
        (BASIC, SINGLE_FORM, (DECIDE,)),
        (PTHREAD, GPU_FORM, (DECIDE, TREE)),
    ],
)
@pytest.mark.thorough
def test_forms_of_other_devices_give_the_same(argument: str, form: Form, cases: tuple[Case, ...]) -> None:
    device = OpenCLDevice(argument)
    for case in cases:
        trained(device, case, 10, form=form, zero_copy=False)
    device.close()


@pytest.mark.parametrize("lacking", [{"largest_group": 1}, {"local_memory": 64, "fp64": False}])
def test_a_gpu_that_lacks_something_is_given_kernels_without_it(
    lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    device = OpenCLDevice(PTHREAD)
    device.found = [replace(device.found[0], kind="gpu", unified=False, **lacking)]
    assert default_form(device.found[0]) == SINGLE_FORM
    trained(device, RNN, 8)
    device.close()


def test_several_devices_describe_all_of_them() -> None:
    one, both = OpenCLDevice(PTHREAD).capabilities(), OpenCLDevice(PTHREADS).capabilities()
    assert (one.name, both.name, both.workers) == ("opencl:1", "opencl:1,2", 2)
    assert "opencl:1: " in both.notes and "; opencl:2: " in both.notes
    assert both.memory is not None and one.memory is not None and both.memory > one.memory


# --- opening and closing ----------------------------------------------------------------------------------


def test_before_load_everything_says_so() -> None:
    device = OpenCLDevice(PTHREAD)
    device.close()
    for ask in (device.poll, device.drain, device.update, device.parameters, device.statistics):
        with pytest.raises(ExecutionError, match="load a graph first"):
            ask()


FORGOTTEN = """
import gc, os, time
from amphw.cpu_runtime.device import CpuDevice
from amphw.mixed.device import MixedDevice
from amphw.opencl import OpenCLDevice
from tests.host.test_divergence import trained

class Lingers:  # threads that come back to the interpreter while it goes away have the time to do so
    def __del__(self, sleep=time.sleep):
        for _ in range(20):
            sleep(0.02)

trained({device})
gc.collect()
lingers = Lingers()
"""


@pytest.mark.parametrize(
    "device", ["OpenCLDevice()", "CpuDevice()", 'MixedDevice({"a": OpenCLDevice()}), "device.place=grow=a"']
)
def test_a_device_that_is_forgotten_does_not_take_the_process_down(device: str) -> None:
    command = [sys.executable, "-c", FORGOTTEN.replace("{device}", f'{device}, "clip=0.02"')]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stderr  # where a driver may have warned


@pytest.mark.thorough
@pytest.mark.parametrize("argument,zero_copy", [(PTHREAD, True), (PTHREAD, False), (PTHREADS, False)])
def test_it_may_be_closed_at_any_moment_and_loaded_with_another_graph(argument: str, zero_copy: bool) -> None:
    device = OpenCLDevice(argument)
    for polls in range(4):
        graph, instances, _ = problem((RNN, TREE)[polls % 2])
        settings = {"zero_copy": zero_copy, "memory": 4 << 20}
        device.load(graph, {"*": UpdateRule()}, DeviceOptions(8, 0, "self", 3, settings=settings))
        assert device.drain() == []
        for slot in range(8):
            device.submit(slot, 0, instances[slot], Mode.TRAIN)
        retired = sum(len(device.poll(0.001)) for _ in range(polls))
        device.close()
        device.close()
        device.statistics()
        assert device.parameters()
        with pytest.raises(ExecutionError, match="closed"):
            device.update()
        if retired + len(device.poll(0.0)) < 8:
            with pytest.raises(ExecutionError, match="closed with"):
                device.drain()
    trained(device, DECIDE, zero_copy=zero_copy)
    device.close()


def test_two_devices_at_once_in_one_process() -> None:
    first, second = OpenCLDevice(PTHREAD), OpenCLDevice(PTHREAD)
    graph, instances, _ = problem(RNN)
    for device in (first, second):
        device.load(graph, {"*": UpdateRule()}, DeviceOptions(8, 0, "off", 3))
    for slot in range(8):
        first.submit(slot, 0, instances[slot], Mode.TRAIN)
        second.submit(slot, 0, instances[slot], Mode.TRAIN)
    sums = []
    for device in (first, second):
        assert len(device.drain()) == 8
        sums.append(
            {n: {k: g.copy() for k, g in p.gradients.items()} for n, p in device.parameters().items()}
        )
        device.close()
    for node, gradients in sums[0].items():
        for name, g in gradients.items():
            np.testing.assert_allclose(g, sums[1][node][name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_many_loads_do_not_grow() -> None:
    """What each load keeps of an arena that it has filled would add up."""
    device = OpenCLDevice(PTHREAD)
    graph, instance = batches(10)
    options = DeviceOptions(8, 0, "self", 3, settings={"memory": 64 << 20})

    def once() -> None:
        device.load(graph, {"*": UpdateRule()}, options)
        device.plane.arena.bytes[32 << 20 :: 4096] = 1  # type: ignore[union-attr]
        device.submit(0, 0, instance, Mode.TRAIN)
        device.drain()
        device.close()

    once()
    before = resident()
    for _ in range(20):
        once()
    assert resident() - before < 64 << 20


def resident() -> int:
    """Bytes of memory that the process takes up now."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        pytest.skip("only Linux tells it")
