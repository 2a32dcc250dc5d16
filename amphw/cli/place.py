"""`amphw place`: where a model's nodes would go on several devices, and how fast that would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.options import ConfigOption, DeviceOption, JsonOption, ModelArgument, SetOption
from amphw.cli.output import emit_json, remark, results, table
from amphw.library.estimating.proposal import INSTANCES, Proposal, propose
from amphw.page.numbers import number, percent, seconds, size

if TYPE_CHECKING:
    from amphw.estimate.network.cost_model import CostModel, Estimate

_CPU = "cpu"


def place(
    model: ModelArgument,
    device: DeviceOption,
    config: ConfigOption = None,
    settings: SetOption = None,
    instances: Annotated[
        int, typer.Option("--instances", metavar="N", help="Training instances to count messages on.", min=1)
    ] = INSTANCES,
    search: Annotated[
        bool, typer.Option("--search/--no-search", help="Whether to look for more than the heuristic's.")
    ] = True,
    limits: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="DEVICE=N", help="Give a device N nodes at most; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate where a model's nodes go on several devices, before anything is built."""
    pin_blas()
    from amphw.host.config import resolve
    from amphw.host.devices import make_device
    from amphw.models import get_model

    found = get_model(model)
    defaults = found.recommended(make_device(device).capabilities())
    cfg = resolve(found.config, defaults, config, settings or ())
    proposal = propose(
        found, cfg, device, instances, search, _limits(limits or ()), tell=remark, begins=remark
    )
    if as_json:
        emit_json(_json(found.name, proposal))
        return
    _show(found.name, device, proposal)


def _limits(texts: Any) -> dict[str, int]:
    """`a=2` -> {"a": 2}."""
    out = {}
    for text in texts:
        label, _, count = text.partition("=")
        if not count.isdigit():
            raise typer.BadParameter(f"{text}: write DEVICE=N, as in a=2", param_hint="--limit")
        out[label.strip()] = int(count)
    return out


def _json(model: str, p: Proposal) -> dict[str, Any]:
    from dataclasses import asdict

    from amphw.estimate.report import estimate_json, model_json

    return {
        "model": model,
        "instances": p.instances,
        "counted": p.counted,
        "counted_per_instance": p.size,
        "chosen": "heuristic" if p.search is None else "search",
        "set": f"device.place={p.setting}",
        "fixed": dict(p.fixed),
        "absent": dict(p.devices.absent),
        "tiles": [asdict(each) for each in p.tiles],
        "heuristic": estimate_json(p.heuristic),
        "search": None if p.search is None else estimate_json(p.search),
        "all_on_cpu": estimate_json(p.host),
        **model_json(p.model),
    }


def _show(model: str, device: str, p: Proposal) -> None:
    from amphw.estimate.network.busy import in_words

    say = results()
    m = p.model
    sent = m.traffic.messages
    say.print(
        f"{model}: {len(m.nodes)} nodes to place; {number(sent.mean)} messages an instance forward "
        f"({number(sent.least)} to {number(sent.most)}),\nas many back; {m.traffic.origin} ({p.instances})."
    )
    for label, why in p.devices.absent.items():
        say.print(f"WARNING: {label} is not there, the {_CPU} takes its place: {why}")
    say.print("\nWhat a device is busy for with an instance, by node (of the cpu, a worker):")
    say.print(_nodes(m))
    for line in _origins(m):
        say.print(line)
    for line in _refusals(p):
        say.print(line)
    say.print("\nWhere they go:")
    say.print(_placements(p))
    say.print(f"\nLoads of the {'heuristic' if p.search is None else 'search'}'s placement:")
    say.print(_loads(m, p.chosen))
    for line in p.chosen.short:
        say.print(f"WARNING: {line}")
    if p.search is not None:
        for line in p.heuristic.short:
            say.print(f"The heuristic's placement cannot be: {line}")
    say.print(
        f"\nBottleneck: {in_words(p.chosen.bottleneck, m.keys)}.\n"
        f"Where a device is not there, or dies, the {_CPU} takes its nodes."
    )
    tile = f" --set device.tile={p.tile}" if p.tile else ""
    if set(p.chosen.placement.values()) <= {_CPU}:
        say.print(f"To train so, with the same settings:\n  --device {_CPU}{tile}")
    else:
        say.print(
            f"To train so, with the same settings:\n  --device {device}{tile} --set device.place={p.setting}"
        )


def _nodes(m: CostModel) -> Any:
    numbers = ("firings", "Mflop", "parameters", *m.labels)
    rows = table("node", *numbers, right=numbers)
    for name in m.nodes:
        work = m.work[name]
        rows.add_row(
            name,
            number(m.traffic.nodes[name].firings.mean),
            number((work.forward + work.backward + work.update) / 1e6),
            size(work.parameters),
            *(seconds(m.seconds[name, x].busy) if x in m.allowed(name) else "refused" for x in m.labels),
        )
    return rows


def _origins(m: CostModel) -> list[str]:
    """How the times are known, once for all nodes of a device that are alike in it."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for (node, label), each in m.seconds.items():
        nodes.setdefault((label, each.origin, each.how), []).append(node)
    lines = []
    for (label, origin, how), of in sorted(nodes.items()):
        which = "" if len(of) == sum(at == label for _, at in m.seconds) else f" ({', '.join(of)})"
        lines.append(f"{label}{which}: {origin}: {how}")
    return lines


def _placements(p: Proposal) -> Any:
    columns = {"heuristic": p.heuristic, **({"search": p.search} if p.search else {}), "all on cpu": p.host}
    rows = table("", *columns, right=tuple(columns))
    for node in p.model.nodes:
        rows.add_row(
            node + (" (fixed)" if node in p.fixed else ""), *(e.placement[node] for e in columns.values())
        )
    rows.add_row("instances/s", *(number(e.throughput) for e in columns.values()))
    if p.size != 1:
        rows.add_row(f"{p.counted}/s", *(number(e.throughput * p.size) for e in columns.values()))
    rows.add_row("time of an instance", *(seconds(1 / e.throughput) for e in columns.values()))
    rows.add_row("beside all on cpu", *(_faster(e.throughput / p.host.throughput) for e in columns.values()))
    rows.add_row("bottleneck", *(e.bottleneck.name for e in columns.values()))
    return rows


def _faster(ratio: float) -> str:
    """A ratio of throughputs, in words."""
    shown = number(max(ratio, 1 / ratio))
    if shown == number(1.0):
        return "the same"
    return f"{shown} x {'faster' if ratio > 1 else 'slower'}"


def _loads(m: CostModel, of: Estimate) -> Any:
    numbers = ("an instance", "busy", "memory", "bytes to", "bytes from")
    rows = table("", *numbers, "link", right=numbers)
    for load in of.loads:
        if not load.seconds and load.of != "device":
            continue
        device = m.devices.get(load.name)
        more = ["", "", "", ""]
        if load.of == "device":
            more[0] = size(of.memory[load.name])
        if device is not None:
            more[1:3] = [size(of.bytes_to[load.name]), size(of.bytes_from[load.name])]
            more[3] = "" if device.link is None else str(device.link)
        rows.add_row(load.name, seconds(load.seconds), percent(load.share), *more)
    return rows


def _refusals(p: Proposal) -> list[str]:
    """One line for all nodes that a device refuses for one reason, and for tiles that do or do not help."""
    refused: dict[tuple[str, str], list[str]] = {}
    for (node, label), why in p.model.refused.items():
        refused.setdefault((label, why), []).append(node)
    lines = [f"{label} refuses {', '.join(nodes)}: {why}" for (label, why), nodes in refused.items()]
    no_help: dict[str, list[str]] = {}
    for each in p.tiles:
        if each.tiles:
            lines.append(
                f"Every device but the {_CPU} refuses {each.node}; in {each.tiles} tiles {each.label} takes "
                f"it: --set device.tile={each.node}:{each.tiles}"
            )
        else:
            no_help.setdefault(each.why.replace(f"{each.node}: ", ""), []).append(each.node)
    for why, nodes in no_help.items():
        lines.append(f"Every device but the {_CPU} refuses {', '.join(nodes)}; tiles do not help: {why}")
    return lines
