"""Several circuits in one run, the host between them: to the bit the model of their arithmetic, placed alike.

Instances come without pause, with room for few of them, so that circuits wait for one another: one that waits
forever fails a test by the driver's limit of silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amphw.cpu_runtime import planes
from amphw.host.session import update_rules
from amphw.ir.device import Device, DeviceOptions, Mode, Report
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.ir.passes import tile
from amphw.ir.update import UpdateRule
from amphw.library.hardware_settings import Wanted
from amphw.library.several_boards import Spread, spread
from amphw.mixed.device import MixedDevice
from amphw.models import get_model
from amphw.models.list_reduction import ListReductionConfig, ListReductionRNN
from amphw.rtl.build.boards import board
from amphw.rtl.driver.part import HardwarePart
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.fixed.device import FixedDevice
from sim.part_replay import ReplayedDevice
from tests.conformance.harness import Outcome, run
from tests.daily import daily
from tests.graphs import tree
from tests.rtl.cases import SMALL, problem
from tests.rtl.driver.test_deadlock import MODES, TREES, caterpillar, room_for

pytest.importorskip("amaranth")
pytestmark = pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")

FORMATS = "q6.10,g=q4.12"
Problem = tuple[Graph, list[Instance]]


def lists(hidden: int = 6, tiles: int = 2, count: int = 12) -> Problem:
    """List reduction with its cell in tiles; sequences of all lengths."""
    model, cfg = ListReductionRNN(), ListReductionConfig(hidden=hidden, batch=1)
    data = model.training(cfg, 0, 1, count)
    return tile(model.graph(cfg), tiles, ["cell"]), [data[k] for k in range(count)]


PROBLEMS: dict[str, tuple[Callable[[], Problem], str]] = {
    "lists": (lists, "cell_0=a,cell_1=b,head=b"),
    "trees": (lambda: problem("tree-leaves"), "embed=a,leaf=a,branch=b,head=b"),
}
"""And the device of each node."""


def devices(make: Callable[[], Device]) -> dict[str, Device]:
    return {label: make() for label in ("a", "b")}


def numbered(instances: Sequence[Instance]) -> None:
    for number, instance in enumerate(instances):
        instance.number = number


def outcome(of: dict[str, Device], name: str, mode: Mode, place: str = "") -> tuple[Outcome, str]:
    """And where each node was."""
    graph, instances = PROBLEMS[name][0]()
    numbered(instances)
    mixed = MixedDevice(of)
    try:
        found = run(mixed, graph, instances, keys=4, mode=mode, place=place or PROBLEMS[name][1], **SMALL)
        return found, ",".join(f"{node}={label}" for node, label in mixed.placing.of.items())
    finally:
        mixed.close()


@pytest.mark.parametrize("name", daily(["lists"], ["trees"]))
def test_two_circuits_are_what_the_model_of_their_arithmetic_is(name: str) -> None:
    for mode in (Mode.TRAIN, Mode.INFER):
        found, place = outcome(devices(lambda: VerilatorDevice(FORMATS)), name, mode)
        expected, same = outcome(devices(lambda: FixedDevice(FORMATS)), name, mode, place)
        assert place == same and "=a" in place and "=b" in place
        assert found.losses == expected.losses and found.forward == found.backward
        circuits = [node for node, _, label in (p.partition("=") for p in place.split(",")) if label in "ab"]
        for key, value in expected.gradients.items():
            assert key.partition(".")[0] in circuits  # all parameters are on them
            assert np.array_equal(found.gradients[key], value), key
            assert mode is Mode.INFER or np.any(value), key


@pytest.mark.thorough
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_run_on_two_circuits_is_replayed_to_the_bit(name: str) -> None:
    """With updates and several keys: the engine's log orders frames, the circuits' what they did with it."""
    make, place = PROBLEMS[name]
    graph, instances = make()
    numbered(instances)
    options = {"keys": 4, "updates": "self", "rule": UpdateRule(interval=4, lr=0.05), "place": place, **SMALL}
    first = MixedDevice(devices(lambda: VerilatorDevice(FORMATS)))
    found = run(first, graph, instances, log=True, **options)  # type: ignore[arg-type]
    parts = {label: part for label, part in first.parts.items() if isinstance(part, HardwarePart)}
    assert list(parts) == ["a", "b"]
    models: dict[str, Device] = {label: ReplayedDevice(FORMATS, p.device) for label, p in parts.items()}
    again = MixedDevice(models, replay=list(first.log))
    repeated = run(again, graph, instances, **options)  # type: ignore[arg-type]
    assert repeated.losses == found.losses
    assert all(p.version for p in first.parameters().values())
    for key, value in found.parameters.items():
        assert np.array_equal(repeated.parameters[key], value), key
    first.close()
    again.close()


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_model_that_no_board_holds_runs_on_several_to_the_bit() -> None:
    """List reduction with 128 units and 16 keys, where `amphw rtl --boards` puts it: losses, and gradients
    summed over all instances. Of the circuits the multipliers alone are simulated as a function."""
    model = get_model("list-reduction")
    wanted = Wanted(settings=["hidden=128", "max_active_keys=16", "max_infer_keys=16"])
    made = spread(model, board("ulx3s-85f"), 6, wanted)
    assert made.alone is None and len(made.boards) == 6 and made.boards[0].keys == 16
    found, expected = (
        _trained(made, make)
        for make in (lambda: VerilatorDevice("q4.12,lanes=model"), lambda: FixedDevice("q4.12"))
    )
    assert found[0] == expected[0] and len(found[0]) == 40
    for key, value in expected[1].items():
        assert np.array_equal(found[1][key], value) and np.any(value), key


def _trained(made: Spread, make: Callable[[], Device]) -> tuple[dict[int, float], dict[str, np.ndarray]]:
    """(loss by instance, gradients) of 40 instances, with 16 in flight and without updates."""
    model, cfg = get_model("list-reduction"), made.cfg
    mixed = MixedDevice({label: make() for label in made.labels})
    settings = {"place": cfg.device.place, "lanes": made.boards[0].plan.sizes.lanes}
    rules = update_rules(cfg, made.graph)
    mixed.load(made.graph, rules, DeviceOptions(16, 16, "off", 3, settings=settings))
    data = model.training(cfg.model, 0, 1, 40)
    try:
        reports = _in_flight(mixed, [(data[k], Mode.TRAIN) for k in range(40)], 16, 0)
        gradients = {f"{n}.{k}": g for n, p in mixed.parameters().items() for k, g in p.gradients.items()}
        return {r.number: sum(s["loss"] for s in r.sums.values()) for r in reports}, gradients
    finally:
        mixed.close()


# --- attempts to make circuits wait for each other ----------------------------------------------------------

KEYS, INFER_KEYS = 6, 2


@pytest.fixture(scope="module")
def loaded() -> Iterator[Callable[[str], MixedDevice]]:
    """Devices with updates, by the name of their problem."""
    made: dict[str, MixedDevice] = {}

    def get(name: str) -> MixedDevice:
        if name not in made:
            make, place = PROBLEMS[name]
            made[name] = MixedDevice(devices(lambda: VerilatorDevice(FORMATS)))
            rules = {"*": UpdateRule(interval=3, lr=0.05)}
            options = DeviceOptions(KEYS, INFER_KEYS, "self", 3, False, {"place": place, **SMALL})
            made[name].load(make()[0], rules, options)
        return made[name]

    yield get
    for device in made.values():
        device.close()


def attack(device: MixedDevice, work: Sequence[tuple[Instance, Mode]], rooms: Sequence[int]) -> None:
    """Every instance ends, all messages come back and no memory is lost, though each circuit has room for no
    more than so many of the largest instances at once; without rooms, for as many as it has."""
    circuits = [part.device for part in device.parts.values() if isinstance(part, HardwarePart)]
    before = [[arena.left for arena in circuit._arenas] for circuit in circuits]
    device.statistics()
    with ExitStack() as limits:
        for circuit, room in zip(circuits, rooms, strict=False):
            limits.enter_context(room_for(circuit, [instance for instance, _ in work], room))
        ended = _in_flight(device, work, KEYS, INFER_KEYS)
    assert sorted(report.number for report in ended) == list(range(len(work)))
    device.parameters()  # which waits until the circuits are through
    assert [[arena.left for arena in circuit._arenas] for circuit in circuits] == before
    stats = device.statistics()
    assert stats.forward == stats.backward
    assert stats.forward or all(mode is Mode.INFER for _, mode in work)


@pytest.mark.thorough
@pytest.mark.parametrize("rooms", [(1, 1), (2, 1), ()])
@pytest.mark.parametrize("name", PROBLEMS)
def test_circuits_with_hardly_any_memory_end_every_instance(
    loaded: Callable[[str], MixedDevice], name: str, rooms: tuple[int, ...]
) -> None:
    """Training and inference mixed."""
    rng = np.random.default_rng(7)
    some = PROBLEMS[name][0]()[1]
    instances = [caterpillar(rng) for _ in range(12)] if name == "trees" else [*some, *some]
    modes = [(Mode.TRAIN, Mode.TRAIN, Mode.INFER)[k % 3] for k in range(len(instances))]
    attack(loaded(name), list(zip(instances, modes, strict=True)), rooms)


@pytest.mark.thorough
@settings(
    max_examples=12,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    drawn=st.lists(st.tuples(TREES, MODES), min_size=1, max_size=12),
    rooms=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 1 << 16),
)
def test_random_trees_on_two_circuits_end(
    loaded: Callable[[str], MixedDevice], drawn: Sequence[Any], rooms: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    work = [
        (tree.instance(rng, leaves=n, shape=shape if n > 1 else "random"), mode) for (n, shape), mode in drawn
    ]
    attack(loaded("trees"), work, rooms)


def _in_flight(
    device: MixedDevice, work: Sequence[tuple[Instance, Mode]], keys: int, infer_keys: int
) -> list[Report]:
    """Keep so many keys in flight until all instances have ended, which get numbers."""
    slots = {Mode.TRAIN: list(range(keys)), Mode.INFER: list(range(keys, keys + infer_keys))}
    waiting = list(enumerate(work))
    ended: list[Report] = []
    while len(ended) < len(work):
        while waiting and slots[waiting[0][1][1]]:
            number, (instance, mode) = waiting.pop(0)
            instance.number = number
            device.submit(slots[mode].pop(), number % 256, instance, mode)
        for report in device.poll(0.05):
            ended.append(report)
            slots[report.mode].append(report.slot)
    return ended
