"""How long a million simulated messages take: GGNN on networks of 8, 32 and 1,000 devices.

    python benchmarks/million_messages.py [--json FILE]

Generated molecules; every node with parameters on a device of its own, in 1, 4 and 125 replicas. The bar:
under 10 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from record import save

from amphw.engine.policy import BACKWARD, FORWARD, POLICIES
from amphw.estimate.count.traffic import count
from amphw.estimate.network.assemble import apart, placeable
from amphw.estimate.play.simulation import Costs, Line, Rules, Simulation, Station, Topology, Way
from amphw.host.config import resolve
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of
from amphw.models import get_model

MESSAGES = 1_000_000
BAR_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    networks = []
    model = get_model("ggnn")
    cfg = resolve(model.config, model.defaults, None, ["model.sample=true"])
    graph = graph_of(model, cfg)
    traffic = count(apart(graph, placeable(graph)), chosen_instances(model, cfg, 32))
    units = traffic.lowered.units
    heavy = [u.index for u in units if u.owns]
    both = [(u.index, kind) for u in units for kind in (FORWARD, BACKWARD)]
    costs = Costs(dict.fromkeys(both, Line(1.0, 0.1)), {}, {}, dict.fromkeys(heavy, 10.0), 0.0)
    table = POLICIES["default"].table(traffic.lowered, 1)
    rules = Rules(table, [u.depth for u in units], dict.fromkeys(heavy, 100))
    for replicas in (1, 4, 125):
        of = {u: k for k, u in enumerate(heavy)}
        place = [[of.get(u.index, 0) + r * len(heavy) for u in units] for r in range(replicas)]
        devices = len(heavy) * replicas
        own = [range(r * len(heavy), (r + 1) * len(heavy)) for r in range(replicas)]
        ways = {(a, b): Way(1.0, 1e10) for each in own for a in each for b in each if a != b}
        topology = Topology([Station(frame_cap=1)] * devices, place, ways)
        simulation = Simulation([w.shape for w in traffic.walks], costs, rules, topology, keys=16 * replicas)
        start = time.perf_counter()
        tally = simulation.run(messages=MESSAGES)
        took = time.perf_counter() - start
        networks.append(
            {"devices": devices, "messages": tally.messages, "instances": tally.retired, "seconds": took}
        )
        print(f"{devices:5} devices: {tally.messages:,} messages, {tally.retired:,} instances, {took:.2f} s")
    met = all(network["seconds"] < BAR_S for network in networks)
    if args.json is not None:
        save({"networks": networks, "bar_seconds": BAR_S, "met": met}, args.json)
    sys.exit(not met)


if __name__ == "__main__":
    main()
