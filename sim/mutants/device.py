"""Whole devices, told what the driver told them when they trained: the controller is judged here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.instance import Instance
from amphw.ir.update import UpdateRule
from amphw.rtl.driver.arena import Arena
from amphw.rtl.driver.layout import table_room
from amphw.rtl.driver.messages import Messages
from amphw.rtl.driver.verilator import VerilatorDevice
from amphw.rtl.gateware.device import Device
from amphw.rtl.isa.commands import Bank
from amphw.rtl.isa.events import What, unpack
from amphw.rtl.isa.wire import HEADER_WORDS, WORD, Kind, Register, pack
from amphw.rtl.isa.wire import unpack as header_of
from amphw.rtl.mutation.play import Said, Script, Subject
from amphw.rtl.plan.hardware import HardwarePlan
from sim.recorder import Recorder
from sim.replay import drive
from tests.graphs import message_passing, tree
from tests.graphs.cases import CASES, Case

FORMATS = "q6.10,g=q4.12"
KEYS = 4
SIZES = {"lanes": 4, "payload": 1 << 16, "firings": 1 << 15, "places": 1 << 15, "table": 1 << 15}
"""Large, so that instances which lie anywhere use every bit of an address."""
INTERVAL = 40
"""Rows between two updates: of four small instances at once, no unit has so many."""
BESIDE = ("lanes", "vector", "sequencer", "keeper", "receiver", "sender", "generations", "memory", "activity")
"""Instances with benches of their own."""


MANY = 33_000
"""Messages for one firing: more than half of what a join counts to."""


def _arcs(rng: np.random.Generator, nodes: int, count: int) -> list[tuple[int, int]]:
    """Two thirds of them out of one node, and as many into another one."""
    ends = rng.integers(0, nodes, (count, 2))
    ends[: 2 * count // 3, 0], ends[count // 3 :, 1] = 7, 31
    return [(int(a), int(b)) for a, b in ends]


def _networks(rng: np.random.Generator) -> list[Instance]:
    """Small ones, and more of any size."""
    return [
        message_passing.instance(rng, 1, []),
        message_passing.instance(rng, 2, [(0, 1), (0, 1), (0, 1)]),
        message_passing.instance(rng, 1, [(0, 0)]),
        message_passing.instance(rng, 5, [(1, 1), (1, 2), (2, 3), (1, 3), (1, 3)]),
        message_passing.instance(rng, 6),
        message_passing.instance(rng, 3, []),
    ]


PONDER = next(case for case in CASES if case.name == "fe-ponder")
NETWORKS = Case("message-passing", lambda: message_passing.build(steps=2, most=(64, 1024)), _networks)
TREES = next(case for case in CASES if case.name == "tree-all")


def _largest() -> Instance:
    rng = np.random.default_rng(3)
    return message_passing.instance(rng, 64, _arcs(rng, 64, 900))


def _large_trees() -> list[Instance]:
    """Four that send the host a loss from each of their nodes: more than wait in the device's queue."""
    rng = np.random.default_rng(4)
    drawn = [tree.instance(rng, leaves=tree.MAX_LEAVES) for _ in range(KEYS)]
    return [replace(each, number=number) for number, each in enumerate(drawn)]


class Recorded:
    """A graph's device, and conversations with it. largest: an instance whose messages are counted in
    hundreds, if there is one. many: instances that have much to say to a host that is away."""

    def __init__(
        self,
        case: Case,
        optimizer: str,
        clip: float,
        largest: Instance | None = None,
        many: Sequence[Instance] = (),
    ) -> None:
        self.case, self.largest, self.many = case, largest, many
        self.graph = self.case.build()
        self.rules = {"*": UpdateRule(interval=INTERVAL, lr=0.05, optimizer=optimizer, clip=clip)}
        self.planner = VerilatorDevice(FORMATS)
        self.options = DeviceOptions(KEYS, 0, "self", 3, True, {"watch_writes": True, **SIZES})

    @property
    def plan(self) -> HardwarePlan:
        return self.planner.make_plan(self.graph, self.rules, self.options)

    def instances(self, number: int) -> list[Instance]:
        found: list[Instance] = []
        seed = 0
        while len(found) < number:
            found += self.case.instances(seed)
            seed += 1
        return [replace(instance, number=k) for k, instance in enumerate(found[:number])]

    def turns(self, work: Callable[[VerilatorDevice], None]) -> list[tuple[int, list[int]]]:
        """What the host says while it does some work, and looks at all parameters."""
        device = VerilatorDevice(FORMATS)
        device.load(self.graph, self.rules, self.options)
        assert device.link is not None
        device.link = recorder = Recorder(device.link)
        work(device)
        device.parameters()
        device.link = None
        recorder.close()
        return recorder.turns

    def scripts(self) -> Sequence[Script]:
        instances, rng = self.instances(16), random.Random(7)
        small = sorted(instances, key=lambda each: sum(map(np.size, each.tables.values())))

        def one_by_one(device: VerilatorDevice) -> None:
            for instance in instances:
                anywhere(device, instance, Mode.TRAIN, rng)

        def infers(device: VerilatorDevice) -> None:
            for instance in instances[:8]:
                anywhere(device, instance, Mode.INFER, rng)

        def counts(device: VerilatorDevice) -> None:
            for instance in instances[:3]:
                anywhere(device, instance, Mode.TRAIN, rng)
            device.counters()

        def together(device: VerilatorDevice) -> None:
            for first in range(0, len(small), KEYS):
                # All are begun before any of them is through: no slot is used again before all are free.
                drive(device, small[first : first + KEYS], KEYS, Mode.TRAIN)
                device.update()

        def mixed(device: VerilatorDevice) -> None:
            for instance in instances[4:7]:
                anywhere(device, instance, Mode.TRAIN, rng)
                device.update()
            anywhere(device, instances[2], Mode.INFER, rng)

        def counted(device: VerilatorDevice) -> None:
            anywhere(device, small[0], Mode.INFER, rng)

        def few(device: VerilatorDevice) -> None:
            for _ in range(4):
                anywhere(device, small[1], Mode.INFER, rng)

        trained = self.turns(one_by_one)
        return [
            Script("trains, one instance at a time", trained, cycles=firings_in_time),
            Script("trains, neighbours that pause", trained, (0.6, 0.4), 3, seed=2),
            Script(
                "trains, four instances at once", self.turns(together), (0.9, 0.8), 2, judge=same_messages
            ),
            Script("infers", self.turns(infers), (1.0, 0.7)),
            Script("trains, updates when told to, infers", self.turns(mixed), (0.9, 0.6)),
            Script("is asked what it has counted", self.turns(counts), judge=same_counts),
            Script("trains, words go slowly", trained, (1.0, 0.03), 40, seed=3),
            *self._of_the_largest(),
            *self._of_many(),
            Script("infers what waits for many messages", many(self.turns(counted))),
            Script("infers a few of thousands of firings", stretched(self.turns(few))),
            Script("is told what is wrong, and asked", [(0, wrong(self.plan))], (0.8, 0.5), 4),
        ]

    def _of_the_largest(self) -> Sequence[Script]:
        """Hundreds of messages, for a host that takes them at once, and for one that takes its time."""
        if self.largest is None:
            return []
        largest, rng = self.largest, random.Random(8)

        def hundreds(device: VerilatorDevice) -> None:
            anywhere(device, largest, Mode.TRAIN, rng)
            anywhere(device, largest, Mode.INFER, rng)

        turns = self.turns(hundreds)
        return [
            Script("trains what has hundreds of messages", turns),
            Script("hundreds of messages, taken slowly", turns, (1.0, 0.05), 30, seed=4),
        ]

    def _of_many(self) -> Sequence[Script]:
        """More messages than wait in the queue, for a host that is away for tens of thousands of cycles."""
        if not self.many:
            return []

        def together(device: VerilatorDevice) -> None:
            drive(device, self.many, KEYS, Mode.TRAIN)
            device.update()

        away = Script("the host is away", self.turns(together), (1.0, 0.5), 60_000, judge=same_messages)
        return [away, replace(away, name="the host is away now and then", stretch=2000, seed=5)]


def anywhere(device: VerilatorDevice, instance: Instance, mode: Mode, rng: random.Random) -> None:
    """An instance alone, in any slot, of any generation, anywhere in the device's memories."""
    layout, sizes = device._layout(instance), device.plan.sizes
    table = table_room(device.plan, layout, instance)
    rooms = (
        (0, sizes.firings, layout.n_firings),
        (0, sizes.places, layout.n_places),
        (device.plan.reserved, sizes.payload, layout.n_payload),
        (device.plan.table_reserved, sizes.table, table),
    )
    device._arenas = tuple(Arena(rng.randint(first, end - size), end) for first, end, size in rooms)  # type: ignore[assignment]
    device.submit(rng.randrange(KEYS), rng.randrange(256), instance, mode)
    device.drain()


def many(turns: Sequence[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """The same for an instance of which one firing waits for so many messages of the host as `MANY` more."""
    found: list[tuple[int, list[int]]] = []
    wanted = -1
    for after, words in turns:
        said: list[int] = []
        for message in Messages().cut(np.array(words, np.uint16)):
            cut = message.tolist()
            header = header_of(cut[:HEADER_WORDS])
            kind = header.pop("kind")
            if kind == Kind.FIRINGS and header["state"] == header["copy"] == 1 and wanted < 0:
                wanted = header["firing"]
                cut = pack(Kind.FIRINGS, **{**header, "state": 1 + MANY})
            said += cut * (1 + MANY if kind == Kind.FORWARD and header["firing"] == wanted else 1)
        found.append((after, said))
    assert wanted >= 0
    return found


def stretched(turns: Sequence[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """The same, but the first firings of each instance are told of with all those around them."""
    found: list[tuple[int, list[int]]] = []
    begun = False
    for after, words in turns:
        said: list[int] = []
        for message in Messages().cut(np.array(words, np.uint16)):
            header = header_of(message[:HEADER_WORDS].tolist())
            kind = Kind(header.pop("kind"))
            begun |= kind == Kind.BEGIN
            if kind == Kind.FIRINGS and begun:
                header["payload"] = (header["payload"] - header["place"] * header["firing"]) % (1 << WORD)
                header.update(firing=0, copy=SIZES["firings"])
                said += pack(kind, **header)
                begun = False
            else:
                said += message.tolist()
        found.append((after, said))
    return found


def same_counts(wanted: Said, said: Said) -> str:
    """Whoever takes other cycles has something else to count."""
    if said.cycles != wanted.cycles or np.array_equal(said.words, wanted.words):
        return ""
    return "another word, or another count"


def firings_in_time(wanted: Said, said: Said) -> str:
    """Whether a firing takes as long as is predicted: within a cycle, and nearly the same on average."""
    ours, theirs = (_durations(each) for each in (wanted, said))
    off = theirs - ours
    if np.abs(off).max(initial=0) > 1:
        return f"a firing takes {np.abs(off).max()} cycles more or fewer"
    return f"firings take {off.mean():.2f} cycles more" if abs(off.sum()) >= len(off) / 10 else ""


def _durations(said: Said) -> np.ndarray:
    whats = said.traces & 3
    begins, ends = (said.at[whats == what] for what in (What.BEGIN, What.END))
    count = min(len(begins), len(ends))
    return np.asarray(ends[:count] - begins[:count])


def same_messages(wanted: Said, said: Said) -> str:
    """The order in which instances are served is the circuit's business: of each instance the same."""
    if _by_slot(wanted) != _by_slot(said):
        return "other messages of an instance, or other parameters"
    return "" if _begun(wanted) == _begun(said) else "other firings"


def _by_slot(said: Said) -> Counter[tuple[int, ...]]:
    """Answers are told apart by their place."""
    found: Counter[tuple[int, ...]] = Counter()
    for number, message in enumerate(Messages().cut(said.words)):
        kind = header_of(message[:HEADER_WORDS].tolist())["kind"]
        asked = number if kind == Kind.VALUE else 0
        found[(asked, *message.tolist())] += 1
    return found


def _begun(said: Said) -> Counter[tuple[int, ...]]:
    events = [unpack(int(each)) for each in said.traces]
    return Counter(
        (e["what"], e["kind"], e["unit"], e["slot"], e["firing"]) for e in events if e["what"] != What.WRITE
    )


def wrong(plan: HardwarePlan) -> list[int]:
    """Messages with everything that the link and the controller check, and questions between them."""
    rng = np.random.default_rng(5)
    sizes, words = plan.sizes, []
    content = [1, 2]
    for slot in range(KEYS):
        words += pack(Kind.BEGIN, slot=slot, generation=7 + slot)
    known = {"slot": 0, "generation": 7}
    words += pack(Kind.FIRINGS, firing=5, copy=1, payload=64, place=8, state=3, unit=0, **known)
    operand = {**known, "firing": 5, "place": 9, "payload": 100, "words": 2}
    good: list[tuple[Kind, dict[str, int]]] = [
        (Kind.FORWARD, {**operand, "state": 0}),
        (Kind.FORWARD, {**operand, "generation": 8}),
        (Kind.FORWARD, {**operand, "state": 1}),
        (Kind.TABLE, {**known, "words": 2, "payload": sizes.table - 2}),
        (Kind.TABLE, {**known, "words": 2, "payload": sizes.table - 1}),
        (Kind.FORWARD, {**operand, "payload": sizes.payload - 1}),
        (Kind.FORWARD, {**operand, "slot": KEYS}),
        (Kind.FORWARD, {**operand, "firing": sizes.firings}),
        (Kind.FORWARD, {**operand, "place": sizes.places}),
        (Kind.FIRINGS, {**known, "firing": sizes.firings, "copy": 1}),
        (Kind.FIRINGS, {**known, "firing": sizes.firings - 1, "copy": 2}),
        (Kind.FIRINGS, {**known, "unit": len(plan.partition.units), "copy": 1}),
        (Kind.FAULT, {"words": 2}),
        (Kind.UPDATE, {"unit": 1}),
        (Kind.UPDATE, {"unit": len(plan.partition.units)}),
        (Kind.UPDATE, {"unit": 0, "words": 1}),
        (Kind.BEGIN, {"slot": KEYS}),
        (Kind.BEGIN, {**known, "words": 1}),
    ]
    for kind, fields in good:
        words += [*pack(kind, **fields), *content[: fields.get("words", 0)]]
    for _ in range(150):
        kind, fields = good[int(rng.integers(len(good)))]
        fields = dict(fields)
        name = ("slot", "generation", "unit", "firing", "place", "payload", "state")[int(rng.integers(7))]
        bits = {"slot": 8, "generation": 8, "unit": 8}.get(name, 16)
        fields[name] = int(rng.integers(1 << bits) >> rng.integers(bits))
        if kind in (Kind.FIRINGS, Kind.UPDATE, Kind.BEGIN) or name in ("payload", "place", "firing"):
            continue  # what is right would do something of its own, at some time
        words += [*pack(kind, **fields), *content[: fields.get("words", 0)]]
        words += pack(Kind.PEEK, place=Bank.WEIGHT, payload=int(rng.integers(8)), copy=int(rng.integers(4)))
    for unit in range(len(plan.partition.units)):
        for place in (Register.VERSION, Register.ROWS):
            words += pack(Kind.PEEK, place=place, unit=unit)
    return words


@cache
def recorded(case: Case, optimizer: str, clip: float) -> Recorded:
    largest, large = _largest() if case is NETWORKS else None, _large_trees() if case is TREES else ()
    return Recorded(case, optimizer, clip, largest, large)


def device(name: str, graph: Case, optimizer: str, clip: float, share: int) -> Subject:
    """`jobs`, the queue of messages to the host, is judged in the device of trees alone, which fills it."""
    return Subject(
        name,
        lambda: Device(recorded(graph, optimizer, clip).plan, True),
        lambda: recorded(graph, optimizer, clip).scripts(),
        without=BESIDE if graph is TREES else (*BESIDE, "jobs"),
        trace="watched",
        share=share,
    )
