"""A model over several boards of one kind: which nodes each circuit has, with the host as their switch.

Nodes with parameters are placed, the largest first, each on the board that has the fewest parameters so far
of those with room. A layer that no board has room for is cut into tiles (`ir.passes.tile`), as few as it
takes. All circuits have equally many lanes, and memory for all keys of the run: an instance is in flight on
all of them at once. What has no parameters is the CPU's, but for nodes that follow all their senders onto a
board, as `amphw train` places them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from amphw.engine.lowering.lower import Lowered, lower
from amphw.engine.lowering.placing import HOST, followers, parameter_count
from amphw.host.config import RunConfig
from amphw.host.config_toml import to_toml
from amphw.host.session import graph_of, update_rules
from amphw.ir.errors import GraphError
from amphw.ir.graph import Graph
from amphw.ir.update import UpdateRule
from amphw.library.hardware_settings import Recommended, Wanted, chosen_to_fit, smaller
from amphw.models.base import Model
from amphw.rtl.build.boards import Board, BoardError
from amphw.rtl.build.circuit import RUN
from amphw.rtl.build.fit import LANES, Fit, FitError, fits, useful
from amphw.rtl.fixed.units import mapped
from amphw.rtl.numbers.formats import Formats
from amphw.rtl.plan.remedies import Remedies

LABEL = "board"
"""Devices of a run are called so, with a number."""

NETWORK = "network.toml"
"""The boards as devices of `amphw estimate --network`, in the same folder as the settings."""

MOST = 32
"""Boards, and tiles of a layer, that are looked at."""


@dataclass(frozen=True)
class Spread:
    """A model over several boards.

    found: settings that were chosen, and the configuration with them. cfg: that of a run, with tiles, places,
    lanes and keys; graph: its graph. boards: what each has. on_host: nodes that compute on the CPU. alone:
    one board that has room for all, with the same settings; None: there is none.
    """

    found: Recommended
    cfg: RunConfig[Any]
    graph: Graph
    boards: Sequence[Fit]
    on_host: Sequence[str]
    alone: Fit | None

    def write(self, folder: Path) -> dict[str, Path]:
        """The settings of a run, and the network for `amphw estimate`, into a folder -> files by kind."""
        lanes = self.boards[0].plan.sizes.lanes
        tables = [f"[host]\nnodes = {_quoted(self.on_host)}"]
        for fit in self.boards:
            names = [u.name for u in fit.plan.partition.units]
            tables.append(f"[[device]]\nlanes = {lanes}\nnodes = {_quoted(names)}")
        texts = {"config": (RUN, to_toml(self.cfg)), "network": (NETWORK, "\n\n".join(tables) + "\n")}
        for name, text in texts.values():
            (folder / name).write_text(text, encoding="utf-8")
        return {kind: folder / name for kind, (name, _) in texts.items()}

    @property
    def labels(self) -> list[str]:
        return [f"{LABEL}{k}" for k in range(len(self.boards))]


def spread(model: Model[Any], board: Board, boards: int, wanted: Wanted) -> Spread:
    """The model over at most so many boards, with the most lanes that have room on all of them.

    wanted: as for one board; nodes are not named, and widths stay as they are. Without keys there is memory
    for `max_active_keys`. Raises FitError where so many boards are too few, saying how many it takes, or that
    no number is enough, and GraphError for what no circuit can run.
    """
    seen: list[tuple[_Spreading, _Placed | None]] = []

    def tried(cfg: RunConfig[Any], formats: Formats) -> list[Fit]:
        spreading = _Spreading(model, cfg, formats, board, wanted)
        seen.append((spreading, None))
        placed = spreading.over(boards)
        seen[-1] = spreading, placed
        return placed.fits

    try:
        found = chosen_to_fit(model, wanted, tried, narrows=False)
    except FitError as error:
        enough = next((n for n in range(boards + 1, MOST + 1) if seen[-1][0].enough(n)), 0)
        if enough:
            said = f"{boards} of {board.name} are too few, {enough} are enough (--boards {enough})."
        else:
            said = f"No number of {board.name} is enough, up to {MOST}."
        raise FitError(f"{said} {error}", error.short) from None
    spreading, placed = seen[-1]
    assert placed is not None
    cfg, keys = found.cfg, placed.fits[0].keys
    lanes = placed.fits[0].plan.sizes.lanes
    chosen: dict[str, Any] = {"tile": placed.tile, "place": placed.place, "lanes": lanes}
    train = replace(cfg.train, max_active_keys=keys, max_infer_keys=min(keys, cfg.train.max_infer_keys))
    have = [{u.name for u in fit.plan.partition.units} for fit in placed.fits]
    on_host = [n for n in _computing(placed.graph) if not any(n in names for names in have)]
    cfg = replace(cfg, device=replace(cfg.device, **chosen), train=train)
    return Spread(found, cfg, placed.graph, placed.fits, on_host, spreading.alone())


def numbered(board: Board, k: int) -> Board:
    """The k-th of several boards in a network: the addresses follow on that of the first.

    BoardError where the board's file names one Ethernet address, which they cannot share.
    """
    if board.link.kind != "ethernet" or k == 0:
        return board
    if board.link.mac:
        raise BoardError(f"the file of {board.name} names the Ethernet address of one board: leave `mac` out")
    return board.reached_by(address=str(IPv4Address(board.link.address) + k))


def _quoted(names: Sequence[str]) -> str:
    return json.dumps(list(names))  # as TOML writes them


def _computing(graph: Graph) -> list[str]:
    """Nodes that a device may have."""
    return [u.name for u in mapped(lower(graph)) if u.name in graph.nodes]


@dataclass(frozen=True)
class _Cut:
    """A graph with layers in tiles, as `tile` says."""

    tile: str
    graph: Graph
    lowered: Lowered
    rules: Mapping[str, UpdateRule]

    @property
    def free(self) -> list[str]:
        """Nodes that compute, have no parameters, and need not stay with the engine."""
        units = [u for u in mapped(self.lowered) if not u.owns and not u.behaviour.decides]
        return [u.name for u in units if u.name in self.graph.nodes]


@dataclass(frozen=True)
class _Placed:
    """tile, place: settings of [device]. fits: by board."""

    graph: Graph
    tile: str
    place: str
    fits: list[Fit]


class _Spreading:
    """Of one configuration."""

    def __init__(
        self, model: Model[Any], cfg: RunConfig[Any], formats: Formats, board: Board, wanted: Wanted
    ) -> None:
        self._model, self._cfg, self._formats, self._board = model, cfg, formats, board
        self._keys = wanted.keys or cfg.train.max_active_keys
        self._lanes = (wanted.lanes,) if wanted.lanes is not None else LANES
        self._remedies = Remedies(wanted.lanes, self._keys, smaller(cfg.model))
        self._cuts: dict[str, _Cut] = {}  # by what `device.tile` says
        self._known: dict[tuple[str, frozenset[str] | None, int], Fit | None] = {}
        self._refused: Exception | None = None
        """Why the last node that was tried has no room on a board of its own, or cannot be cut."""

    def over(self, boards: int) -> _Placed:
        """With the most lanes with which that many boards are enough. FitError or GraphError: why none."""
        graph = self._cut({}).graph
        widest = max((p.shape[-1] for n in graph.parameterised for p in graph.nodes[n].params), default=1)
        for lanes in self._lanes:
            if lanes in useful(self._lanes, widest) and (found := self._with(lanes, boards)) is not None:
                return found
        raise self._refused or FitError("Its nodes have no room on so many boards together.", ["brams"])

    def enough(self, boards: int) -> bool:
        """Whether so many are, with the fewest lanes, which leave most room."""
        return self._with(self._lanes[-1], boards) is not None

    def alone(self) -> Fit | None:
        """One board for all nodes."""
        return next(filter(None, (self._fit(self._cut({}), None, lanes) for lanes in self._lanes)), None)

    # --- one number of lanes ----------------------------------------------------------------------

    def _with(self, lanes: int, boards: int) -> _Placed | None:
        """With the fewest tiles; one layer alone may go into more, so that the others have room beside it."""
        self._refused = None
        least: dict[str, int] = {}
        for name in self._cut({}).graph.parameterised:
            if (n := self._tiles(name, lanes, boards)) == 0:
                return None
            least[name] = n
        self._refused = None
        cut = max(least, key=lambda name: least[name])
        for n in range(least[cut], max(least[cut], boards if least[cut] > 1 else 1) + 1):
            try:
                found = self._packed({**least, cut: n}, lanes, boards)
            except GraphError:  # the layer has no columns or rows for more tiles
                break
            if found is not None:
                return found
        return None

    def _tiles(self, name: str, lanes: int, most: int) -> int:
        """The fewest in which a board has room for one; 1: the node itself, 0: it has none."""
        if self._fit(self._cut({}), [name], lanes) is not None:
            return 1
        for n in range(2, most + 1):
            try:
                cut = self._cut({name: n})
            except GraphError as error:
                self._refused = FitError(f"{self._refused} {error}.", getattr(self._refused, "short", ()))
                return 0
            # The first tile may have a bias, and the last one is no narrower than the others.
            if all(self._fit(cut, [f"{name}_{k}"], lanes) is not None for k in (0, n - 1)):
                return n
        return 0

    def _packed(self, tiles: Mapping[str, int], lanes: int, boards: int) -> _Placed | None:
        """Nodes on boards, or None where they have no room on so many."""
        cut = self._cut(tiles)
        sizes = {name: parameter_count(cut.graph, name) for name in cut.graph.parameterised}
        has: list[list[str]] = []
        fitted: list[Fit] = []

        def put(name: str, k: int) -> bool:
            there = has[k] if k < len(has) else []
            if (fit := self._fit(cut, [*there, name], lanes)) is None:
                return False
            has[k:] = [[*there, name], *has[k + 1 :]]
            fitted[k:] = [fit, *fitted[k + 1 :]]
            return True

        for name in sorted(sizes, key=lambda n: -sizes[n]):
            fewest = sorted(range(len(has)), key=lambda k: sum(sizes[n] for n in has[k]))
            empty = [len(has)] if len(has) < boards else []
            if not any(put(name, k) for k in (*empty, *fewest)):
                return None
        order = {name: k for k, name in enumerate(sizes)}
        by_first = sorted(range(len(has)), key=lambda k: min(order[n] for n in has[k]))
        has, fitted = [has[k] for k in by_first], [fitted[k] for k in by_first]
        stays: dict[str, str] = {}

        def takes(name: str, label: str) -> bool:
            if not (taken := put(name, int(label.removeprefix(LABEL)))):
                stays[name] = HOST
            return taken

        of = {name: f"{LABEL}{k}" for k, names in enumerate(has) for name in names}
        of |= dict(followers(cut.lowered, cut.free, of, takes))
        place = ",".join(f"{node}={label}" for node, label in {**of, **stays}.items())
        return _Placed(cut.graph, cut.tile, place, fitted)

    def _cut(self, tiles: Mapping[str, int]) -> _Cut:
        """The graph with layers in tiles, beside those that the configuration says. GraphError as `tile`."""
        more = (f"{name}:{n}" for name, n in tiles.items() if n > 1)
        setting = ",".join(filter(None, [self._cfg.device.tile, *more]))
        if setting not in self._cuts:
            cfg = replace(self._cfg, device=replace(self._cfg.device, tile=setting))
            graph = graph_of(self._model, cfg)
            self._cuts[setting] = _Cut(setting, graph, lower(graph), update_rules(cfg, graph))
        return self._cuts[setting]

    def _fit(self, cut: _Cut, nodes: Sequence[str] | None, lanes: int) -> Fit | None:
        """A board with these nodes, or all; None where they do not fit, or it cannot run them."""
        key = cut.tile, frozenset(nodes) if nodes is not None else None, lanes
        if key not in self._known:
            train = self._cfg.train
            try:
                [self._known[key]] = fits(
                    cut.graph, cut.rules, self._formats, self._board, self._keys, train.max_infer_keys,
                    self._keys, lanes, nodes, self._remedies,
                )  # fmt: skip
            except FitError as error:
                self._known[key] = None
                if nodes is not None:
                    self._refused = FitError(f"{', '.join(nodes)}: {error}", error.short)
            except GraphError as error:
                self._known[key], self._refused = None, error
        return self._known[key]
