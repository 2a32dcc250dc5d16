"""`amphw rtl`: a model as hardware for an FPGA board."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from amphw.cli.option_groups import grouped
from amphw.cli.options import ConfigOption, JsonOption, ModelArgument, SetOption
from amphw.cli.output import emit_json, remarks, results, table
from amphw.page.numbers import number, percent

if TYPE_CHECKING:
    from amphw.library.hardware_settings import Wanted
    from amphw.rtl.build.board_files import BoardBuild
    from amphw.rtl.build.boards import Board, Clocking

INSTANCES = 8
"""That the simulation trains on, to count cycles."""


@dataclass(frozen=True)
class Circuit:
    """The circuit, and what it is built for"""

    board: Annotated[
        str,
        typer.Option(
            "--board",
            metavar="BOARD",
            help="What it is built for: a name, or a file of your own, BOARD.toml; a wrong name lists all.",
        ),
    ] = "ulx3s-85f"
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes", metavar="NAME,...", help="The nodes that are placed on it; all if not given."
        ),
    ] = None
    boards: Annotated[
        int | None,
        typer.Option(
            "--boards",
            metavar="N",
            help="Spread the model over at most so many boards, the CPU between them, each with its circuit.",
            min=2,
            max=32,
        ),
    ] = None
    lanes: Annotated[
        int | None,
        typer.Option("--lanes", metavar="N", help="Multipliers; without it, as many as fit.", min=2, max=64),
    ] = None
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys",
            metavar="N",
            help="Instances in flight to have memory for; without it, as many as fit, up to max_active_keys.",
            min=1,
            max=4096,
        ),
    ] = None
    formats: Annotated[
        str | None,
        typer.Option(
            "--formats",
            metavar="FORMATS",
            help="Number formats, such as q4.12,g=q3.13; without it, wide ones.",
        ),
    ] = None
    frequency: Annotated[
        float | None,
        typer.Option(
            "--frequency",
            metavar="MHZ",
            help="The clock wanted; without it, the board's. The circuit runs at the highest up to it that "
            "the chip's PLL makes and at which timing closes, with 5 % to spare.",
            min=1,
        ),
    ] = None
    link: Annotated[
        str,
        typer.Option(
            "--link",
            metavar="KIND",
            help="How it is driven, serial, ethernet or usb; without it, as the board's file says.",
        ),
    ] = ""
    address: Annotated[
        str,
        typer.Option(
            "--address", metavar="IP", help="Its address in a network; without it, that in the board's file."
        ),
    ] = ""


@dataclass(frozen=True)
class Job:
    """What is made of it"""

    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder for Verilog, constraints, header and bitstream; what lies there is overwritten.",
        ),
    ]
    bitstream: Annotated[
        bool, typer.Option("--bitstream", help="Also make the file that configures the chip.")
    ] = False
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate/--no-simulate", help="Whether to count the cycles a message takes; of a whole model."
        ),
    ] = True
    plan: Annotated[
        bool,
        typer.Option("--plan", help="With --boards: say what each would hold, and build nothing."),
    ] = False
    accuracy: Annotated[
        bool,
        typer.Option(
            "--accuracy/--no-accuracy",
            help="Whether to find out, where a layer was made narrower to fit, what that costs: two epochs "
            "on the CPU with either width.",
        ),
    ] = True


@grouped
def rtl(
    model: ModelArgument,
    job: Job,
    circuit: Circuit,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate a model's hardware, build it for a board, and report size, clock rate and cycles a message."""
    from amphw.data.cache import DataError
    from amphw.host.session import graph_of, update_rules
    from amphw.library.hardware_settings import EPOCHS, Wanted, recommended, smaller, what_is_lost
    from amphw.models import MODELS, get_model
    from amphw.rtl.build.board_files import build, check_tools, prepare
    from amphw.rtl.build.boards import board as find_board
    from amphw.rtl.plan.remedies import Remedies

    def say(text: str) -> None:
        remarks().print(text)

    lanes, keys = circuit.lanes, circuit.keys
    on = find_board(circuit.board).reached_by(circuit.link, circuit.address)
    pins = on.pins()  # before anything that takes long, as is a clock that cannot be made
    on.clocking(circuit.frequency)
    found = get_model(model)
    nodes = [name.strip() for name in circuit.nodes.split(",")] if circuit.nodes is not None else None
    wanted = Wanted(config, settings or (), circuit.formats, lanes, keys, nodes)
    if circuit.boards is not None or job.plan:
        _several(found, on, circuit, job, wanted, as_json)
        return
    chosen = recommended(found, on, wanted, model not in MODELS)
    for each in chosen.chosen:
        say(f"chosen to fit {on.name}: {each}")
    cfg, formats = chosen.cfg, chosen.formats
    graph, train = graph_of(found, cfg), cfg.train
    rules = update_rules(cfg, graph)
    remedies = Remedies(lanes, keys, smaller(cfg.model), model not in MODELS)
    simulate = job.simulate and not chosen.fits[0].plan.elsewhere
    check_tools(on, simulate)
    prepare(job.out)
    lost = None
    if job.accuracy and chosen.full is not None:
        try:
            lost = what_is_lost(found, chosen, say)
            width = f"{number(lost[0])} as wide as it was, {number(lost[1])} now"
            few = f"after {EPOCHS} of {train.epochs} epochs, in floats, by one run each"
            say(f"{found.metric} {few}: {width}")
        except DataError as error:  # a circuit needs none
            say(f"what the narrower layers cost is not known: {error}")
    made = build(chosen.fits, on, job.out, pins, circuit.frequency, job.bitstream, say, remedies)
    made.files["config"] = chosen.write(job.out, made.fit.keys)
    cycles = None
    if simulate:
        from amphw.rtl.timing.measure import cycles_per_message

        say("simulating a few instances")
        data = found.training(cfg.model, train.seed, 1)
        instances = [data[i] for i in range(min(INSTANCES, len(data)))]
        cycles = cycles_per_message(graph, rules, formats, made.fit.plan.sizes, made.fit.keys, instances)
    facts = {
        "model": graph.name,
        "nodes": [u.name for u in made.fit.plan.partition.units],
        "board": on.name,
        "config": str(made.files["config"]),
        "chosen": [asdict(each) for each in chosen.chosen],
        "metric": dict(zip(("as_wide_as_it_was", "chosen"), lost, strict=True)) if lost else None,
        **_figures(made, cycles),
    }
    if as_json:
        emit_json(facts)
    else:
        _show(made, facts)
        if not made.board.is_system and not made.fit.plan.elsewhere:
            _show_next(model, made, job.out)


def _several(found: Any, on: Board, circuit: Circuit, job: Job, wanted: Wanted, as_json: bool) -> None:
    """Several boards, each with a circuit of its own."""
    from amphw.cli.rtl_boards import several
    from amphw.ir.errors import AmphwError
    from amphw.library.several_boards import numbered, spread
    from amphw.rtl.build.board_files import build, check_tools
    from amphw.rtl.plan.remedies import Remedies

    def say(text: str) -> None:
        remarks().print(text)

    if circuit.boards is None:
        raise AmphwError("--plan is for several boards: say how many at most (--boards N)")
    if wanted.nodes is not None:
        raise AmphwError("--boards finds out which nodes each board has: leave --nodes out")
    made = spread(found, on, circuit.boards, wanted)
    for each in made.found.chosen:
        say(f"chosen to fit {on.name}: {each}")

    def built(k: int) -> dict[str, Any]:
        say(f"{made.labels[k]}:")
        each = numbered(on, k)
        done = build(
            [made.boards[k]], each, job.out / made.labels[k], each.pins(), circuit.frequency, job.bitstream,
            say, Remedies(circuit.lanes, made.boards[k].keys),
        )  # fmt: skip
        return _figures(done, None)

    if not job.plan:
        check_tools(on, simulate=False)
    several(made, found.name, on, job.out, None if job.plan else built, as_json)


def _figures(made: BoardBuild, cycles: float | None) -> dict[str, Any]:
    from amphw.rtl.build.fit_logic import errors
    from amphw.rtl.timing.attribution import shares

    s, plan = made.synthesis, made.fit.plan
    return {
        "formats": str(plan.formats),
        "keys": made.fit.keys,
        "lanes": plan.sizes.lanes,
        "sizes": asdict(plan.sizes),
        "luts": s.luts,
        "ffs": s.ffs,
        "dsps": s.dsps,
        "brams": s.brams,
        "device_share": made.share,
        "estimate": asdict(made.fit.estimate),
        "estimate_error": errors(),
        "clock_mhz": made.clocking.hz / 1e6,
        "oscillator_mhz": made.board.clock.oscillator_mhz,
        "pll": _pll(made.clocking),
        "fmax_mhz": s.fmax_mhz,
        "frequency_mhz": s.frequency_mhz,
        "meets_frequency": s.meets_frequency if s.clocks else None,
        "clocks": {name: asdict(clock) for name, clock in s.clocks.items()},
        "link": made.board.told_link(),
        "cycles_per_message": cycles,
        "critical_signals": s.critical_signals,
        "critical_nodes": [asdict(share) for share in shares(s.critical_signals, plan)],
        "critical_path": [asdict(step) for step in s.critical_path],
        "tools": made.tools,
        "seconds": s.seconds,
        "files": {kind: str(path) for kind, path in made.files.items()},
    }


def _pll(clocking: Clocking) -> dict[str, Any] | None:
    """The PLL's cell and its parameters; none where the oscillator's rate is the circuit's."""
    if clocking.pll is None:
        return None
    given = clocking.pll.parameters.items()
    parameters = {name: value if isinstance(value, str | int) else value.value for name, value in given}
    return {"cell": clocking.pll.cell, "parameters": parameters}


def _show_next(model: str, made: BoardBuild, out: Path) -> None:
    """What somebody with the board types next."""
    from amphw.cli.rtl_boards import train_on

    say, link = results(), made.board.link
    if tried := made.board.notes.tried:
        say.print(f"tried on this board so far: {tried}")
    port = link.url if link.kind == "ethernet" else "PORT"
    load = f"  amphw flash {out}\n" if "bitstream" in made.files else ""
    say.print(
        f"{'to load it, and train' if load else 'to train'} on it:\n{load}"
        f"  {train_on(model, made.files, [f'board:{port},circuit={out}'])}"
    )


def _show(made: BoardBuild, facts: dict[str, Any]) -> None:
    there = asdict(made.board.resources)
    rows = table("resource", "used", "of", "share", right=("used", "of", "share"))
    for name in ("luts", "ffs", "dsps", "brams"):
        rows.add_row(name, f"{facts[name]:,}", f"{there[name]:,}", percent(facts["device_share"][name]))
    say = results()
    say.print(rows)
    if made.board.is_system:
        say.print(
            f"clock: the system's; whether timing allows {number(facts['clock_mhz'])} MHz its tools tell"
        )
    else:
        source = f"the PLL's, of the oscillator's {number(facts['oscillator_mhz'])} MHz"
        say.print(
            f"clock: {number(facts['clock_mhz'])} MHz, {source if facts['pll'] else 'the oscillator'}; "
            f"timing allows {number(facts['fmax_mhz'])} MHz"
        )
    say.print(f"link: {made.board.link}")
    if facts["cycles_per_message"] is not None:
        say.print(f"cycles per message: {number(facts['cycles_per_message'])}")
    if parts := dict.fromkeys(share["part"] for share in facts["critical_nodes"]):
        say.print(f"critical path: {' -> '.join(parts)} (--json lists its signals)")
    for share in facts["critical_nodes"]:
        nodes = ", ".join(share["nodes"])
        say.print(f"  {share['part']}: {'logic of' if share['own'] else 'shared by'} {nodes}")
    for kind, path in facts["files"].items():
        say.print(f"{kind}: {path}")
