"""The steady state of so many workers with so many instances in flight, simulated from one worker's costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amphw.bench.bandwidth import Bandwidth, Memory, Moves
from amphw.bench.traced import Profile
from amphw.engine.lowering.lower import Lowered
from amphw.engine.lowering.plan import Planner
from amphw.engine.numpy_plane.slots import finish_plan
from amphw.estimate.count.firings import Shape, shape_of
from amphw.estimate.play.simulation import Simulation, Tally, shared_memory
from amphw.ir.instance import Instance

FULL = 0.85
"""Share of the time from which something that happens one after another is what limits."""

NOTABLE = 0.1
"""Share of the workers' time that is worth naming as lost."""

CLOSE = 1.01
"""How much more than the bandwidth may be moved."""

_LEAST_RETIRED = 400


@dataclass(frozen=True)
class Setting:
    """A number of workers, and of instances in flight."""

    workers: int
    keys: int


@dataclass(frozen=True)
class Simulated:
    """A stretch of the steady state: what happened in it, per setting. memory: None: it was taken to
    keep up."""

    setting: Setting
    tally: Tally
    memory: Memory | None = None

    @property
    def instances_per_s(self) -> float:
        return self.tally.counted / self.tally.us * 1e6

    @property
    def utilisation(self) -> float:
        return self.tally.work / (self.tally.us * self.setting.workers)

    @property
    def work(self) -> float:
        """Microseconds of workers for one of what the model counts."""
        return self.tally.work / self.tally.counted

    @property
    def stolen(self) -> float:
        """Share of the workers' time that the host takes for want of a processor."""
        return self.share(self.tally.stolen) / self.setting.workers

    def share(self, us: float) -> float:
        """Of the time that has passed."""
        return us / self.tally.us


def shapes_of(lowered: Lowered, instances: Sequence[Instance], sizes: Sequence[int]) -> list[Shape]:
    """sizes: what the model counts of each."""
    planner = Planner(lowered, lambda plan: shape_of(lowered, finish_plan(lowered, plan)))
    return [replace(planner.plan(i), size=n) for i, n in zip(instances, sizes, strict=True)]


def simulate(
    shapes: Sequence[Shape],
    profile: Profile,
    setting: Setting,
    at: int,
    bandwidth: Bandwidth | None = None,
) -> Simulated:
    """The steady state of a setting, on so many processors. bandwidth: None: memory is taken to keep up.

    Frames of several workers take as much longer as it needs for them not to move more than that.
    """
    one = Simulated(setting, _steady(shapes, profile, setting, at, 1.0))
    if bandwidth is None:
        return one
    moves, most = Moves.of(profile.rules, shapes), bandwidth.of(setting.workers)
    wanted = moved = moves.gb_s(one.tally)
    slowed = 1.0
    while setting.workers > 1 and moved > CLOSE * most:
        slowed *= moved / most
        one = Simulated(setting, _steady(shapes, profile, setting, at, slowed))
        moved = moves.gb_s(one.tally)
    return replace(one, memory=Memory(most, wanted, moved, slowed))


def _steady(shapes: Sequence[Shape], profile: Profile, setting: Setting, at: int, slowed: float) -> Tally:
    workers, keys = setting.workers, setting.keys
    topology = shared_memory(workers, profile.rules, at)
    costs = profile.costs(workers, keys)
    costs = replace(costs, frame={key: line.times(slowed) for key, line in costs.frame.items()})
    simulation = Simulation(shapes, costs, profile.rules, topology, keys)
    before = simulation.run(2 * keys)
    return simulation.run(before.retired + max(8 * keys, _LEAST_RETIRED)).since(before)


def limit(one: Simulated, base: Simulated, names: Sequence[str]) -> str:
    """What keeps the throughput from growing with the workers; `base`: one worker.

    the host: it submits one instance after another. reducing NODE: one worker at a time does that. Else what
    costs the workers most: few rows (a frame), few keys (nothing is ready), memory (which all of them share),
    or processor time that the host takes from them; "workers" if none of these is worth naming.
    """
    tally = one.tally
    if one.share(tally.host) >= FULL:
        return "the host"
    unit = max(tally.reducing, key=lambda u: tally.reducing[u], default=None)
    if unit is not None and one.share(tally.reducing[unit]) >= FULL:
        return f"reducing {names[unit]}"
    slowed = one.memory.slowed if one.memory is not None else 1.0
    memory = tally.computing * (1.0 - 1.0 / slowed) / tally.work
    lost = {
        "memory": memory,
        "few rows": 1.0 - base.work / one.work - memory,
        "few keys": 1.0 - one.utilisation - one.stolen,
        "the host takes turns": one.stolen,
    }
    worst = max(lost, key=lambda name: lost[name])
    return worst if lost[worst] >= NOTABLE else "workers"
