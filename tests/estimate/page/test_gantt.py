"""Timelines: what was simulated is what is drawn."""

from __future__ import annotations

import re

import pytest

from amphw.cpu_runtime import planes
from amphw.estimate.outcome import DeviceOutcome
from amphw.estimate.page.gantt import ROWS, gantt, shown
from amphw.estimate.play.events import Slice, Timeline
from tests.estimate.page.outcomes import outcome


def devices(count: int) -> list[DeviceOutcome]:
    return [DeviceOutcome(d, 1e9, [f"n{d}"], 1.0 + d, 1.0, 0.0) for d in range(count)]


def test_forward_is_above_backward_and_what_touches_is_one() -> None:
    slices = [
        Slice(0, "a", "forward", 5.0, 1.0),
        Slice(0, "a", "forward", 6.0, 1.0),
        Slice(0, "a", "backward", 8.0, 2.0),
        Slice(1, "b", "forward", 5.0, 5.0),
    ]
    drawn = gantt(Timeline(5.0, 5.0, True, slices), devices(2), {"a": 0, "b": 1}, 1080)
    spans = {
        (style, float(y)): (float(a), float(b))
        for a, y, b, style in re.findall(
            r'd="M([\d.]+) ([\d.]+)H([\d.]+)V[^"]*" class="own (c\d \w+)"', drawn
        )
    }
    assert len(spans) == 3
    (a0, a1), (b0, b1) = spans["c0 forward", 0.0], spans["c0 backward", 13.0]
    assert (a1 - a0) == pytest.approx(b1 - b0, abs=0.2) and b0 - a0 == pytest.approx(1.5 * (a1 - a0), abs=0.2)
    assert "0 s<" in drawn and "5 s<" in drawn


def test_the_busiest_devices_are_shown() -> None:
    assert [d.number for d in shown(devices(ROWS + 3))] == list(range(3, ROWS + 3))


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_timeline_is_of_the_steady_state_and_accounts_for_the_devices_time() -> None:
    found = outcome([16, 16, 4], compare=False).played
    assert found is not None and found.timeline is not None
    timeline = found.timeline
    assert timeline.steady and timeline.begin > 0
    for d, busy in enumerate(found.device_busy):
        own = sorted((s.begin, s.begin + s.seconds) for s in timeline.slices if s.device == d)
        assert all(end <= begin + 1e-12 for (_, end), (begin, _) in zip(own, own[1:], strict=False))
        spent = sum(end - begin for begin, end in own) / timeline.seconds
        assert 0 < spent <= busy + 0.05  # updates are not in it
    assert {s.direction for s in timeline.slices} == {"forward", "backward"}
