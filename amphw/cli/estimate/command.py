"""`amphw estimate`: how fast a model would train on a network of devices, and what would cross its links."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.estimate.options import (
    DEFAULT,
    EVENTS,
    SLEEP,
    Copies,
    Devices,
    Links,
    Method,
    Page,
    Search,
    Settings,
    Sleep,
    check,
)
from amphw.cli.estimate.ranks import Ranks
from amphw.cli.option_groups import grouped, written
from amphw.cli.options import JsonOption, ModelArgument
from amphw.cli.output import emit_json, remark, remarks

if TYPE_CHECKING:
    from amphw.estimate.search.budget import Budget


@grouped
def estimate(
    model: ModelArgument,
    devices: Devices,
    links: Links,
    copies: Copies,
    settings: Settings,
    method: Method,
    search: Search,
    sleep: Sleep,
    page: Page,
    ranks: Ranks,
    full: Annotated[
        bool, typer.Option("--full", help="Print the long tables, too: all devices, links, nodes and edges.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate throughput, traffic and memory of a model on a network of devices."""
    pin_blas()
    from amphw.cli.estimate import ranks as several
    from amphw.cli.estimate import ranks_said
    from amphw.cli.estimate.tables import show
    from amphw.estimate.outcome import outcome_json
    from amphw.estimate.page.report import estimate_page
    from amphw.estimate.papers import case_of
    from amphw.host.config import resolve
    from amphw.host.run_folder import write_atomic
    from amphw.library.estimating import methods
    from amphw.library.estimating.network import given, network_of, timed_like
    from amphw.library.estimating.said import Said
    from amphw.models import get_model

    check(method, search, devices, links, copies, sleep, page, ranks)
    ranks.check(devices, links, copies)
    if ranks.ranks is not None and devices.devices is None and devices.listed is None and not ranks.known:
        devices = replace(devices, devices=1)  # a rank has one of its own
    by_default = devices.by_default(
        known=method.case is not None or ranks.known, timed=method.method != SLEEP
    )
    found: Any = get_model(model)
    assumed = case_of(found.name, method.case) if method.case is not None else None
    goal = given("--target", search.target, "instances a second")
    most = _budget(search.budget, devices, links)
    wanted = [*(assumed.settings if assumed else ()), *(settings.settings or ()), *several.settings(ranks)]
    cfg = resolve(found.config, found.defaults, settings.config, wanted)
    if ranks.known:
        ranks_said.say(several.answer(ranks, found, cfg, lambda window: 0.0), as_json)
        return
    like = "cpu" if by_default else devices.like
    timed = (
        None if like is None else partial(timed_like, found, cfg, like, settings.instances, remark, remark)
    )
    network = network_of(Said(**asdict(devices), **asdict(links)), assumed, cfg.device.policy, timed)
    said = written(devices, links, copies) | ({"like": f"--like {DEFAULT}"} if by_default else {})
    asked = methods.Asked(found, cfg, network, copies.keys, copies.replicas, settings.instances, said)
    if ranks.ranks is not None:

        def alone(window: int) -> float:
            return methods.on_network(replace(asked, keys=copies.keys or window)).throughput

        ranks_said.say(several.answer(ranks, found, cfg, alone), as_json)
        return
    if method.method == SLEEP:
        outcome = methods.by_sleeping(asked, sleep.seconds, sleep.epochs)
    elif goal is not None or search.budget is not None:
        outcome = methods.proposed(asked, most, goal)
    elif search.grow:
        outcome = methods.growing(asked)
    elif assumed:
        outcome = methods.paper_case(asked)
    else:
        drawn = page.html is not None
        played = method.method == EVENTS or drawn
        outcome = methods.on_network(asked, events=played, watch=drawn, compare=page.compare or drawn)
    if page.html is not None:
        write_atomic(page.html, estimate_page(outcome).encode("utf-8"))
        remarks().print(f"report: {page.html}")
    if as_json:
        emit_json(outcome_json(outcome))
    else:
        show(outcome, full)


def _budget(text: str | None, devices: Devices, links: Links) -> Budget:
    """What is given as an option is not at most that, but just that."""
    from amphw.estimate.search.budget import Budget
    from amphw.ir.errors import AmphwError

    try:
        found = Budget() if text is None else Budget.parse(text)
    except AmphwError as error:
        raise AmphwError(f"--budget: {error}") from None
    for key in written(devices, links):
        if key in found.said:
            raise AmphwError(f"--budget: {key} is given by --{key}, too: leave one of them out")
    return found
