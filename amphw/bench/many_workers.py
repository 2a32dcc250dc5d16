"""Throughput by the number of workers: measured where the machine has the processors, else simulated.

One worker is traced with a few numbers of instances in flight (`TRACED_KEYS`), what its frames take becomes
costs (`frame_costs`), and a schedule with those costs is simulated for each number of workers, on a machine
with as many processors as workers. How far the simulation is from what was measured with few workers is part
of the record; no measured throughput is part of the costs.

How the machine itself scales is measured in the same rounds, by products of large matrices in as many
threads: clocks fall with the load, and two processors may be the threads of one core. So is how much its
memory moves: workers that would move more are slowed down (`bandwidth`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from amphw.bench.bandwidth import CHANNEL_GB_S, CHANNELS, Bandwidth
from amphw.bench.errors import BenchError
from amphw.bench.figures import Figure
from amphw.bench.load import Usage, UsageMeter, total
from amphw.bench.plan import Plan, Say
from amphw.bench.processor import processor
from amphw.bench.sides import our_side, peak_side, processors
from amphw.bench.simulated_workers import Setting, Simulated, limit, shapes_of, simulate
from amphw.bench.subject import GRACE_S
from amphw.bench.traced import Profile, Tracer, profile_of
from amphw.bench.validity import load_reasons, round_reasons
from amphw.estimate.play.simulation import Costs
from amphw.host.run_folder import environment
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions
from amphw.ir.instance import Instance

LEAST_EXPLAINED = 0.9
"""Share of the traced worker's time that the costs must account for."""

TRACED_KEYS = (1, 2, 8, 32)
"""Instances in flight with which one worker is traced."""


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
    some = [s for s in wanted if s.workers <= here]
    measured, peaks, bandwidth, profile, usage = _measure(plan, some, instances, say)
    say(f"amphw: the costs account for {profile.explained:.0%} of the worker's time")
    shapes = shapes_of(profile.lowered, instances, [int(plan.model.size(i)) for i in instances])
    simulated = {}
    for setting in wanted:
        at = max(here, setting.workers)
        simulated[setting] = one = simulate(shapes, profile, setting, at, bandwidth)
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
        "bandwidth": bandwidth_to_json(bandwidth, wanted),
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
) -> tuple[dict[Setting, OurRates], dict[int, float], Bandwidth, Profile, Usage]:
    """Our side with these settings in turn, and between them one worker that is traced, as machines do not
    keep their speed. Second: GFLOP/s of large products by threads, the best round's, as the bandwidth is."""
    answers: dict[Setting, list[dict[str, float]]] = {s: [] for s in wanted}
    peaks = {s.workers: 0.0 for s in wanted}
    copied = dict.fromkeys((1, processors()), 0.0)
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
        (peak,) = stack.enter_context(peak_side()).subjects
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
            for do, rates in (("run", peaks), ("copy", copied)):
                for threads, best in rates.items():
                    done = peak.ask(do, plan.brief + GRACE_S, seconds=plan.brief / 2, threads=threads)
                    rates[threads] = max(best, done["count"] / done["seconds"] * 1e-9)
            last = [(s, answers[s][-1]["count"] / answers[s][-1]["seconds"]) for s in wanted]
            told = "; ".join(f"{s.workers} workers, {s.keys} keys {rate:,.0f}" for s, rate in last)
            say(f"round {number + 1} of {plan.rounds}: {told}")
        profile = profile_of(tracers)
    ours = {s: OurRates.of(runs) for s, runs in answers.items()}
    return ours, peaks, Bandwidth(copied), profile, total(usages)


def _tracer(plan: Plan, instances: Sequence[Instance], intervals: Mapping[str, int], keys: int) -> Tracer:
    cfg = plan.cfg
    graph = plan.model.graph(cfg.model)
    rules = {
        n: replace(r, interval=intervals.get(n, r.interval)) for n, r in update_rules(cfg, graph).items()
    }
    given = asdict(cfg.device) | dict(plan.workload.device)
    options = DeviceOptions(keys, 0, "self", seed=cfg.train.seed, settings=given)
    return Tracer(graph, rules, options, instances, keys)


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
                    "memory": one.memory.to_json() if one.memory is not None else None,
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


def bandwidth_to_json(bandwidth: Bandwidth, wanted: Sequence[Setting]) -> dict[str, Any]:
    """What was measured by threads, and what simulations assumed by workers; gigabytes a second."""
    return {
        "gb_s": {str(threads): rate for threads, rate in bandwidth.gb_s.items()},
        "assumed_gb_s": {str(s.workers): bandwidth.of(s.workers) for s in wanted},
        "most_gb_s": CHANNELS * CHANNEL_GB_S,
    }


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
        "host_waking": costs.waking,
    }
