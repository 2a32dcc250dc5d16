"""How many kernels a run launches, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from amphw.engine.parts.launches import launches_found
from amphw.host.config import resolve
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Findings, Mode
from amphw.models import get_model
from amphw.opencl import OpenCLDevice
from amphw.opencl.codegen.forms import CPU_FORM, GPU_FORM, Form
from tests.opencl.devices import PTHREAD


def trained(name: str, settings: list[str], form: Form) -> Findings:
    """Of a few instances. With a form that is given nothing is measured, and launched apart for that."""
    model: Any = get_model(name)
    cfg = resolve(model.config, model.defaults, None, settings)
    graph = model.graph(cfg.model)
    device = OpenCLDevice(PTHREAD)
    try:
        device.load(graph, update_rules(cfg, graph), DeviceOptions(2, 1, settings={"form": form}))
        for number, instance in enumerate(model.training(cfg.model, 0, 1, 4)[:2]):
            device.submit(number, 0, instance, Mode.TRAIN)
        device.drain()
    finally:
        device.close()
    return device.findings()


def test_phases_of_a_frame_are_one_launch() -> None:
    found = trained("tree-lstm", ["hidden=8", "sample=true"], CPU_FORM)
    units = found.figures["launches"]
    for directions in units.values():
        for kind in ("forward", "backward"):
            # Behind a sum of gradients the frame's own launch follows.
            assert directions[kind]["frames"] <= directions[kind]["launches"]
        assert directions["forward"]["frames"] == directions["forward"]["launches"]
    assert found.columns[:2] == ("unit", "device")
    assert {row[0] for row in found.rows} == set(units)


@pytest.mark.thorough
def test_work_groups_of_several_items_have_a_launch_a_phase() -> None:
    directions = trained("tree-lstm", ["hidden=8", "sample=true"], GPU_FORM).figures["launches"].values()
    assert any(each["backward"]["launches"] > each["backward"]["frames"] for each in directions)


def test_a_device_that_ran_nothing_says_nothing() -> None:
    assert launches_found({}) == Findings()
    assert launches_found({"one": {"head": {"update": {"launches": 0}}}}) == Findings()
