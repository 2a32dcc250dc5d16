"""Replay of logs that do not fit; tests/conformance shows that those that do give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import ExecutionError
from amphw.ir.update import UpdateRule
from amphw.opencl import OpenCLDevice
from amphw.opencl.codegen.forms import Form, ProductForm
from tests.cpu_runtime.graphs import mlp, rows
from tests.opencl.devices import PTHREAD

FORM = Form(vector=4, product=ProductForm(rows=2, vectors=1))


NOT_READY = "the backward firing of node 'layer0' for instance 0 at (), which is not ready"


def replayed(log: Sequence[Any]) -> None:
    device = OpenCLDevice(PTHREAD, replay=log)
    options = DeviceOptions(8, 0, "self", 3, settings={"form": FORM, "memory": 1 << 22})
    device.load(mlp(), {"*": UpdateRule(interval=4)}, options)
    try:
        device.submit(0, 0, rows(1)[0], Mode.TRAIN)
        device.drain()
    finally:
        device.close()


@pytest.mark.parametrize(
    ("event", "asks"),
    [
        (("start", 1, "nobody", "forward", ((0, "train", ()),)), "a frame of a node 'nobody'"),
        (("start", 1, "layer0", "backward", ((0, "train", ()),)), NOT_READY),
        (("start", 1, "layer0", "forward", ()), "a frame without firings, or a second time"),
        (("start", 90, "layer0", "forward", ((0, "train", ()),)), "frames in another order"),
        (("end", 90), "the end of a frame that has not begun"),
        (("seal", "x", "update"), "an update of a node without parameters"),
        (("seal", "x", "sum"), "an update of a node without parameters"),
        (("reduced", "x"), "an update of a node without parameters"),
        (("reduced", "nobody"), "an update of a node 'nobody'"),
    ],
)
def test_an_event_that_does_not_fit_is_refused(event: tuple[Any, ...], asks: str) -> None:
    pytest.importorskip("pyopencl")
    with pytest.raises(ExecutionError) as caught:
        replayed([("submit", 0, "train"), event])
    unlike = "it belongs to another graph or to other instances"
    assert str(caught.value) == f"replay: the log asks for {asks}; {unlike}"
