"""Attempts to make a device wait for itself: deep trees, rings, loops, every key at once, hardly any memory.

A device that hangs fails a test by the driver's limit of silence, whose error says who waits for whom.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import ExecutionError
from amphw.ir.instance import Instance
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.isa.wire import Kind
from tests.daily import daily
from tests.graphs import message_passing, tree
from tests.graphs.written import WRITTEN, C, V
from tests.rtl.cases import SMALL, case, rule

# Building its circuits takes two minutes.
pytestmark = pytest.mark.thorough

pytest.importorskip("amaranth")

KEYS, INFER_KEYS = 6, 2
Work = Sequence[tuple[Instance, Mode]]


def load(name: str, **sizes: int) -> VerilatorDevice:
    device = VerilatorDevice("q6.10,g=q4.12")
    options = DeviceOptions(KEYS, INFER_KEYS, "self", 3, True, {**SMALL, **sizes})
    device.load(case(name).build(), {"*": rule(name)}, options)
    return device


class Devices:
    """One device for each graph; one that a test has left hanging is made anew."""

    def __init__(self) -> None:
        self._devices: dict[str, VerilatorDevice] = {}

    def __getitem__(self, name: str) -> VerilatorDevice:
        if name in self._devices and (self._devices[name].active or self._devices[name]._waiting):
            self._devices.pop(name).close()
        if name not in self._devices:
            self._devices[name] = load(name)
        return self._devices[name]

    def close(self) -> None:
        for device in self._devices.values():
            device.close()


@pytest.fixture(scope="module")
def devices() -> Iterator[Devices]:
    made = Devices()
    yield made
    made.close()


def caterpillar(rng: np.random.Generator) -> Instance:
    """A leaf at every inner node: the longest chain; each join waits for the one below."""
    return tree.instance(rng, leaves=tree.MAX_LEAVES, shape="caterpillar")


def ring(rng: np.random.Generator, n: int = message_passing.MAX_NODES, both: bool = False) -> Instance:
    """Every node waits for the one before it, or with `both` for its two neighbours."""
    arcs = [(k, (k + 1) % n) for k in range(n)]
    return message_passing.instance(rng, n, arcs + [(b, a) for a, b in arcs] * both)


LONGEST = 5


def loops(rng: np.random.Generator, length: int = LONGEST) -> Instance:
    """A loop over words, and inside it one that goes on for as long as the network says."""
    ponder = next(w for w in WRITTEN if w.name == "fe-ponder").compiled()
    return ponder.encode({"tokens": rng.integers(0, V, length).tolist(), "label": int(rng.integers(C))})


@contextmanager
def room_for(device: VerilatorDevice, instances: Sequence[Instance], count: int) -> Iterator[None]:
    """No more memory than so many of the largest instances take: the others wait outside."""
    layouts = [device._layout(instance) for instance in instances]
    needs = [(x.n_firings, x.n_places, x.n_payload) for x in layouts]
    arenas = device._arenas[:3]
    taken = []
    for k, arena in enumerate(arenas):
        size = arena.room - count * max(need[k] for need in needs)
        if size > 0:
            at = arena.take(size)
            assert at is not None
            taken.append((arena, at, size))
    yield
    for arena, at, size in taken:
        arena.give(at, size)


def run(device: VerilatorDevice, work: Work, keys: int = KEYS, infer_keys: int = INFER_KEYS) -> None:
    """Keep so many keys in flight; every instance ends, every message comes back, and no memory is lost."""
    free = {Mode.TRAIN: list(range(keys)), Mode.INFER: list(range(KEYS, KEYS + infer_keys))}
    waiting = {mode: [i for i, m in work if m is mode] for mode in free}
    before = [arena.left for arena in device._arenas]
    device.statistics()
    for number, (instance, _) in enumerate(work):
        instance.number = number
    ended: list[int] = []
    generation = 0
    while len(ended) < len(work):
        for mode, slots in free.items():
            while slots and waiting[mode]:
                generation += 1
                device.submit(slots.pop(), generation % 256, waiting[mode].pop(0), mode)
        for report in device.poll():
            ended.append(report.number)
            free[report.mode].append(report.slot)
    assert sorted(ended) == list(range(len(work)))
    stats = device.statistics()
    assert stats.forward == stats.backward
    assert [arena.left for arena in device._arenas] == before


def train(instances: Sequence[Instance]) -> Work:
    return [(instance, Mode.TRAIN) for instance in instances]


@pytest.mark.parametrize("keys", [1, KEYS])
@pytest.mark.parametrize("room", [None, 1])
@pytest.mark.parametrize("name", daily(["tree-leaves"], ["message-passing", "fe-ponder"]))
def test_every_instance_ends(devices: Devices, name: str, keys: int, room: int | None) -> None:
    rng, device = np.random.default_rng(5), devices[name]
    if name == "tree-leaves":
        instances = [caterpillar(rng) for _ in range(7)]
    elif name == "message-passing":
        instances = [ring(rng, both=bool(k % 2)) for k in range(4)]
    else:
        instances = [loops(rng) for _ in range(7)]
    with room_for(device, instances, room) if room else nullcontext():
        run(device, train(instances), keys)


TREES = st.tuples(st.integers(1, tree.MAX_LEAVES), st.sampled_from(["random", "caterpillar"]))
NETWORKS = st.integers(1, message_passing.MAX_NODES).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=message_passing.MAX_EDGES),
    )
)
MODES = st.sampled_from([Mode.TRAIN, Mode.TRAIN, Mode.INFER])
ATTACK: dict[str, Any] = {
    "keys": st.integers(1, KEYS),
    "infer_keys": st.integers(1, INFER_KEYS),
    "room": st.integers(1, 3),
    "seed": st.integers(0, 1 << 16),
}


def attack(devices: Devices, name: str, made: list[Any], keys: int, infer_keys: int, room: int) -> None:
    device = devices[name]
    with room_for(device, [instance for instance, _ in made], room):
        run(device, made, keys, infer_keys)


def _trees(devices: Devices, drawn: list[Any], seed: int, **about: int) -> None:
    rng = np.random.default_rng(seed)
    made = [
        (tree.instance(rng, leaves=n, shape=shape if n > 1 else "random"), mode) for (n, shape), mode in drawn
    ]
    attack(devices, "tree-leaves", made, **about)


def _networks(devices: Devices, drawn: list[Any], seed: int, **about: int) -> None:
    rng = np.random.default_rng(seed)
    made = [(message_passing.instance(rng, n, arcs), mode) for (n, arcs), mode in drawn]
    attack(devices, "message-passing", made, **about)


def _loops(devices: Devices, drawn: list[Any], seed: int, **about: int) -> None:
    rng = np.random.default_rng(seed)
    attack(devices, "fe-ponder", [(loops(rng, length), mode) for length, mode in drawn], **about)


def _drawn(examples: int, most: int, check: Any, kinds: Any) -> Any:
    """A test that draws instances and modes."""
    chosen = settings(
        max_examples=examples,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    return chosen(given(drawn=st.lists(st.tuples(kinds, MODES), min_size=1, max_size=most), **ATTACK)(check))


test_random_trees_end = _drawn(6, 8, _trees, TREES)
test_random_networks_end = _drawn(6, 8, _networks, NETWORKS)
test_random_loops_end = _drawn(6, 8, _loops, st.integers(1, LONGEST))
test_many_random_trees_end = pytest.mark.hardware(_drawn(150, 30, _trees, TREES))
test_many_random_networks_end = pytest.mark.hardware(_drawn(150, 20, _networks, NETWORKS))
test_many_random_loops_end = pytest.mark.hardware(_drawn(150, 30, _loops, st.integers(1, LONGEST)))


def test_a_device_that_takes_no_words_is_found_out(monkeypatch: pytest.MonkeyPatch, devices: Devices) -> None:
    device, instance = devices["tree-leaves"], caterpillar(np.random.default_rng(1))
    nothing = np.zeros(0, np.uint16)
    monkeypatch.setattr(device.link, "exchange", lambda words, cycles: (0, nothing, []))
    silent = r"silent with 1 instance.* and [1-9]\d+ word\(s\) that it does not take"
    with pytest.raises(ExecutionError, match=silent):
        run(device, train([instance]), 1)
    monkeypatch.undo()
    assert [report.number for report in device.drain()] == [0]


def test_a_device_that_hangs_says_who_waits_for_whom(
    monkeypatch: pytest.MonkeyPatch, devices: Devices
) -> None:
    """The first gradient that a loss sends back is lost."""
    device = devices["tree-leaves"]
    send, lost = device.send, []

    def forgetful(kind: Kind, content: Any = (), /, **fields: int) -> None:
        if kind == Kind.BACKWARD and not lost:
            lost.append(fields["firing"])
        else:
            send(kind, content, **fields)

    monkeypatch.setattr(device, "send", forgetful)
    with pytest.raises(ExecutionError) as error:
        run(device, train([caterpillar(np.random.default_rng(1)) for _ in range(2)]), 1)
    first, instance, *lines = str(error.value).split("\n")
    assert first == (
        "the device is silent with 1 instance(s) in flight and 0 word(s) that it does not take; load the "
        "graph again, which resets it:"
    )
    assert instance.strip().startswith("instance 0 (slot 0, train): ")
    assert len(lines) == 1
    assert re.fullmatch(
        r" *node 'head' \[n = \d+\] was sent all gradients and has not run backward", lines[0]
    )


@pytest.mark.hardware
def test_the_smallest_queues_and_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """One multiplier pair, two messages that wait to be sent, and memories that one instance fills."""
    monkeypatch.setattr("amphw.rtl.gateware.device.JOBS", 2)
    rng = np.random.default_rng(3)
    probe = load("tree-leaves")
    needs = probe._layout(caterpillar(rng))

    def power(n: int) -> int:
        return 1 << (n - 1).bit_length()

    sizes = {"firings": power(needs.n_firings), "places": power(needs.n_places), "lanes": 2}
    sizes |= {"payload": power(needs.n_payload + probe.plan.reserved)}
    probe.close()
    device = load("tree-leaves", **sizes)
    modes = [(Mode.TRAIN, Mode.TRAIN, Mode.INFER)[k % 3] for k in range(60)]
    run(device, [(caterpillar(rng) if k % 2 else tree.instance(rng), mode) for k, mode in enumerate(modes)])
    device.close()
