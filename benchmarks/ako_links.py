"""Ako's network on MNIST over links that are too slow for whole gradients: how long it takes to learn.

    python benchmarks/ako_links.py                              # as root; forty minutes
    python benchmarks/ako_links.py --seeds 1 --strategies ako all-to-all --json ako.json

Ranks are in network namespaces (`namespaces.py`) with one worker each, and take turns on this machine's
processors; the share of a processor that a rank has is told. First one device by itself, and then ranks with
Ako on links without a limit, train until their accuracy on the 10,000 test images is 99 %. What all-to-all
exchange needs is found, without a limit: the bytes that a rank sends in a second of training. Then links are
held to a share of that, and every strategy trains with every seed until its accuracy has reached the target,
the order changing from seed to seed. Asynchronous servers are tried in every split of the machines,
`servers-async:K` with K that serve and do not train; the best of them is the one to compare with.

Time is of training alone, without validation. Accuracy is known at the ends of epochs; the moment at which it
passes the target is taken to lie between two of them as on a straight line, which is unfavourable to long
epochs; the record has the curves. Told are medians over seeds, the interval that holds 95 % of medians of
resampled ratios, and, apart, epochs and seconds of an epoch (Ako, SoCC 2016, Table 1 and Figures 8 and 10).

Bars: 99 % is reached by one device and by ranks; every run reaches the target; Ako's median time is below
all-to-all's, with the whole interval of the ratio below 1, and no more than that of the best servers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from namespaces import WHOLE_BURST, Failed, Machines, bits
from record import RESULTS, save

MODEL, OURS, WHOLE, SERVERS = "ako-mnist", "ako", "all-to-all", "servers-async"
HIGH, HIGH_EPOCHS = 0.99, 30
"""Accuracy that is reached without a limit of links, and epochs after which it is given up."""
SECONDS = 1200.0
"""After which a run is given up."""
FREE = "10Gb"
"""Of links without a limit."""
COMMON = (
    *("workers=1", "trace=false", "checkpoint_every=0"),
    *("update.optimizer=sgd", "update.lr=0.05", "update.clip=1", "update.min_update_interval=20"),
    *("max_active_keys=2", "replicas.every=2"),
)
"""An update for every instance of 20 images, and rounds of two. Steps are long; without the clip of each
gradient some runs diverge in their first epoch, on one device as well."""
SERVED = ("update.lr=0.1",)
"""Servers update with the mean of a round, which is over twice as many images."""


def moment(epochs: Sequence[Mapping[str, Any]], target: float) -> tuple[float, float] | None:
    """Seconds of training and epochs until the accuracy passes the target; None: it does not."""
    before = (0.0, 0.0, 0.0)
    for number, epoch in enumerate(epochs, 1):
        now = (epoch["valid"]["accuracy"], epoch["seconds"], float(number))
        if now[0] >= target:
            share = (target - before[0]) / (now[0] - before[0])
            seconds, at = (b + share * (n - b) for b, n in zip(before[1:], now[1:], strict=True))
            return seconds, at
        before = now
    return None


def run(machines: Machines, args: argparse.Namespace, strategy: str, seed: int, rate: int) -> dict[str, Any]:
    """strategy: with servers' number behind a colon. rate: bits a second of a link, of which Ako is told."""
    kind, _, servers = strategy.partition(":")
    settings = [f"replicas.strategy={kind}", *COMMON, f"epochs={args.epochs}", f"seed={seed}"]
    settings.append(f"target={args.target}")
    if kind == SERVERS:
        settings += [*SERVED, f"replicas.servers={servers or 0}"]
    if strategy == OURS:
        settings += ["replicas.partitions=auto", f"replicas.bandwidth={rate}b/s"]
    found = machines.train(MODEL, args.ranks, [*settings, *args.set], SECONDS)
    reached = moment(found["epochs"], args.target)
    last = found["epochs"][-1]
    return {
        "strategy": strategy,
        "seed": seed,
        "seconds": reached and reached[0],
        "epochs": reached and reached[1],
        "epoch_seconds": last["seconds"] / len(found["epochs"]),
        "curve": [(each["seconds"], each["valid"]["accuracy"]) for each in found["epochs"]],
        "best": max(each["valid"]["accuracy"] for each in found["epochs"]),
        "sent_per_s": found["wire"] / args.ranks / last["seconds"],
        **{name: found.get(name) for name in ("partitions", "bound", "staleness_max", "drift", "blocked")},
    }


def high(machines: Machines, args: argparse.Namespace, ranks: int) -> dict[str, Any]:
    """How long it takes until `HIGH`, on links without a limit."""
    machines.hold_to(FREE)
    settings = [f"replicas.strategy={OURS}", *COMMON, f"epochs={HIGH_EPOCHS}", f"target={HIGH}", *args.set]
    found = machines.train(MODEL, ranks, settings, SECONDS)
    reached = moment(found["epochs"], HIGH)
    print(f"{ranks} rank(s) at {HIGH:.0%}: seconds and epochs {reached}", flush=True)
    return {
        "ranks": ranks,
        "seconds": reached and reached[0],
        "epochs": reached and reached[1],
        "accuracy": [each["valid"]["accuracy"] for each in found["epochs"]],
    }


def needed(machines: Machines, args: argparse.Namespace) -> tuple[float, float]:
    """Bits a second that a rank sends with all-to-all exchange where nothing holds it up, and how many
    seconds an epoch takes then."""
    rate = bits(FREE)
    machines.hold_to(FREE)
    settings = [f"replicas.strategy={WHOLE}", *COMMON, "epochs=1", "target=none", "valid_instances=1"]
    found = machines.train(MODEL, args.ranks, [*settings, *args.set], SECONDS)
    seconds = found["epochs"][-1]["seconds"]
    return min(8 * found["wire"] / args.ranks / seconds, float(rate)), seconds


def ratio(ours: Sequence[float], theirs: Sequence[float], draws: int = 10_000) -> dict[str, Any]:
    """Of medians, ours over theirs, by seed; and 95 % of those of seeds drawn again."""
    pairs = np.array([ours, theirs])
    picked = np.random.default_rng(0).integers(0, pairs.shape[1], (draws, pairs.shape[1]))
    medians = np.median(pairs[:, picked], axis=2)
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    first, second = np.median(pairs, axis=1)
    return {"median": float(first / second), "interval_95": [float(low), float(high)]}


def compared(runs: Sequence[Mapping[str, Any]], target: float) -> dict[str, Any]:
    """By strategy, and Ako beside each other one; which bars are missed."""
    by = {each["strategy"]: [r for r in runs if r["strategy"] == each["strategy"]] for each in runs}
    missed = [
        f"{name}, seed {r['seed']}: {r['best']:.4f} is the best, and the target {target}"
        for name, found in by.items()
        for r in found
        if r["seconds"] is None
    ]
    table = {
        name: {
            key: statistics.median(r[key] if r[key] is not None else float("inf") for r in found)
            for key in ("seconds", "epochs", "epoch_seconds", "sent_per_s")
        }
        for name, found in by.items()
    }
    ratios = {}
    if not missed and OURS in by:
        for name in by.keys() - {OURS}:
            ours, theirs = ([r["seconds"] for r in by[each]] for each in (OURS, name))
            ratios[name] = ratio(ours, theirs)
        if WHOLE in ratios and ratios[WHOLE]["interval_95"][1] >= 1.0:
            missed.append(
                f"{OURS} takes {ratios[WHOLE]['interval_95'][1]:.2f} of the time of {WHOLE} at most"
            )
        served = {name: table[name]["seconds"] for name in ratios if name.startswith(SERVERS)}
        if served and ratios[best := min(served, key=lambda name: served[name])]["median"] > 1.0:
            missed.append(f"{OURS} takes {ratios[best]['median']:.2f} of the time of {best}")
    return {"strategies": table, "ratios": ratios, "missed": missed}


def show(link: Mapping[str, Any]) -> None:
    print(f"links of {link['bits_per_s'] / 1e6:.1f} Mb/s, {link['share']:.2f} of what {WHOLE} needs")
    print("strategy       to the target: s  epochs   s of an epoch   MB/s sent")
    for name, row in link["strategies"].items():
        print(
            f"{name:14} {row['seconds']:16.1f} {row['epochs']:7.2f} {row['epoch_seconds']:15.1f}"
            f" {row['sent_per_s'] / 1e6:11.2f}"
        )
    for name, found in link["ratios"].items():
        low, high = found["interval_95"]
        print(f"{OURS} over {name}: {found['median']:.2f}, 95 % interval {low:.2f} to {high:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--strategies", nargs="+", help="without it Ako, all-to-all and servers in every split"
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--target", type=float, default=0.985, help="accuracy on the test images")
    parser.add_argument("--epochs", type=int, default=12, help="after which a run is over")
    parser.add_argument("--share", type=float, default=0.25, help="of what all-to-all needs, of a link")
    parser.add_argument("--rate", help="of a link, such as 80Mb, in place of a share")
    parser.add_argument("--set", nargs="*", default=[], help="further settings of all runs")
    parser.add_argument("--json", type=Path, default=RESULTS / "ako-links.json", help="where the record goes")
    args = parser.parse_args()
    if args.strategies is None:
        args.strategies = [OURS, WHOLE, SERVERS, *(f"{SERVERS}:{k}" for k in range(1, args.ranks))]
    with tempfile.TemporaryDirectory(prefix="amphw-links-") as folder:
        with Machines(args.ranks, Path(folder)) as machines:
            try:
                to_high = [high(machines, args, ranks) for ranks in (1, args.ranks)]
                full, _ = needed(machines, args)
                rate = bits(args.rate) if args.rate else int(args.share * full)
                print(f"{WHOLE} needs {full / 1e6:.1f} Mb/s of a link", flush=True)
                machines.hold_to(f"{rate / 1e6}Mb", WHOLE_BURST)
                runs = []
                for seed in range(args.seeds):
                    turn = seed % len(args.strategies)
                    for strategy in [*args.strategies[turn:], *args.strategies[:turn]]:
                        runs.append(run(machines, args, strategy, seed, rate))
                        print(f"seed {seed}: {runs[-1]}", flush=True)
            except Failed as error:
                sys.exit(str(error))
    link = {
        "bits_per_s": rate,
        "needed_bits_per_s": full,
        "share": rate / full,
        "processors_per_rank": len(set(machines.processors)) / args.ranks,
        **compared(runs, args.target),
    }
    link["missed"] += [f"{h['ranks']} rank(s): {HIGH} not reached" for h in to_high if h["seconds"] is None]
    show(link)
    told = {name: getattr(args, name) for name in ("ranks", "seeds", "target", "epochs", "set")}
    save({"model": MODEL, **told, "high": HIGH, "to_high": to_high, **link, "runs": runs}, args.json)
    if link["missed"]:
        sys.exit("\n".join(link["missed"]))


if __name__ == "__main__":
    main()
