"""Ranks over links of a given rate: what the strategies move, and how fast they train.

    python benchmarks/replica_links.py                             # as root; three quarters of an hour
    python benchmarks/replica_links.py --rates 100Mb --rounds 3 --json links.json

Every rank is in a network namespace of its own (`namespaces.py`), and `amphw train --hosts` starts them, as
on machines. In each round every strategy trains once with each number of ranks, and so does one rank alone;
the order changes from round to round. Throughput is that of the windows, from the seconds that ranks spend on
computing, waiting and transfer, but for the first two epochs, in which ranks build their instances and touch
their memory for the first time. The end of an epoch, at which servers hand all that they own to the first
rank, has a column of its own.

In each round the same is played in simulated time, too (`links_played.py`), from one rank that is measured
alone, and what a ping says of the links. With `--measured` the runs of a record are taken as they are, and
what is played is played anew beside them.

Bars, for each rate and number of ranks: `hybrid` moves no more bytes than the others, and with 4 ranks or
more fewer than `allreduce`; a rank that waits keeps less than 5 % of a core busy; `hybrid` trains no
slower than `servers`, which it does if the whole 95 % interval of the ratio (a bootstrap over rounds) is
below 1; and what is played is within 10 % of what is measured (medians over rounds). Figures mean something
on a machine that does nothing else. All ranks share its cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from namespaces import Failed, Machines, bits
from record import RESULTS, save

from amphw.replicas.transport import Transport

STRATEGIES = ("hybrid", "allreduce", "servers")
SECONDS = 300.0
"""After which a run is given up."""
PINGS = {64: 200, 1_000_000: 10}
"""Bytes of a message, and how often it goes there and back."""
STREAMS = {64: 400, 16_384: 300, 49_152: 150, 131_072: 60, 262_144: 60}
"""Bytes of messages that go both ways at once, and how many: what the links carry, and what that takes."""
CARRIED, TAKEN = "bytes_per_s", "processor_s_"
"""Of the largest of them, each way, a second; and before their bytes the seconds of a rank's processor that
one of them takes, there and back."""
WAITS, WAITED, LOOKED = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3), "wait_s_", "wait_processor_s_"
"""Seconds after which a message comes for which a rank waits, about; and before their number how long it
waited, and for how long that kept its processor busy."""
WARM_UP = 2
"""Epochs of a run that do not count."""
NEAR = 0.1
"""Of what is measured, how far what is played may be from it."""
WAIT = 5.0
"""Seconds for which a rank waits, to see how busy it keeps a core."""
WAITING, MOST_WAITING = "waiting_cores", 0.05
SAME = 1.001
"""Shares are equal to within a row: bytes up to this factor are no difference."""
FEWEST = 3
"""Rounds without which nothing is said about speed."""
SETTINGS = {
    "language-model": ["sentences={count}"],
    "translation": ["pairs={count}"],
    "list-reduction": ["train_instances={count}"],
}


def settings_of(args: argparse.Namespace, count: int) -> list[str]:
    """Of so many instances."""
    return [
        *(text.format(count=count) for text in SETTINGS[args.model]),
        *("mode=pipeline", f"pipeline_depth={args.window}", f"max_active_keys={max(16, args.window)}"),
        *(f"epochs={args.epochs}", "target=none", "valid_instances=1", "checkpoint_every=0"),
        *("trace=false", "workers=1"),
        *args.set,
    ]


def trained(machines: Machines, args: argparse.Namespace, ranks: int, strategy: str) -> dict[str, Any]:
    """As `Machines.train` has it."""
    settings = settings_of(args, args.windows * args.window * ranks)
    return machines.train(args.model, ranks, [f"replicas.strategy={strategy}", *settings], SECONDS)


def figures(summary: dict[str, Any], ranks: int, strategy: str, number: int) -> dict[str, Any]:
    """What is kept of a run. seconds, bytes: of a window and a rank; wire: of the run, all ranks."""
    found = {"round": number, "ranks": ranks, "strategy": strategy}
    last, *later = summary["epochs"][WARM_UP - 1 :]
    if ranks == 1:
        count = later[-1]["instances"] - last["instances"]
        return {**found, "throughput": count / (later[-1]["seconds"] - last["seconds"])}
    steps = summary["exchanges"]
    rows = [row for epoch in later for row in epoch["ranks"]]
    of_all = steps * len(later) / len(summary["epochs"]) * ranks
    gather = sum(row["gather"] for row in rows) / ranks
    seconds = {what: sum(row[what] for row in rows) / of_all for what in ("compute", "wait", "transfer")}
    seconds["transfer"] -= gather * ranks / of_all
    moved = {way: sum(each[way] for each in summary["bytes"].values()) for way in ("sent", "received")}
    if summary["wire"] < moved["sent"] * steps * ranks:
        raise Failed(
            f"{ranks} ranks, {strategy}: {summary['wire']} bytes went over the links, which is too few"
        )
    return {
        **found,
        "windows": steps,
        "throughput": sum(row["instances"] for row in rows) / of_all * ranks / sum(seconds.values()),
        "seconds": seconds,
        "gather": gather,
        **moved,
        "by_parameter": summary["bytes"],
        "alpha": summary["alpha"],
        "wire": summary["wire"],
    }


def ping(machines: Machines) -> dict[str, float]:
    """Seconds of a message one way, by its bytes, between two ranks as amphw sends them; `CARRIED` and
    those of `TAKEN`, `WAITED` and `LOOKED`; and `waiting_cores`, what the first keeps busy while it waits
    long for the second."""
    from amphw.replicas.hosts import ssh_environment
    from amphw.replicas.mpi import mpiexec

    launcher = mpiexec()
    if launcher is None:
        raise Failed("there is no mpiexec; install it with: pip install 'amphw[mpi]'")
    command = [launcher, "-launcher", "ssh", "-hosts", ",".join(machines.addresses[:2]), "-n", "2"]
    command += [sys.executable, str(Path(__file__).resolve()), "--be-pinged"]
    done = machines.run(command, SECONDS, env=ssh_environment(machines.environment()))
    if done.returncode:
        raise Failed(f"the ping: exit code {done.returncode}: {done.stderr[-800:]}")
    return {
        name: float(seconds) for name, seconds in json.loads(done.stdout.strip().splitlines()[-1]).items()
    }


def be_pinged() -> None:
    """One of two ranks; the first prints how long it took."""
    from amphw.replicas.mpi import mpi_transport

    t, found = mpi_transport(), {}
    other = 1 - t.rank
    for size, times in PINGS.items():
        message, took = np.zeros(size, np.uint8), []
        for _ in range(times):
            began = time.perf_counter()
            for sends in (t.rank == 0, t.rank == 1):
                if sends:
                    t.send(other, message)
                else:
                    t.receive(other, message)
            took.append((time.perf_counter() - began) / 2)
        found[str(size)] = statistics.median(took)
    for size, times in STREAMS.items():
        message, began, spent = np.zeros(size, np.uint8), time.perf_counter(), time.process_time()
        for _ in range(times):
            t.send(other, message)
            t.receive(other, message)
        t.flush()
        found[CARRIED] = size * times / (time.perf_counter() - began)
        found[f"{TAKEN}{size}"] = (time.process_time() - spent) / times
    for number, seconds in enumerate(WAITS):
        waits = [waited(t, seconds) for _ in range(min(100, int(1.0 / seconds)))]
        found[f"{WAITED}{number}"], found[f"{LOOKED}{number}"] = np.mean(waits, axis=0).tolist()
    lasted, busy = waited(t, WAIT)
    found[WAITING] = busy / lasted
    if t.rank == 0:
        print(json.dumps(found), flush=True)
    t.close()


def waited(t: Transport, seconds: float) -> tuple[float, float]:
    """The first rank waits for a message which the second sends after so long -> how long it waited, and how
    long its processor was busy with that."""
    told = np.zeros(1)
    if t.rank == 1:
        t.receive(0, told)
        time.sleep(seconds)
        t.send(0, told)
        t.flush()
        return seconds, 0.0
    t.send(1, told)
    t.flush()
    began, spent = time.perf_counter(), time.process_time()
    t.receive(1, told)
    return time.perf_counter() - began, time.process_time() - spent


def played(
    machines: Machines, args: argparse.Namespace, link: dict[str, float], burst: int
) -> dict[str, Any]:
    """What `links_played.py` says of the same runs. link: as `ping` has it."""
    command = [sys.executable, str(Path(__file__).with_name("links_played.py")), args.model]
    command += ["--ranks", *map(str, args.ranks), "--processors", *map(str, machines.processors)]
    command += ["--strategies", *STRATEGIES, "--nic", str(link[CARRIED]), "--burst", str(burst)]
    command += ["--latency", str(link["64"])]
    command += ["--carrying", *(f"{size}={link[f'{TAKEN}{size}']}" for size in STREAMS)]
    waits = [f"{link[f'{WAITED}{n}']}={link[f'{LOOKED}{n}']}" for n in range(len(WAITS))]
    command += ["--looking", *waits, f"{WAIT}={WAIT * link[WAITING]}"]
    command += ["--set", *settings_of(args, args.windows * args.window * max(args.ranks))]
    done = machines.run(command, SECONDS)
    if done.returncode:
        raise Failed(f"links_played.py: exit code {done.returncode}: {done.stderr[-800:]}")
    return json.loads(done.stdout)


def interval(ratios: Sequence[float], draws: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """95 % of the means of as many ratios drawn again, by their logarithms, as ratios multiply."""
    logs = np.log(np.asarray(ratios, float))
    picked = np.random.default_rng(seed).integers(0, len(logs), (draws, len(logs)))
    low, high = np.quantile(logs[picked].mean(axis=1), [0.025, 0.975])
    return float(np.exp(low)), float(np.exp(high))


def compared(
    runs: Sequence[dict[str, Any]], simulated: Sequence[dict[str, Any]], ranks: int
) -> dict[str, Any]:
    """Medians over rounds by strategy, the ratio hybrid/servers, and which bars are missed. simulated: what
    `played` found, by round."""
    rows = {name: [r for r in runs if (r["ranks"], r["strategy"]) == (ranks, name)] for name in STRATEGIES}
    table = {
        name: {
            key: statistics.median(r[key] for r in found)
            for key in ("throughput", "sent", "received", "gather")
        }
        | {
            key: statistics.median(r["seconds"][key] for r in found)
            for key in ("compute", "wait", "transfer")
        }
        | {"played": statistics.median(each[name][str(ranks)]["throughput"] for each in simulated)}
        for name, found in rows.items()
    }
    by_round = {name: {r["round"]: r["throughput"] for r in found} for name, found in rows.items()}
    common = sorted(by_round["hybrid"].keys() & by_round["servers"].keys())
    ratios = [by_round["hybrid"][k] / by_round["servers"][k] for k in common]
    low, high = interval(ratios)
    missed = []
    moved = {name: each["sent"] + each["received"] for name, each in table.items()}
    for name in ("allreduce", "servers"):
        if moved["hybrid"] > SAME * moved[name]:
            missed.append(f"{ranks} ranks: hybrid moves more bytes than {name}")
    if ranks >= 4 and moved["hybrid"] * SAME >= moved["allreduce"]:
        missed.append(f"{ranks} ranks: hybrid moves no fewer bytes than allreduce")
    for name, each in table.items():
        each["error"] = each["played"] / each["throughput"] - 1.0
        if len(simulated) >= FEWEST and abs(each["error"]) > NEAR:
            missed.append(
                f"{ranks} ranks, {name}: what is played is {each['error']:+.3f} from what is measured"
            )
    if len(ratios) >= FEWEST and high < 1.0:
        missed.append(f"{ranks} ranks: hybrid trains slower than servers, {low:.3f} to {high:.3f} of it")
    return {
        "ranks": ranks,
        "strategies": table,
        "hybrid_over_servers": {"median": statistics.median(ratios), "interval_95": [low, high]},
        "missed": missed,
    }


def measured(machines: Machines, args: argparse.Namespace, rate: str) -> dict[str, Any]:
    burst, runs, simulated = machines.hold_to(rate), list[dict[str, Any]](), list[dict[str, Any]]()
    pings, known = [ping(machines)], known_runs(args.measured, rate)
    jobs = [(ranks, name) for ranks in args.ranks for name in STRATEGIES]
    for number in range(args.rounds):
        turn = number % len(jobs)
        now = [run for run in known if run["round"] == number]
        runs += now
        for ranks, strategy in [] if now else [(1, "alone"), *jobs[turn:], *jobs[:turn]]:
            print(
                f"\r{rate}, round {number + 1}/{args.rounds}: {ranks} {strategy}",
                end=" " * 9,
                file=sys.stderr,
                flush=True,
            )
            runs.append(figures(trained(machines, args, ranks, strategy), ranks, strategy, number))
        simulated.append(played(machines, args, pings[0], burst))
    print(file=sys.stderr)
    pings.append(ping(machines))
    alone = [run["throughput"] for run in runs if run["ranks"] == 1]
    return {
        "rate": rate,
        "bits_per_s": bits(rate),
        "burst": burst,
        "ping": {name: statistics.median(each[name] for each in pings) for name in pings[0]},
        WAITING: max(each[WAITING] for each in pings),
        "one_rank": {"throughput": statistics.median(alone), "rounds": alone},
        "compared": [compared(runs, simulated, ranks) for ranks in args.ranks],
        "runs": runs,
        "simulated": simulated,
    }


def known_runs(path: Path | None, rate: str) -> list[dict[str, Any]]:
    """What an earlier record has of links of this rate."""
    links = json.loads(path.read_text(encoding="utf-8"))["links"] if path else []
    return [run for link in links if link["rate"] == rate for run in link["runs"]]


def missed_by(link: dict[str, Any]) -> list[str]:
    """Bars that are missed over links of one rate."""
    found = [text for each in link["compared"] for text in each["missed"]]
    if link[WAITING] > MOST_WAITING:
        found.append(f"a rank that waits keeps {link[WAITING]:.3f} of a core busy")
    return found


def show(link: dict[str, Any], model: str) -> None:
    pings = ", ".join(f"{size:,} B in {1e3 * link['ping'][str(size)]:.3g} ms" for size in PINGS)
    alone = link["one_rank"]["throughput"]
    print(f"{model}, links of {link['rate']}/s ({pings}); one rank alone: {alone:.1f} instances/s")
    print(f"a rank that waits keeps {link[WAITING]:.3f} of a core busy")
    print(
        "ranks strategy   instances/s   played  kB sent  received  ms: compute    wait  transfer  s: gather"
    )
    for each in link["compared"]:
        for name, row in each["strategies"].items():
            print(
                f"{each['ranks']:5} {name:10} {row['throughput']:11.1f} {row['error']:+7.1%}"
                f" {row['sent'] / 1e3:8.1f} {row['received'] / 1e3:9.1f} {1e3 * row['compute']:12.2f}"
                f" {1e3 * row['wait']:7.2f} {1e3 * row['transfer']:9.2f} {row['gather']:10.2f}"
            )
        ratio = each["hybrid_over_servers"]
        low, high = ratio["interval_95"]
        print(
            f"{each['ranks']:5} hybrid/servers {ratio['median']:.3f}, 95 % interval {low:.3f} to {high:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(SETTINGS), default="language-model")
    parser.add_argument("--rates", nargs="+", default=["100Mb", "1Gb"], help="of links, a second each way")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, default=80, help="of each rank in an epoch")
    parser.add_argument("--epochs", type=int, default=6, help="of a run")
    parser.add_argument("--window", type=int, default=8, help="instances of each rank between two updates")
    parser.add_argument("--set", nargs="*", default=[], help="further settings of all runs")
    parser.add_argument(
        "--measured", type=Path, metavar="FILE", help="a record whose runs are taken as they are"
    )
    parser.add_argument("--json", type=Path, help="where the record goes; default: benchmarks/results")
    parser.add_argument("--be-pinged", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.be_pinged:
        be_pinged()
        return
    try:
        rates = [(rate, bits(rate)) for rate in args.rates]
    except ValueError as error:
        parser.error(str(error))
    links = []
    with tempfile.TemporaryDirectory(prefix="amphw-links-") as folder:
        with Machines(max(args.ranks), Path(folder)) as machines:
            for rate, _ in rates:
                try:
                    links.append(measured(machines, args, rate))
                except Failed as error:
                    sys.exit(f"\n{rate}: {error}")
                show(links[-1], args.model)
    missed = [f"{link['rate']}, {text}" for link in links for text in missed_by(link)]
    record = {
        **{name: getattr(args, name) for name in ("model", "rounds", "windows", "window", "epochs", "set")},
        "links": links,
        "missed": missed,
    }
    if args.measured:
        before = json.loads(args.measured.read_text(encoding="utf-8"))
        record["measured"] = {name: before[name] for name in ("date", "command", "commit")}
    save(record, args.json or RESULTS / f"replica-links-{args.model}.json")
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
