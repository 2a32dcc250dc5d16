"""Estimated placements beside real runs: is the search's placement faster than the heuristic's?

    python benchmarks/placing_bars.py                        # all models, two minutes on two cores
    python benchmarks/placing_bars.py ggnn --rounds 9        # the others keep their results

Estimates are for a machine that does nothing else; `load` in the results says whether it did.
Each model on the CPU and two sleep devices of unequal speed, which take as long as devices of so many FLOPS
would. Three placements (the heuristic's, the search's, everything on the CPU) train by turns on the same
instances; throughput is the median over rounds. The bar: the search's placement is at least as fast as the
heuristic's, estimated and measured. Results, by model: benchmarks/results/placing.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amphw.cli.blas import pin_blas
from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.pump_loop import PumpLoop
from amphw.host.run_folder import environment
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.ir.device import DeviceOptions, Mode
from amphw.library.estimating.proposal import Proposal, propose
from amphw.models import get_model

RESULTS = Path(__file__).parent / "results" / "placing.json"
DEVICES = "cpu,a=sleep:20GFLOPS,b=sleep:100GFLOPS"
SETTINGS = {
    # Wide enough for a frame to be worth handing over.
    "list-reduction": ["hidden=512"],
    "tree-lstm": ["sample=true", "hidden=512"],
    "ggnn": ["hidden=200"],
}
WARM, SECONDS = 0.5, 2.0
SAMPLE = 32


def throughput(model: Any, cfg: Any, graph: Any, device: str, place: dict[str, str], data: Any) -> float:
    """Instances a second of a short run."""
    made = make_device(device)
    settings = asdict(cfg.device) | {"place": place}
    keys = cfg.train.max_active_keys
    made.load(graph, update_rules(cfg, graph), DeviceOptions(keys, 1, "self", 0, settings=settings))
    try:
        loop = PumpLoop(made, data, [1] * len(data), range(keys), Mode.TRAIN)
        loop.run(WARM)
        found = loop.run(SECONDS)
        return float(found["count"] / found["seconds"])
    finally:
        made.close()


def measured(name: str, rounds: int) -> dict[str, Any]:
    model, device = get_model(name), DEVICES
    cfg = resolve(model.config, model.defaults, None, SETTINGS[name])
    proposal: Proposal = propose(model, cfg, device, SAMPLE, tell=print, begins=print)
    assert proposal.search is not None
    graph = model.graph(cfg.model)
    data = chosen_instances(model, cfg, SAMPLE)
    wanted = {"heuristic": proposal.heuristic, "search": proposal.search, "cpu": proposal.host}
    found: dict[str, list[float]] = {key: [] for key in wanted}
    for _ in range(rounds):
        for key, estimate in wanted.items():
            found[key].append(throughput(model, cfg, graph, device, dict(estimate.placement), data))
    return {
        "model": name,
        "settings": SETTINGS[name],
        "device": device,
        "keys": cfg.train.max_active_keys,
        "placements": {
            key: {
                "placement": dict(estimate.placement),
                "estimated": estimate.throughput,
                "bottleneck": estimate.bottleneck.name,
                "measured": statistics.median(found[key]),
                "rounds": found[key],
            }
            for key, estimate in wanted.items()
        },
    }


def missed(run: dict[str, Any]) -> list[str]:
    """In which ways the search's placement is slower than the heuristic's."""
    search, heuristic = run["placements"]["search"], run["placements"]["heuristic"]
    return [how for how in ("estimated", "measured") if search[how] < heuristic[how]]


def merged(record: dict[str, Any], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record with these runs in place of those of the same models."""
    by_model = {run["model"]: run for run in [*record.get("runs", []), *runs]}
    return {"runs": list(by_model.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SETTINGS), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    pin_blas()
    runs, slower = [], []
    for name in arguments.models:
        run = measured(name, arguments.rounds)
        print(f"{name} on {run['device']}, instances/s:")
        for key, each in run["placements"].items():
            print(
                f"  {key:10} estimated {each['estimated']:9.1f}  measured {each['measured']:9.1f} "
                f"({min(each['rounds']):.1f} to {max(each['rounds']):.1f})  bottleneck {each['bottleneck']}: "
                + ",".join(f"{n}={at}" for n, at in each["placement"].items())
            )
        slower += [f"{name} ({how})" for how in missed(run)]
        load = os.getloadavg()[1]  # of the last five minutes, this run included
        runs.append({**run, "date": time.strftime("%Y-%m-%d"), "environment": environment(), "load": load})
    record = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(merged(record, runs), indent=1) + "\n", encoding="utf-8")
    if slower:
        sys.exit(f"the search's placement is slower than the heuristic's: {', '.join(slower)}")


if __name__ == "__main__":
    main()
