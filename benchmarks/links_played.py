"""What `replica_links.py` measures, played in simulated time beside it: one rank is measured here, alone.

    taskset -c 0 python benchmarks/links_played.py language-model --window 8 --ranks 2 4 --nic 125e6

It is what `amphw estimate MODEL --ranks N --measure cpu` does, with what only links in a laboratory have: an
interface that lets a burst through, and ranks that share processors. Prints, by number of ranks and strategy,
the throughput and the seconds of a step, as JSON.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

from amphw.cli.blas import pin_blas


def played(args: argparse.Namespace) -> dict[str, Any]:
    from amphw.host.config import resolve
    from amphw.host.devices import make_device
    from amphw.models import get_model
    from amphw.replicas.measured import played as on_machines
    from amphw.replicas.measured import work_of
    from amphw.replicas.mpi import SHARE
    from amphw.replicas.simulated import Machines

    model: Any = get_model(args.model)
    cfg = resolve(model.config, model.defaults, None, args.set)
    work = work_of(model, cfg)
    found: dict[str, Any] = {}
    for strategy in args.strategies:
        its = replace(cfg, replicas=replace(cfg.replicas, strategy=strategy))
        found[strategy] = {}
        for ranks in args.ranks:
            machines = Machines(
                range(ranks),
                nic=args.nic,
                burst=args.burst,
                latency=args.latency,
                carrying=args.carrying,
                looking=args.looking,
                processors=args.processors[:ranks],
                late=SHARE / 2,
            )
            result, pace = on_machines(model, its, lambda: make_device("cpu"), work, 0, ranks, machines)
            found[strategy][str(ranks)] = {
                "throughput": result.instances_per_s,
                "alone": 1.0 / pace.seconds,
                "seconds": dict(result.seconds),
            }
    return found


def _pairs(parser: argparse.ArgumentParser, option: str, what: str) -> None:
    parser.add_argument(option, type=pair, nargs="+", default=[], help=f"{what}=SECONDS of a processor")


def pair(text: str) -> tuple[float, float]:
    size, _, seconds = text.partition("=")
    return float(size), float(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--strategies", nargs="+", default=["hybrid", "allreduce", "servers"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument(
        "--processors", nargs="+", type=int, default=[0, 1, 0, 1], help="of each rank, its own"
    )
    parser.add_argument("--nic", type=float, required=True, help="bytes a second, each way")
    parser.add_argument("--burst", type=float, default=0.0, help="bytes that may leave at once")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds of a message")
    _pairs(parser, "--carrying", "BYTES of messages")
    _pairs(parser, "--looking", "SECONDS of waits")
    parser.add_argument("--set", nargs="*", default=[], help="settings")
    pin_blas()
    print(json.dumps(played(parser.parse_args())))


if __name__ == "__main__":
    main()
