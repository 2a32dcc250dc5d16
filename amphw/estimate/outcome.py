"""What an estimate says, for tables and for other programs: one object, and its JSON.

Times are in seconds, sizes in bytes, rates a second; None: not known, or nobody has said. What is "of an
instance" is one training instance, forward, backward and its share of the updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from amphw.estimate.accuracy import Accuracy, as_json
from amphw.estimate.count.traffic import Spread
from amphw.estimate.network.busy import Load
from amphw.estimate.play.events import Played

VERSION = 1
"""Of the JSON. A key that is added leaves it; one that goes or means something else raises it."""

Kind = Literal["measured", "synthesised", "assumed", "stated", "counted"]


@dataclass(frozen=True)
class Origin:
    """How a number is known. how: in words."""

    origin: Kind
    how: str


@dataclass(frozen=True)
class NodeMemory:
    """Bytes of one replica. in_flight: what instances leave there until their gradients are back."""

    value: float
    gradient: float
    optimiser: float
    in_flight: float = 0.0

    @property
    def parameters(self) -> float:
        """With what belongs to them."""
        return self.value + self.gradient + self.optimiser


@dataclass(frozen=True)
class NodeOutcome:
    """devices: of its replicas. forward, backward: operations of an instance; update: on average. firings,
    messages (that it takes) and, by space, rows: of an instance. busy: seconds of one device for an instance
    that goes there. messages_per_s: at the estimated throughput, over all replicas."""

    name: str
    devices: Sequence[int]
    forward: Spread
    backward: Spread
    update: float
    memory: NodeMemory
    busy: float
    firings: Spread | None = None
    messages: Spread | None = None
    rows: Mapping[str, Spread] = field(default_factory=dict)
    messages_per_s: float | None = None

    @property
    def fires(self) -> bool:
        """On any of the instances that were counted; where nobody counted, it is taken to."""
        return self.firings is None or self.firings.most > 0


@dataclass(frozen=True)
class EdgeOutcome:
    """From an output of a node to an operand of another. activation_bytes: of an instance, forward.
    weight_bytes: of the parameters of the node that it leads to. bits_per_s: forward, at the estimated
    throughput; gradient_bits_per_s: back. links: that they cross; none where both nodes are on one device.
    link_bytes: of activations of an instance, by link."""

    source: str
    target: str
    port: str
    output: int
    activation_bytes: Spread
    weight_bytes: float
    bits_per_s: float
    gradient_bits_per_s: float | None
    messages: Spread | None = None
    messages_per_s: float | None = None
    links: Sequence[str] = ()
    link_bytes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class DeviceOutcome:
    """flops: operations a second that it could do, roof: that are put to use at most. what: it is, in words;
    resources: of a chip, by name, for a circuit. busy: for an instance. share: of the time, at the estimated
    throughput. memory: that it needs; room: that it has."""

    number: int
    flops: float
    nodes: Sequence[str]
    busy: float
    share: float
    memory: float
    room: float | None = None
    what: str = ""
    resources: Mapping[str, int] = field(default_factory=dict)
    roof: float = 0.0


@dataclass(frozen=True)
class LinkOutcome:
    """From one device to another. bytes: of an instance. share: of its bandwidth, where it has a limit."""

    name: str
    source: int
    target: int
    bytes: float
    bits_per_s: float
    share: float | None = None


@dataclass(frozen=True)
class Case:
    """A paper's calculation. source: where it stands. inputs, figures: what goes in and comes out, by name.
    printed: what the paper gives for some of the figures."""

    name: str
    source: str
    inputs: Mapping[str, float]
    figures: Mapping[str, float]
    printed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Slept:
    """By the sleep method (`play.sleeping`), in what the model counts: a second of training and of
    validation; in an epoch of each. time_to_target: seconds of so many epochs. seconds: of each measurement.
    reference: a second of training in the paper, None where it has no such model."""

    train_per_s: float
    valid_per_s: float
    train_size: int
    valid_size: int
    epochs: int
    time_to_target: float
    seconds: float
    reference: float | None = None


@dataclass(frozen=True)
class Change:
    """What the throughput would be if one thing were otherwise. what: "devices twice as fast" and so on.
    throughput, played: instances a second, as calculated and as played through. bottleneck: the largest load
    then. why: the network is impossible, and the numbers are None."""

    what: str
    throughput: float | None = None
    played: float | None = None
    bottleneck: str = ""
    why: str = ""


@dataclass(frozen=True)
class Candidate:
    """A placement. where: devices of each node's replicas. devices: their number. busiest_bits_per_s: of the
    link that carries most, at the throughput. bytes: of an instance, over all links. See `Change`."""

    name: str
    devices: int
    where: Mapping[str, Sequence[int]] = field(default_factory=dict)
    throughput: float | None = None
    played: float | None = None
    bottleneck: str = ""
    busiest_bits_per_s: float = 0.0
    bytes: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Limit:
    """What bounds a throughput. of: "device", "controller", "link", "source" (the link that brings the data),
    "keys" (waiting for one another) or "memory". name: of the device or link. nodes: of the
    device, the one that takes most time first; of the link, the ends of the edge that most bytes are of.
    words: why, as a clause of a sentence."""

    of: str
    name: str
    nodes: Sequence[str]
    words: str


@dataclass(frozen=True)
class Configuration:
    """A network that a search looked at. rate: of a device, by its axis' label; flops: operations a second
    that it could do; device: what it is, in words; of a circuit lanes and dsps. bandwidth: bits a second of a
    link, None: no limit; links: that are used. calculated, played: instances a second; None: it was not (no
    room, or not worth it). throughput: the lesser of both. total_rate, total_bandwidth, keys: what it costs,
    in the order of their weight."""

    devices: int
    rate: str
    flops: float
    replicas: int
    keys: int
    bandwidth: float | None
    links: int
    calculated: float | None
    played: float | None
    throughput: float
    total_rate: float
    total_bandwidth: float
    limit: Limit
    device: str = ""
    lanes: int | None = None
    dsps: int | None = None


@dataclass(frozen=True)
class Cheaper:
    """A configuration that is cheaper than the one proposed, and does not reach what it has to. by: "rate",
    "bandwidth" or "keys"."""

    by: str
    configuration: Configuration


@dataclass(frozen=True)
class Proposal:
    """What it would take. target: instances a second, None: the most. best: the most that was found within
    the budget, where it was looked for. reached: the target is. aim: instances a second that `configuration`
    is the cheapest for. placement: devices of each node's replicas. staleness: as played, by node. cheaper:
    some that fail. looked: all that were played; calculated: how many were. budget: what was said, by key."""

    target: float | None
    reached: bool
    aim: float
    best: Configuration | None
    configuration: Configuration
    placement: Mapping[str, Sequence[int]]
    staleness: Mapping[str, float]
    cheaper: Sequence[Cheaper]
    looked: Sequence[Configuration]
    calculated: int
    budget: Mapping[str, str]


@dataclass(frozen=True)
class GrowthStep:
    """A network of so many devices. keys: in flight, of all replicas. calculated, played: instances a second,
    None where a device is too small. throughput: the least of both and of what the source's link brings."""

    devices: int
    replicas: int
    keys: int
    calculated: float | None
    played: float | None
    throughput: float
    limit: Limit


@dataclass(frozen=True)
class Growth:
    """Throughput over the number of devices. keys: in flight in each pipeline. stops: the number of devices
    over which no larger one gains `gain` for each doubling; None: the last does. why: what limits behind it.
    source_bytes: of an instance's data. ceiling: what no number of devices exceeds, since all pipelines
    share it; None: they share nothing."""

    steps: Sequence[GrowthStep]
    keys: int
    gain: float
    stops: int | None
    why: Limit | None
    source_bytes: float
    ceiling: float | None
    ceiling_limit: Limit | None


@dataclass(frozen=True)
class Outcome:
    """throughput: instances a second. loads: the busiest first. keys: instances in flight. chain: seconds of
    an instance's longest chain of messages, there and back. instances: that were counted on; counted,
    counted_per_instance: what the model's throughput counts. origin: of everything given or assumed. notes:
    what the reader should know. case: of a paper's calculation. measured: by the sleep method. played: in
    simulated time. proposal: of a search, whose configuration the rest is of. growth: over the number of
    devices. beside: other calculations, by name. sensitivity, placements: compared, where asked for.
    accuracy: of estimates beside what was measured, of all models."""

    model: str
    devices: Sequence[DeviceOutcome]
    throughput: float
    loads: Sequence[Load]
    per_node: Sequence[NodeOutcome]
    per_edge: Sequence[EdgeOutcome]
    origin: Mapping[str, Origin]
    links: Sequence[LinkOutcome] = ()
    keys: int | None = None
    chain: Spread | None = None
    instances: int = 0
    counted: str = "instances"
    counted_per_instance: float = 1.0
    notes: Sequence[str] = ()
    case: Case | None = None
    measured: Slept | None = None
    played: Played | None = None
    proposal: Proposal | None = None
    growth: Growth | None = None
    beside: Mapping[str, Outcome] = field(default_factory=dict)
    sensitivity: Sequence[Change] = ()
    placements: Sequence[Candidate] = ()
    accuracy: Sequence[Accuracy] = ()

    @property
    def crossed(self) -> list[LinkOutcome]:
        """The links that anything crosses: others lead to nodes that never fired."""
        return [link for link in self.links if link.bytes]

    @property
    def bottleneck(self) -> Load:
        return self.loads[0]

    @property
    def sustained(self) -> float:
        """Instances a second that are calculated and, where it was played through, played, too."""
        return min(self.throughput, self.played.throughput) if self.played else self.throughput


def outcome_json(of: Outcome) -> dict[str, Any]:
    """Version 1: the fields above by their names, and `bottleneck`."""
    values = asdict(of)
    beside = {name: outcome_json(other) for name, other in of.beside.items()}
    return {
        "version": VERSION,
        **values,
        "bottleneck": asdict(of.bottleneck),
        "beside": beside,
        "accuracy": [as_json(row) for row in of.accuracy],
    }
