"""What a run on several devices costs when the devices cost nothing: microseconds a message.

    python benchmarks/null_bars.py
    python benchmarks/null_bars.py --parts 2 --keys 256 --json null.json

List reduction, one sequence an instance, all nodes that compute on `null` parts, which answer every frame
with zeros at once; the CPU joins operands, routes messages and computes the losses. Messages are those nodes
receive, forward and backward, as the engine counts them. Shown: messages, their mean number in a frame,
and the wall clock's microseconds for each, median and extremes of the rounds, and those of processors, which
other programs on the machine change less. The bar: 5 at most by the wall clock, in frames of 16 messages or
more.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path

from record import save

from amphw.host.config import resolve
from amphw.host.devices import make_device
from amphw.host.pumping import PumpHooks
from amphw.host.session import Session
from amphw.ir.device import Mode
from amphw.models import get_model

BAR, FRAME = 5.0, 16
NODES = ("h0", "cell", "relu", "head")


def measured(parts: int, keys: int, instances: int, min_rows: int, rounds: int) -> list[dict[str, float]]:
    labels = [f"n{k}" for k in range(parts)]
    places = ",".join(f"{n}={label}" for n, label in zip(NODES, itertools.cycle(labels), strict=False))
    settings = (
        *(
            f"device.place={places}",
            "device.workers=1",
            f"device.min_rows={min_rows}",
            f"device.frame_cap={keys}",
        ),
        *("model.batch=1", "model.hidden=16", f"train.max_active_keys={keys}", f"device.frame_rows={keys}"),
    )
    model = get_model("list-reduction")
    cfg = resolve(model.config, model.defaults, None, settings)
    device = make_device(",".join(["cpu", *(f"{label}=null" for label in labels)]))
    model.prepare(cfg.model, 0)
    session = Session(model, cfg, device)
    held = model.training(cfg.model, 0, 1, instances)
    given = [held[k] for k in range(len(held))]  # made beforehand: what is measured is the run
    for number, instance in enumerate(given):
        instance.number = number
    out = []
    try:
        for _ in range(rounds + 1):
            device.statistics()
            began, used = time.perf_counter(), time.process_time()
            session.train_pump.run(given, Mode.TRAIN, PumpHooks(lambda instance, report: None))
            device.drain()
            seconds, used = time.perf_counter() - began, time.process_time() - used
            found = device.statistics()
            if found.forward != found.backward:
                sys.exit(f"{found.forward} messages forward, {found.backward} backward")
            messages = found.forward + found.backward
            out.append(
                {
                    "messages": messages,
                    "frame": messages / found.frames,
                    "us_per_message": 1e6 * seconds / messages,
                    "cpu_us_per_message": 1e6 * used / messages,
                }
            )
    finally:
        device.close()
    return out[1:]  # the first fills caches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--keys", type=int, default=64, help="instances in flight, and firings in a frame")
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--min-rows", type=int, default=FRAME, help="of a frame while there is other work")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = measured(args.parts, args.keys, args.instances, args.min_rows, args.rounds)
    times = [row["us_per_message"] for row in rows]
    frame, median = (statistics.median(row[k] for row in rows) for k in ("frame", "us_per_message"))
    met = median <= BAR and frame >= FRAME
    print(
        f"{args.parts} null parts beside the CPU, {args.keys} keys: {rows[0]['messages']:,.0f} messages, "
        f"{frame:.1f} in a frame, {median:.2f} us each ({min(times):.2f} .. {max(times):.2f}), "
        f"{statistics.median(row['cpu_us_per_message'] for row in rows):.2f} us of processors; "
        f"bar: {BAR:.0f} in frames of {FRAME} or more, {'met' if met else 'NOT met'}"
    )
    if args.json is not None:
        save({"rounds": rows, "bar": BAR, "met": met}, args.json)
    sys.exit(not met)


if __name__ == "__main__":
    main()
