"""`amphw estimate`: how fast a model would train on a network of devices, and what would cross its links."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.estimate_network import Options, given, network_of, timed_like
from amphw.cli.estimate_tables import show
from amphw.cli.options import ConfigOption, JsonOption, ModelArgument, SetOption
from amphw.cli.output import emit_json, remarks
from amphw.cli.placing import INSTANCES

if TYPE_CHECKING:
    from amphw.estimate.search.budget import Budget

NETWORK, EVENTS, SLEEP = METHODS = ("network", "events", "sleep")
SECONDS = 2.0


def estimate(
    model: ModelArgument,
    flops: Annotated[
        str | None, typer.Option("--flops", metavar="RATE", help="Of a device, such as 1TFLOPS.")
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            "--lanes", metavar="N", help="Of a device that is a circuit, instead of --flops.", min=2
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock", metavar="RATE", help="Of circuits, such as 90MHz; else as placed and routed."
        ),
    ] = None,
    formats: Annotated[
        str | None,
        typer.Option("--formats", metavar="FORMATS", help="Of circuits, as for `amphw rtl` (q4.12)."),
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option("--network", metavar="FILE", help="Devices and links one by one, as TOML lists them."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="DEVICE", help="As fast as one that is here, which is timed; else cpu."
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option("--devices", metavar="N", help="Without it, one a node with parameters.", min=1),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="RATE", help="From a device to another, such as 10Gb/s; else no limit."
        ),
    ] = None,
    latency: Annotated[
        str | None, typer.Option("--latency", metavar="TIME", help="Of a message, such as 1us; else none.")
    ] = None,
    credits: Annotated[
        int | None,
        typer.Option(
            "--credits", metavar="N", help="Forward messages under way on a link; else any number.", min=1
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Of a device, such as 8GB; else no limit.")
    ] = None,
    utilisation: Annotated[
        float | None,
        typer.Option("--utilisation", metavar="SHARE", help="Of a device's rate that is put to use (1)."),
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option("--keys", metavar="K", help="Instances in flight; else max_active_keys.", min=1),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="R", help="Of each node with parameters (1).", min=1),
    ] = None,
    instances: Annotated[
        int, typer.Option("--instances", metavar="N", help="Training instances to count on.", min=1)
    ] = INSTANCES,
    case: Annotated[
        str | None,
        typer.Option("--case", metavar="NAME", help="A paper's own calculation, such as `paper` for ggnn."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="NAME",
            help="network: calculate; events: play it through in simulated time, too; sleep: run, with "
            "layers that wait as long as the devices would take.",
        ),
    ] = NETWORK,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="RATE", help="What it would take: instances a second, such as 20k/s."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="LIMITS",
            help="The most of it: devices=8,link=10Gb/s,memory=8GB,dsps=56, or some of them.",
        ),
    ] = None,
    grow: Annotated[
        bool, typer.Option("--grow", help="How throughput grows with the devices, up to 1,000.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option("--epochs", metavar="E", help="For sleep: until the target (1).", min=1)
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="For sleep: of each measurement (2).", min=0.01)
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a report, played through and compared."),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="With what doubling one thing buys, and with other placements."),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Print the long tables, too: all devices, links, nodes and edges.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate throughput, traffic and memory of a model on a network of devices."""
    pin_blas()
    from amphw.cli.estimating import by_sleeping, growing, on_network, paper_case, proposed
    from amphw.estimate.outcome import outcome_json
    from amphw.estimate.page.report import estimate_page
    from amphw.estimate.papers import case_of
    from amphw.host.config import resolve
    from amphw.host.run_folder import write_atomic
    from amphw.models import get_model

    of_sleep: dict[str, Any] = {"--epochs": epochs, "--seconds": seconds}
    searches: dict[str, Any] = {"--target": target, "--budget": budget, "--grow": grow or None}
    of_network = {
        "--link": link,
        "--latency": latency,
        "--credits": credits,
        "--keys": keys,
        "--replicas": replicas,
    }
    of_circuits = {"--lanes": lanes, "--network": listed, "--like": like}
    of_page = {"--html": html, "--compare": compare or None}
    refused = {
        NETWORK: of_sleep,
        EVENTS: {**of_sleep, "--case": case},
        SLEEP: {**of_network, **of_circuits, **of_page, **searches, "--case": case},
    }
    _check_method(method, refused)
    _check_searches(searches, {"--case": case, **of_page, "--network": listed}, {"--devices": devices})
    for option, value in {**of_page, **of_circuits}.items() if case is not None else ():
        if value is not None:
            raise typer.BadParameter(f"{option} is not for --case", param_hint=option)
    options = Options(
        *(flops, lanes, clock, formats, listed, like, devices),
        *(link, latency, credits, memory, utilisation),
    ).checked(known=case is not None, timed=method != SLEEP)
    found: Any = get_model(model)
    assumed = case_of(found.name, case) if case is not None else None
    goal = given("--target", target, "instances a second")
    most = _budget(budget, {"devices": devices, "link": link, "memory": memory})
    given_too = {"keys": keys, "replicas": replicas}
    said = options.said | {
        name: f"--{name} {value}" for name, value in given_too.items() if value is not None
    }
    wanted = [*(assumed.settings if assumed else ()), *(settings or ())]
    cfg = resolve(found.config, found.defaults, config, wanted)
    network = network_of(
        options, assumed, cfg.device.policy, lambda name: timed_like(found, cfg, name, instances)
    )
    if method == SLEEP:
        outcome = by_sleeping(found, cfg, network, instances, seconds or SECONDS, epochs, said)
    elif goal is not None or budget is not None:
        outcome = proposed(found, cfg, network, most, goal, keys, replicas, instances, said)
    elif grow:
        outcome = growing(found, cfg, network, keys, replicas, instances, said)
    elif assumed:
        outcome = paper_case(found, cfg, network, keys, replicas or 1, instances, said)
    else:
        page, events = html is not None, method == EVENTS or html is not None
        outcome = on_network(
            *(found, cfg, network, keys, replicas or 1, instances, said),
            events=events,
            watch=page,
            compare=compare or page,
        )
    if html is not None:
        write_atomic(html, estimate_page(outcome).encode("utf-8"))
        remarks().print(f"report: {html}")
    if as_json:
        emit_json(outcome_json(outcome))
    else:
        show(outcome, full)


def _check_method(method: str, refused: Mapping[str, Mapping[str, Any]]) -> None:
    """Options that the method does not look at are refused, since they would seem to be in the result."""
    if method not in METHODS:
        raise typer.BadParameter(f"'{method}': expected one of {', '.join(METHODS)}", param_hint="--method")
    for option, value in refused[method].items():
        if value is not None:
            raise typer.BadParameter(f"{option} is not for --method {method}", param_hint=option)


def _check_searches(searches: Mapping[str, Any], never: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """never: options that none of the searches has; fixed: that growth varies."""
    asked = [option for option, value in searches.items() if value is not None]
    grows = "--grow" in asked
    if grows and len(asked) > 1:
        raise typer.BadParameter(f"--grow is not for a search with {asked[0]}", param_hint="--grow")
    for option, value in {**never, **(fixed if grows else {})}.items():
        if asked and value is not None:
            raise typer.BadParameter(f"{option} is not for {asked[0]}", param_hint=option)


def _budget(text: str | None, fixed: Mapping[str, Any]) -> Budget:
    """fixed: by key of a budget, what is given as an option: then it is not at most that, but just that."""
    from amphw.estimate.search.budget import Budget
    from amphw.ir.errors import AmphwError

    try:
        found = Budget() if text is None else Budget.parse(text)
    except AmphwError as error:
        raise AmphwError(f"--budget: {error}") from None
    for key in found.said:
        if fixed.get(key) is not None:
            raise AmphwError(f"--budget: {key} is given by --{key}, too: leave one of them out")
    return found
