"""Ako's cost model beside what is so: how many partitions learn most in a fixed time, at several link rates.

    python benchmarks/ako_partitions.py                        # as root; 40 minutes
    python benchmarks/ako_partitions.py --seeds 1 --shares 0.25 --json partitions.json
    python benchmarks/ako_partitions.py --again                # judge the runs of the record once more

Ranks are in network namespaces, one worker each, and train Ako's network on MNIST (`ako_links.py`). Links
carry a share of what all-to-all exchange needs. At each rate gradients are cut into 1, 2, 4, 8 and 16
partitions in turn, and into as many as the cost model asks for, p = ceil(gamma m (n - 1) / B), of which each
rank measures gamma itself. Then the same without accumulation: what a rank sends is its last round's alone.

Told is the accuracy on the 10,000 test images after a fixed time of training (between two ends of epochs of
12,000 images as on a straight line), medians over seeds; and what a rank sends beside the model's
gamma m (n - 1) / p (Ako, SoCC 2016, Figures 12a, 12b and 13). To validate, ranks send at the end of an epoch
what they owe, which is all but one of the p partitions; the model has that, too.

Bars: the predicted number has the highest accuracy of all, or one within 5 % of it; what a rank sends is
within 15 % of the model where that is below B; without accumulation accuracy is lower.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ako_links import COMMON, MODEL, OURS, SECONDS, needed
from namespaces import WHOLE_BURST, Failed, Machines
from record import RESULTS, save

from amphw.bench.errors import BenchError
from amphw.bench.replicas.exchange import accuracy_at, gradient_bytes
from amphw.replicas.ako.cost import sent_per_s

AUTO, LATEST = "auto", "latest"
"""As many partitions as the cost model asks for; and these without accumulation."""
IMAGES = "train_instances=12000"
"""Of an epoch: so few that one with whole gradients over slow links is short beside what is compared."""
NEAR, OFF = 0.05, 0.15


def run(
    machines: Machines, args: argparse.Namespace, tried: str, seed: int, rate: int, epochs: int
) -> dict[str, Any]:
    """tried: a number of partitions, `AUTO` or `LATEST`. rate: bits a second of a link."""
    settings = [f"replicas.strategy={OURS}", *COMMON, f"seed={seed}", "target=none", f"epochs={epochs}"]
    if tried.isdecimal():
        settings.append(f"replicas.partitions={tried}")
    else:
        settings += [f"replicas.bandwidth={rate}b/s", f"replicas.accumulate={str(tried == AUTO).lower()}"]
    found = machines.train(MODEL, args.ranks, [*settings, *args.set], SECONDS)
    seconds = found["epochs"][-1]["seconds"]
    return {
        "tried": tried,
        "seed": seed,
        "accuracy": accuracy_at(
            [(epoch["seconds"], epoch["valid"]["accuracy"]) for epoch in found["epochs"]], args.seconds
        ),
        "rounds_per_s": statistics.mean(found["clocks"]) / seconds,
        "sent_per_s": found["sent"] / seconds,
        "epoch_seconds": seconds / len(found["epochs"]),
        **{name: found[name] for name in ("partitions", "bound", "staleness_max", "blocked", "drift")},
    }


def epochs_for(args: argparse.Namespace, tried: str, share: float, epoch: float) -> int:
    """So many that training goes on for longer than accuracies are compared. share: of what all-to-all needs.
    epoch: seconds of one where links hold up nobody; they do in proportion to what is sent."""
    slower = max(1.0, 1.0 / (int(tried) * share)) if tried.isdecimal() else 1.0
    return math.ceil(1.4 * args.seconds / (epoch * slower)) + 1


def judged(runs: Sequence[Mapping[str, Any]], rate: float, size: int, ranks: int) -> dict[str, Any]:
    """What the runs at one rate say. rate: bits a second. size: bytes of a gradient."""
    tried = {each["tried"]: [r for r in runs if r["tried"] == each["tried"]] for each in runs}
    accuracies = {name: statistics.median(r["accuracy"] for r in found) for name, found in tried.items()}
    fixed = {name: accuracy for name, accuracy in accuracies.items() if name not in (AUTO, LATEST)}
    best = max(fixed, key=lambda name: fixed[name])
    off = {}
    for name, found in tried.items():
        said = [
            sent_per_s(r["rounds_per_s"], size, ranks, r["partitions"], r["epoch_seconds"]) for r in found
        ]
        if statistics.median(said) < rate / 8 and name != LATEST:
            off[name] = statistics.median(r["sent_per_s"] / s - 1 for r, s in zip(found, said, strict=True))
    missed = []
    if accuracies[AUTO] < (1 - NEAR) * max(accuracies.values()):
        missed.append(f"{accuracies[AUTO]:.4f} with what is predicted, {fixed[best]:.4f} with p = {best}")
    missed += [
        f"p = {name}: sent {error:+.0%} of the model" for name, error in off.items() if abs(error) > OFF
    ]
    if LATEST in tried and accuracies[LATEST] >= accuracies[AUTO]:
        missed.append(f"{accuracies[LATEST]:.4f} without accumulation, {accuracies[AUTO]:.4f} with it")
    return {
        "bits_per_s": rate,
        "p_predicted": statistics.median(r["partitions"] for r in tried[AUTO]),
        "p_best": int(best),
        "accuracy": accuracies,
        "sent_off_model": off,
        "missed": missed,
        "runs": list(runs),
    }


def show(at: Mapping[str, Any]) -> None:
    print(f"links of {at['bits_per_s'] / 1e6:.1f} Mb/s, {at['share']:.2f} of what all-to-all needs")
    for name, accuracy in at["accuracy"].items():
        told = (
            f", sent {at['sent_off_model'][name]:+.1%} of the model" if name in at["sent_off_model"] else ""
        )
        print(f"  p = {name:7} accuracy {accuracy:.4f}{told}")
    print(f"  predicted: {at['p_predicted']:g}; the best of those tried: {at['p_best']}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.25, 0.1], help="of the need")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument(
        "--seconds", type=float, default=17.0, help="of training, then accuracies are compared"
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of all runs")
    parser.add_argument("--again", action="store_true", help="run nothing, judge the runs of the record")
    parser.add_argument("--json", type=Path, default=RESULTS / "ako-partitions.json", help="where it goes")
    args = parser.parse_args()
    if args.again:
        again(args.json)
        return
    args.set = [IMAGES, *args.set]
    every = [*map(str, args.partitions), AUTO, LATEST]
    found = []
    with tempfile.TemporaryDirectory(prefix="amphw-links-") as folder:
        with Machines(args.ranks, Path(folder)) as machines:
            try:
                full, epoch = needed(machines, args)
                size = gradient_bytes(args.set)
                print(
                    f"all-to-all needs {full / 1e6:.1f} Mb/s of a link, an epoch takes {epoch:.1f} s",
                    flush=True,
                )
                for share in args.shares:
                    rate, runs = int(share * full), []
                    machines.hold_to(f"{rate / 1e6}Mb", WHOLE_BURST)
                    for seed in range(args.seeds):
                        turn = seed % len(every)
                        for tried in [*every[turn:], *every[:turn]]:
                            epochs = epochs_for(args, tried, share, epoch)
                            runs.append(run(machines, args, tried, seed, rate, epochs))
                            print(f"seed {seed}: {runs[-1]}", flush=True)
                    found.append({"share": share, **judged(runs, rate, size, args.ranks)})
                    show(found[-1])
            except (Failed, BenchError) as error:
                sys.exit(str(error))
    told = {name: getattr(args, name) for name in ("ranks", "seeds", "seconds", "set")}
    processors = len(set(machines.processors)) / args.ranks
    save(
        {"model": MODEL, **told, "gradient_bytes": size, "processors_per_rank": processors, "rates": found},
        args.json,
    )
    verdict(found)


def again(path: Path) -> None:
    """Judge the runs of a record as they would be now; when and where they ran stays as it is."""
    record = json.loads(path.read_text(encoding="utf-8"))
    size, ranks = record["gradient_bytes"], record["ranks"]
    record["rates"] = [
        {"share": at["share"], **judged(at["runs"], at["bits_per_s"], size, ranks)} for at in record["rates"]
    ]
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for at in record["rates"]:
        show(at)
    verdict(record["rates"])


def verdict(rates: Sequence[Mapping[str, Any]]) -> None:
    missed = [f"{at['share']:.2f}: {each}" for at in rates for each in at["missed"]]
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
