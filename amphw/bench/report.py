"""Records for people: tables and, at the end, the ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

Record = Mapping[str, Any]


def comparison_report(record: Record) -> RenderableType:
    """All that was measured of a comparison."""
    return Group(_sides(record), "", *_remarks(record), *_ratios(record))


def _sides(record: Record) -> Table:
    counted = record["counted"]
    rows = _table("", "form", "update every", f"{counted}/s", "spread", f"inference, {counted}/s", numbers=3)
    infer = record["inference"]
    for each in record["comparisons"]:
        first = each["every"] == record["min_update_interval"]
        rows.add_row(
            f"amphw, {record['our_side']['workers']} workers",
            f"{record['max_active_keys']} keys",
            f"{each['every']}",
            *_figure(each["ours"]),
            _figure(infer["ours"])[0] if infer and first else "",
        )
    for peer in record["peers"]:
        rows.add_row(
            _who(peer),
            peer["form"],
            str(peer["every"]),
            *_figure(peer["training"]),
            _figure(peer["inference"])[0],
        )
    return rows


def _remarks(record: Record) -> Iterator[str]:
    for name, why in record["absent"].items():
        yield f"{name} is absent: {why}"
    for name, why in record["lost"].items():
        yield f"lost: {name}: {why}"
    for each in record["others"]:
        if each["error"] is None:
            yield (
                f"{each['peer']}, {each['form']} ({each['kind']}, does not count): "
                f"{_number(each['instances_per_s'])} {record['counted']}/s"
            )
    flops = sum(record["flops_per_instance"].values()) / 1e6
    yield f"{flops:.2f} MFLOP for one of the {record['counted']}, forward and backward"
    yield f"sgemm peak of all processors: {_number(record['sgemm_gflops'])} GFLOP/s"
    yield f"load by other processes: {_percent(record['foreign_load'])}"
    yield ""


def _ratios(record: Record) -> Iterator[str]:
    for each in record["comparisons"]:
        when = f"at an update every {each['every']} {record['counted']}"
        yield f"{when}: {_percent(each['sgemm_share'])} of the sgemm peak"
        for key, best, what in (
            ("ratio_best_single_process", "best_single_process", "best single process"),
            ("ratio_two_processes", "best_several_processes", "processes that never synchronise"),
        ):
            if each[key] is not None:
                yield f"{when}: {each[key]:.2f} times the {what} ({_who(each[best])}, {each[best]['form']})"
    if record["valid"]:
        yield "these figures are valid"
    else:
        yield f"these figures are not valid: {'; '.join(record['invalid_because'])}"


def accuracy_report(record: Record) -> RenderableType:
    """Time to an accuracy."""
    rows = _table("", "form", "epochs", "seconds", f"best {record['metric']}", numbers=3)
    for each in (record["ours_run"], *record["peer_runs"]):
        reached, history = each["reached"], each["history"]
        values = [h["metric"] for h in history]
        best = (max if record["higher_is_better"] else min)(values, default=None)
        rows.add_row(
            each["label"],
            each["form"],
            str(reached["epoch"]) if reached else f"not in {len(history)}",
            f"{reached['seconds']:.1f}" if reached else "-",
            "n/a" if best is None else f"{best:.4g}",
        )
    lines = [
        f"validation {record['metric']} {record['target']}, an update every {record['min_update_interval']}"
    ]
    if record["ratio_time"] is not None:
        lines.append(f"{record['ratio_time']:.2f} times as fast as the fastest peer")
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def agreement_report(record: Record) -> RenderableType:
    """How far each form is from the reference."""
    rows = _table("", "form", "loss off by", "gradients off by", "most at", numbers=3)
    for each in record["forms"]:
        off = [f"{each[key]:.1e}" if key in each else "failed" for key in ("loss_off", "gradient_off")]
        rows.add_row(each["peer"], each["form"], *off, each.get("worst", ""))
    wrong = [f"{each['peer']}, {each['form']}" for each in record["forms"] if not each["agrees"]]
    if not record["forms"]:
        return "there was nothing to compare with"
    return Group(
        rows, "", f"these do not compute what we compute: {'; '.join(wrong)}" if wrong else "all agree"
    )


def scaling_report(record: Record) -> RenderableType:
    """Throughput against the number of instances pumped."""
    rows = _table("instances pumped", f"{record['counted']}/s since the mark before", "memory, MB", numbers=3)
    for each in record["marks"]:
        rows.add_row(f"{each['pumped']:,}", _number(each["instances_per_s"]), f"{each['memory']:.0f}")
    allowed = _percent(record["allowed"])
    lines = [f"least and greatest rate differ by {_percent(record['spread'])}, allowed are {allowed}"]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def workers_report(record: Record) -> RenderableType:
    """Throughput by the number of workers, and what limits it."""
    rows = _table(
        "workers",
        "keys",
        f"{record['counted']}/s",
        "speed-up",
        "",
        "simulation",
        "off by",
        "CPU time off by",
        "busy",
        "rows/frame",
        "limit",
        numbers=0,
    )
    for each in record["workers"]:
        simulation = each["simulation"]
        rows.add_row(
            f"{each['workers']}",
            f"{each['max_active_keys']}",
            _number(each["instances_per_s"]),
            f"{each['speed_up']:.2f}",
            "simulated" if each["simulated"] else "measured",
            _number(simulation["instances_per_s"]),
            *("" if simulation[e] is None else f"{simulation[e]:+.1%}" for e in ("error", "cpu_error")),
            _percent(simulation["utilisation"]),
            f"{simulation['rows_per_frame']:.0f}",
            simulation["limit"],
        )
    machine = [(n, each["sgemm"]) for n, each in record["scaling"].items() if each["sgemm"] is not None]
    lines = [
        "large products by themselves: " + ", ".join(f"{n} threads {up:.2f} times" for n, up in machine),
        f"this machine has {record['processors']} processors; what is said of more workers is simulated, "
        "from the measured costs of one worker's frames",
        f"those costs account for {_percent(record['explained'])} of that worker's time",
        f"load by other processes: {_percent(record['foreign_load'])}",
    ]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def overhead_report(record: Record) -> RenderableType:
    """What a message costs beyond arithmetic."""
    rows = _table("messages in a frame", "us a message", "spread", numbers=3)
    for each in record["caps"]:
        rows.add_row(str(each["frame_cap"]), *_figure(each["us_per_message"]))
    lines = [
        f"{record['us_per_message']:.2f} us a message at a frame each, of which the frame takes "
        f"{record['us_per_frame']:.2f}",
        f"load by other processes: {_percent(record['foreign_load'])}",
    ]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def replicas_report(record: Record) -> RenderableType:
    """Several ranks beside one process."""
    rows = _table("", "window", "one process, 2 workers", "spread", "2 ranks", "spread", "ratio", numbers=6)
    for model, each in record["throughput"].items():
        sides = (*_figure(each["one"]), *_figure(each["ranks"]))
        rows.add_row(model, str(each["window"]), *sides, f"{each['ratio']['median']:.3f}")
    same = ", ".join(f"{value:.1e} ({strategy})" for strategy, value in record["equivalence"].items())
    precise = max(record["equivalence_float64"].values())
    wrong = [each["parameter"] for each in record["bytes"] if not each["holds"]]
    waits = record["waiting_cores"]
    lines = [
        f"ranks are {'processes, with MPI' if record['carrier'] == 'mpi' else 'threads'}",
        f"after 50 updates parameters differ from those of one process by {same} of the way of training; "
        f"in double precision by {precise:.1e}",
        f"bytes are {'' if record['bytes_exact'] else 'not '}those of the formulas{': ' if wrong else ''}"
        f"{', '.join(wrong)}",
        *([f"a rank that waits uses {waits:.3f} of a core"] if waits is not None else []),
        f"load by other processes: {_percent(record['foreign_load'])}",
    ]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def exchange_report(record: Record) -> RenderableType:
    """Partial gradient exchange beside none: what it costs, and how far the cost model holds."""
    rows = _table("p", "accuracy", "spread", numbers=2)
    for p, values in record["sweep"].items():
        rows.add_row(p, f"{statistics.median(values):.4f}", f"{max(values) - min(values):.4f}")
    best = record["p_best"]
    lines = [
        f"{record['model']}, ranks are {'processes, with MPI' if record['carrier'] == 'mpi' else 'threads'}",
        f"with exchange two ranks train {record['compute_share']:.3f} of what they do without",
        f"{record['bandwidth'] / 1e6:,.0f} MB/s to another rank ({record['link']}): p = "
        f"{record['p_predicted']} is predicted, the best is "
        f"{best if best is not None else 'not told: ' + record['because']['p_best']}",
        f"bytes sent a second are {record['bandwidth_error']:+.1%} off the cost model's",
        f"load by other processes: {_percent(record['foreign_load'])}",
    ]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def opencl_report(record: Record) -> RenderableType:
    """Generated kernels beside OpenBLAS: a line a shape."""
    rows = _table("rows", "in", "out", "ours, us", "OpenBLAS, us", "ratio", "tiles", numbers=7)
    for each in record["rows"]:
        shape = (str(each[name]) for name in ("k", "din", "dout"))
        times = (f"{each[name]:.1f}" for name in ("ours_us", "openblas_us"))
        rows.add_row(*shape, *times, f"{each['ratio']:.2f}", each["form"])
    lines = [
        f"{record['geomean_vs_openblas']:.2f} times as fast as OpenBLAS (geometric mean), at least "
        f"{record['least_vs_openblas']:.2f}; forward and backward of a layer, one thread each",
        f"{record['device']}, {record['driver']}; OpenBLAS {', '.join(record['openblas'])}",
    ]
    if not record["valid"]:
        lines.append(f"these figures are not valid: {'; '.join(record['invalid_because'])}")
    return Group(rows, "", *lines)


def mutation_report(record: Record) -> RenderableType:
    """Faults in the gateware: a line a file, and a line a survivor."""
    fates = ("killed", "survived", "equivalent")
    modules = _table("file", *fates, numbers=3)
    for name, counts in record["modules"].items():
        modules.add_row(name, *(str(counts[fate]) for fate in fates))
    survivors = _table("survivor", "in", "signal", "written in", numbers=0)
    for each in record["survivors"]:
        where = each["source"][0] if each["source"] else ""
        survivors.add_row(each["fault"], f"{each['subject']}: {each['module']}", each["signal"], where)
    lines = [
        f"{record['sampled']} of {record['asked']} faults tried: {record['killed']} killed, "
        f"{record['survived']} survived, {record['equivalent']} proved to be equivalent",
        f"{_percent(record['score'])} killed of those that are not; the bar of {record['bar']:.0%} is "
        + ("met" if record["meets_bar"] else "not met"),
    ]
    if not record["complete"]:
        lines.append("stopped early: the same command goes on from here")
    return Group(modules, "", survivors, "", *lines)


def _table(*columns: str, numbers: int) -> Table:
    """An unboxed table whose last columns hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        made.add_column(name, justify="right" if place >= len(columns) - numbers else "left")
    return made


def _who(peer: Record) -> str:
    if peer["processes"] > 1:
        return f"{peer['name']}, {peer['processes']} processes"
    return f"{peer['name']}, {peer['threads']} thread{'s' if peer['threads'] > 1 else ''}"


def _figure(figure: Record | None) -> tuple[str, str]:
    if figure is None:
        return "", ""
    return _number(figure["median"]), f"{_number(figure['low'])} .. {_number(figure['high'])}"


def _number(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"
