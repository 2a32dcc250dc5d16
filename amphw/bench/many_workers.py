"""Throughput by the number of workers: measured where the machine has the processors, else simulated.

One worker is traced with a few numbers of instances in flight (`TRACED_KEYS`), what its frames take becomes
costs (`frame_costs`), and a schedule with those costs is simulated for each number of workers, on a machine
with as many processors as workers. How far the simulation is from what was measured with few workers is part
of the record; no measured throughput is part of the costs.

How the machine itself scales is measured in the same rounds, by products of large matrices in as many
threads: clocks fall with the load, and two processors may be the threads of one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.figures import Figure
from amphw.bench.load import Usage, UsageMeter, total
from amphw.bench.plan import Plan, Say
from amphw.bench.processor import processor
from amphw.bench.sides import our_side, peak_side, processors
from amphw.bench.subject import GRACE_S
from amphw.bench.traced import Profile, Tracer, profile_of
from amphw.bench.validity import load_reasons, round_reasons
from amphw.engine.lowering.lower import Lowered
from amphw.engine.lowering.plan import Planner
from amphw.engine.numpy_plane.slots import finish_plan
from amphw.estimate.count.firings import Shape, shape_of
from amphw.estimate.play.simulation import Costs, Simulation, Tally, shared_memory
from amphw.host.run_folder import environment
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions
from amphw.ir.instance import Instance

FULL = 0.85
"""Share of the time from which something that happens one after another is what limits."""

NOTABLE = 0.1
"""Share of the workers' time that is worth naming as lost."""

LEAST_EXPLAINED = 0.9
"""Share of the traced worker's time that the costs must account for."""

TRACED_KEYS = (1, 2, 8, 32)
"""Instances in flight with which one worker is traced."""

_LEAST_RETIRED = 400


@dataclass(frozen=True)
class Setting:
    """A number of workers, and of instances in flight."""

    workers: int
    keys: int


@dataclass(frozen=True)
class Simulated:
    """A stretch of the steady state: what happened in it, per setting."""

    setting: Setting
    tally: Tally

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


@dataclass(frozen=True)
class OurRates:
    """Rates over the rounds, and processor microseconds for one of what the model counts."""

    rate: Figure
    cpu_us: Figure

    @classmethod
    def of(cls, answers: Sequence[Mapping[str, float]]) -> OurRates:
        """From what our side says of its runs, at least one."""
        rate = Figure.of([a["count"] / a["seconds"] for a in answers])
        cpu = Figure.of([a["cpu"] * 1e6 / a["count"] for a in answers])
        assert rate is not None and cpu is not None
        return cls(rate, cpu)


def settings(workers: Sequence[int], keys: int, configured: int) -> list[Setting]:
    """Each number of workers with the workload's keys, and with as many keys a worker as the workload has."""
    found = [Setting(w, k) for w in workers for k in (keys, max(1, keys * w // configured))]
    return list(dict.fromkeys([Setting(1, keys), *found]))


def measure_workers(plan: Plan, workers: Sequence[int], say: Say) -> dict[str, Any]:
    """Measure, trace and simulate -> the record. Raises BenchError for another device than the CPU."""
    train, device = plan.cfg.train, plan.cfg.device
    return measure_settings(plan, settings(workers, train.max_active_keys, device.workers), say)


def measure_settings(plan: Plan, wanted: Sequence[Setting], say: Say) -> dict[str, Any]:
    """See `measure_workers`."""
    if plan.device != "cpu":
        raise BenchError(f"--workers is about the device cpu, not {plan.device}")
    plan.model.prepare(plan.cfg.model, plan.cfg.train.seed)
    cfg = plan.cfg
    here = processors()
    instances = chosen_instances(plan.model, cfg, plan.workload.instances)
    measured, peaks, profile, usage = _measure(plan, [s for s in wanted if s.workers <= here], instances, say)
    say(f"amphw: the costs account for {profile.explained:.0%} of the worker's time")
    shapes = shapes_of(profile.lowered, instances, [int(plan.model.size(i)) for i in instances])
    simulated = {}
    for setting in wanted:
        at = max(here, setting.workers)
        simulated[setting] = one = simulate(shapes, profile, setting, at)
        say(
            f"simulated: {setting.workers} workers, {setting.keys} keys: {one.instances_per_s:,.0f} "
            f"{plan.model.counted}/s"
        )
    names = [u.name for u in profile.lowered.units]
    found = rows(measured, simulated, names)
    return {
        "workload": plan.workload.name,
        "mode": "workers",
        "counted": plan.model.counted,
        "processors": here,
        "workers": found,
        "scaling": scaling(found, peaks),
        "sgemm_gflops": {str(threads): rate for threads, rate in peaks.items()},
        "costs_us": {str(keys): costs_to_json(costs, names) for keys, costs in profile.traced.items()},
        "explained": profile.explained,
        "min_update_interval": plan.every[0],
        "foreign_load": usage.foreign,
        **_validity(usage, plan.rounds, profile.explained),
        "date": date.today().isoformat(),
        "processor": processor(),
        "environment": environment(),
    }


def _validity(usage: Usage, rounds: int, explained: float) -> dict[str, Any]:
    reasons = load_reasons(usage) + round_reasons(rounds)
    if explained < LEAST_EXPLAINED:
        reasons.append(f"the costs account for {explained:.0%} of the traced worker's time only")
    return {"valid": not reasons, "invalid_because": reasons}


# --- measuring ----------------------------------------------------------------------------------------


def _measure(
    plan: Plan, wanted: Sequence[Setting], instances: Sequence[Instance], say: Say
) -> tuple[dict[Setting, OurRates], dict[int, float], Profile, Usage]:
    """Our side with these settings in turn, and one worker that is traced in the same rounds, as machines do
    not keep their speed. Second: GFLOP/s of large products by threads, the best round's."""
    answers: dict[Setting, list[dict[str, float]]] = {s: [] for s in wanted}
    peaks = {s.workers: 0.0 for s in wanted}
    usages = []
    with ExitStack() as stack:
        sides = {}
        for s in wanted:
            spec = plan.our_spec(plan.every[0])
            more = [f"device.workers={s.workers}", f"train.max_active_keys={s.keys}"]
            spec["overrides"] = [*spec["overrides"], *more]
            say(f"amphw: starting, workers: {s.workers}, keys: {s.keys}")
            sides[s] = stack.enter_context(our_side(spec, s.workers))
        intervals = sides[wanted[0]].first["intervals"]
        tracers = {}
        for keys in TRACED_KEYS:
            say(f"amphw: starting, traced: 1 worker, keys: {keys}")
            tracers[keys] = tracer = _tracer(plan, instances, intervals, keys)
            stack.callback(tracer.close)
        (products,) = stack.enter_context(peak_side()).subjects
        for number in range(plan.rounds):
            for s in wanted if number % 2 == 0 else reversed(wanted):
                meter = UsageMeter(sides[s].pids)
                (subject,) = sides[s].subjects
                answers[s].append(
                    subject.ask("run", plan.seconds + GRACE_S, seconds=plan.seconds, mode="train")
                )
                usages.append(meter.read())
            meter = UsageMeter([])
            for tracer in tracers.values():
                tracer.run(plan.seconds / len(tracers))
            usages.append(meter.read())
            for threads, best in peaks.items():
                done = products.ask("run", plan.brief + GRACE_S, seconds=plan.brief / 2, threads=threads)
                peaks[threads] = max(best, done["count"] / done["seconds"] * 1e-9)
            rates = [(s, answers[s][-1]["count"] / answers[s][-1]["seconds"]) for s in wanted]
            told = "; ".join(f"{s.workers} workers, {s.keys} keys {rate:,.0f}" for s, rate in rates)
            say(f"round {number + 1} of {plan.rounds}: {told}")
        profile = profile_of(tracers)
    return {s: OurRates.of(runs) for s, runs in answers.items()}, peaks, profile, total(usages)


def _tracer(plan: Plan, instances: Sequence[Instance], intervals: Mapping[str, int], keys: int) -> Tracer:
    cfg = plan.cfg
    graph = plan.model.graph(cfg.model)
    rules = {
        n: replace(r, interval=intervals.get(n, r.interval)) for n, r in update_rules(cfg, graph).items()
    }
    given = asdict(cfg.device) | dict(plan.workload.device)
    options = DeviceOptions(keys, 0, "self", seed=cfg.train.seed, settings=given)
    return Tracer(graph, rules, options, instances, keys, plan.brief)


# --- simulating ---------------------------------------------------------------------------------------


def shapes_of(lowered: Lowered, instances: Sequence[Instance], sizes: Sequence[int]) -> list[Shape]:
    """sizes: what the model counts of each."""
    planner = Planner(lowered, lambda plan: shape_of(lowered, finish_plan(lowered, plan)))
    return [replace(planner.plan(i), size=n) for i, n in zip(instances, sizes, strict=True)]


def simulate(shapes: Sequence[Shape], profile: Profile, setting: Setting, at: int) -> Simulated:
    """The steady state of a setting, on so many processors."""
    workers, keys = setting.workers, setting.keys
    topology = shared_memory(workers, profile.rules, at)
    simulation = Simulation(shapes, profile.costs(workers, keys), profile.rules, topology, keys)
    before = simulation.run(2 * keys)
    after = simulation.run(before.retired + max(8 * keys, _LEAST_RETIRED))
    return Simulated(setting, after.since(before))


def limit(one: Simulated, base: Simulated, names: Sequence[str]) -> str:
    """What keeps the throughput from growing with the workers; `base`: one worker.

    the host: it submits one instance after another. reducing NODE: one worker at a time does that. Else what
    costs the workers most: few rows (a frame), few keys (nothing is ready), or processor time that the host
    takes from them; "workers" if none of these is worth naming.
    """
    tally = one.tally
    if one.share(tally.host) >= FULL:
        return "the host"
    unit = max(tally.reducing, key=lambda u: tally.reducing[u], default=None)
    if unit is not None and one.share(tally.reducing[unit]) >= FULL:
        return f"reducing {names[unit]}"
    lost = {
        "few rows": 1.0 - base.work / one.work,
        "few keys": 1.0 - one.utilisation - one.stolen,
        "the host takes turns": one.stolen,
    }
    worst = max(lost, key=lambda name: lost[name])
    return worst if lost[worst] >= NOTABLE else "workers"


# --- the record ---------------------------------------------------------------------------------------


def rows(
    measured: Mapping[Setting, OurRates], simulated: Mapping[Setting, Simulated], names: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each setting: what was measured, else what was simulated.

    Speed-ups are over the first setting, measured over measured and simulated over simulated. error: how
    much more the simulation has than was measured, as a share; cpu_error: the same of the processor time for
    an instance, which depends less on what else the machine does.
    """
    first = next(iter(simulated))
    base = simulated[first]
    found = []
    for setting, one in simulated.items():
        real, rate, tally = measured.get(setting), one.instances_per_s, one.tally
        cpu = one.work + tally.host / tally.counted
        shown = real.rate.median if real is not None else rate
        over = measured[first].rate.median if real is not None else base.instances_per_s
        found.append(
            {
                "workers": setting.workers,
                "max_active_keys": setting.keys,
                "instances_per_s": shown,
                "speed_up": shown / over,
                "simulated": real is None,
                "measured": real.rate.to_json() if real is not None else None,
                "cpu_us": real.cpu_us.to_json() if real is not None else None,
                "simulation": {
                    "instances_per_s": rate,
                    "speed_up": rate / base.instances_per_s,
                    "error": rate / real.rate.median - 1 if real is not None else None,
                    "cpu_us": cpu,
                    "cpu_error": cpu / real.cpu_us.median - 1 if real is not None else None,
                    "utilisation": one.utilisation,
                    "rows_per_frame": tally.rows / tally.frames,
                    "work_us": one.work,
                    "host": one.share(tally.host),
                    "reducing": {names[u]: one.share(us) for u, us in tally.reducing.items()},
                    "stolen_by_host": one.stolen,
                    "limit": limit(one, base, names),
                },
            }
        )
    return found


def scaling(found: Sequence[Mapping[str, Any]], peaks: Mapping[int, float]) -> dict[str, dict[str, Any]]:
    """By the number of workers: the best speed-up over the best setting of one worker, whether it was
    simulated, with how many keys, and beside what the machine's products gain (sgemm; None: not measured)."""

    def rate(row: Mapping[str, Any], simulated: bool) -> float:
        return float((row["simulation"] if simulated else row)["instances_per_s"])

    told = {}
    for workers in dict.fromkeys(row["workers"] for row in found):
        some = [row for row in found if row["workers"] == workers]
        simulated = some[0]["simulated"]
        best = max(some, key=lambda row: float(row["instances_per_s"]))
        alone = max(rate(row, simulated) for row in found if row["workers"] == 1)
        told[str(workers)] = {
            "speed_up": rate(best, simulated) / alone,
            "simulated": simulated,
            "keys": best["max_active_keys"],
            "sgemm": peaks[workers] / peaks[1] if workers in peaks else None,
        }
    return told


def costs_to_json(costs: Costs, names: Sequence[str]) -> dict[str, Any]:
    kinds = ("backward", "forward")
    frames = [
        {
            "node": names[u],
            "kind": kinds[k],
            "frame": asdict(line),
            "delivery": asdict(costs.delivery[u, k]),
        }
        for (u, k), line in sorted(costs.frame.items())
    ]
    return {
        "frames": frames,
        "reduce_row": {names[u]: us for u, us in costs.reduce.items()},
        "update": {names[u]: us for u, us in costs.update.items()},
        "host_instance": costs.host,
    }
