"""What a link that is ten times slower costs workers that exchange partial gradients.

    python benchmarks/ako_slower_link.py        # as root; ten minutes

Four ranks train Ako's network on MNIST in network namespaces (`namespaces.py`), with links of `--rate` and of
a tenth of that, where the cost model chooses the partitions; and on the slow links with the partitions of the
fast ones, where the bound holds ranks up (two epochs, once). Beside them, on the fast links, ranks that
exchange nothing but their mean at the ends of epochs. The first epoch, in which gamma is measured and
partitions are cut anew, is left out.

An epoch's seconds are those of training, and with an exchange those in which ranks send what they owe before
they meet, which on a slow link is a second or more an epoch. Bar: throughput on slow links is at least 0.9
of that on fast ones but for what is owed at the end of an epoch, which is computed from the rate; both are
told. What exchange costs beside computing, where nothing is shared but memory, is what `amphw bench exchange`
measures; here four ranks share two processors with the kernel, which moves their messages.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from ako_links import COMMON, MODEL, SECONDS
from namespaces import WHOLE_BURST, Failed, Machines, bits
from record import RESULTS, save

from amphw.bench.replicas.exchange import gradient_bytes
from amphw.replicas.ako.settings import usable

LEAST, SLOWER = 0.9, 10
WITHOUT, FAST, SLOW, FIXED = "without exchange", "fast", "slow", "slow, partitions of fast"


def run(machines: Machines, args: argparse.Namespace, name: str, seed: int, fixed: int) -> dict[str, Any]:
    rate = bits(args.rate) // (1 if name in (WITHOUT, FAST) else SLOWER)
    machines.hold_to(f"{rate / 1e6}Mb", WHOLE_BURST)
    if name == WITHOUT:
        how = ["replicas.strategy=average"]
    elif name == FIXED:
        how = ["replicas.strategy=ako", f"replicas.partitions={fixed}"]
    else:
        how = ["replicas.strategy=ako", f"replicas.bandwidth={rate}b/s"]
    common = [each for each in COMMON if name != WITHOUT or not each.startswith("replicas.every")]
    epochs = 2 if name == FIXED else args.epochs  # which take ten times as long
    wanted = [*how, *common, f"seed={seed}", "target=none", f"epochs={epochs}", *args.set]
    found = machines.train(MODEL, args.ranks, wanted, SECONDS)
    times = [epoch["seconds"] for epoch in found["epochs"]]
    told = {key: found.get(key) for key in ("partitions", "bound", "staleness_max", "blocked")}
    later = [after - before for before, after in zip(times, times[1:], strict=False)]
    return {"name": name, "seed": seed, "bits_per_s": rate, "epoch_seconds": later, **told}


def judged(runs: list[dict[str, Any]], size: int, ranks: int) -> dict[str, Any]:
    """Medians by name, and the bars."""
    epoch = {
        name: statistics.median(s for r in runs if r["name"] == name for s in r["epoch_seconds"])
        for name in dict.fromkeys(r["name"] for r in runs)
    }
    owed = {}
    for name in (FAST, SLOW):
        p = statistics.median(r["partitions"] for r in runs if r["name"] == name)
        rate = next(r["bits_per_s"] for r in runs if r["name"] == name)
        owed[name] = (1 - 1 / p) * size * (ranks - 1) / usable(f"{rate}b/s")
    share = epoch[WITHOUT] / epoch[FAST]
    training = (epoch[FAST] - owed[FAST]) / (epoch[SLOW] - owed[SLOW])
    missed = [f"{training:.2f} of the throughput on fast links"] if training < LEAST else []
    blocked = {
        name: statistics.median(r["blocked"] for r in runs if r["name"] == name)
        for name in (FAST, SLOW, FIXED)
    }
    return {
        "epoch_seconds": epoch,
        "owed_seconds": owed,
        "compute_share": share,
        "slow_over_fast": epoch[FAST] / epoch[SLOW],
        "slow_over_fast_while_training": training,
        "blocked": blocked,
        "missed": missed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rate", default="88Mb", help="of a fast link")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--set", nargs="*", default=[], help="further settings of all runs")
    parser.add_argument("--json", type=Path, default=RESULTS / "ako-slower-link.json")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="amphw-links-") as folder:
        with Machines(args.ranks, Path(folder)) as machines:
            try:
                for seed in range(args.rounds):
                    for name in (WITHOUT, FAST, SLOW, *([FIXED] if seed == 0 else [])):
                        fixed = next((r["partitions"] for r in runs if r["name"] == FAST), 0)
                        runs.append(run(machines, args, name, seed, fixed))
                        print(runs[-1], flush=True)
            except Failed as error:
                sys.exit(str(error))
    found = judged(runs, gradient_bytes(args.set), args.ranks)
    print(found)
    save({"model": MODEL, "ranks": args.ranks, "epochs": args.epochs, **found, "runs": runs}, args.json)
    return int(bool(found["missed"]))


if __name__ == "__main__":
    sys.exit(main())
