"""From a model and a board to a front, and from points of it to circuits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amphw.host.config import resolve
from amphw.ir.device import Capabilities
from amphw.library.codesign.circuits import Bench
from amphw.library.codesign.search import Found, Point, Search, training_settings
from amphw.library.codesign.trials import Trainers
from amphw.library.hardware_settings import Recommended, Wanted, recommended
from amphw.models.base import Model
from amphw.rtl.build.boards import Board
from amphw.rtl.build.fit import FitError
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.toolchain.environment import ToolchainError

OTHERS = 2
"""Points of the front that are placed beside the chosen one, to see how far the estimates are off."""


def search(
    name: str,
    model: Model[Any],
    board: Board,
    config: Path | None,
    settings: Sequence[str],
    loss: float,
    lanes: int | None,
    keys: int | None,
    minutes: float,
    own_schema: bool,
    say: Callable[[str], None],
) -> tuple[Recommended, Found]:
    """The model's settings on a circuit of the board, and what was found. name: as `get_model` takes it.

    Raises FitError, GraphError, ConfigError or AmphwError: nothing fits, or nothing learns.
    """
    chosen = recommended(model, board, Wanted(config, settings, None, lanes, keys), own_schema)
    for each in chosen.chosen:
        if each.key != "formats":
            say(f"chosen to fit {board.name}: {each}")
    defaults = model.recommended(Capabilities("fixed", "fixed", optimizers=UPDATES))
    cfg = training_settings(resolve(model.config, defaults, config, settings), chosen.cfg)
    model.prepare(cfg.model, cfg.train.seed)
    bench = Bench(model, chosen.cfg, board)
    with Trainers(name, cfg) as trainers:
        looking = Search(
            trainers, bench, model.metric, cfg.train.epochs, cfg.train.seed, chosen.formats,
            loss, minutes, say,
        )  # fmt: skip
        return chosen, looking.run(lanes, keys)


@dataclass(frozen=True)
class Made:
    """A point that was built. luts: as mapped. error: of their estimate, as a fraction of those.

    refused: why it was not built, and nothing else is known; empty where it was.
    """

    point: Point
    folder: Path
    luts: int | None = None
    error: float | None = None
    fmax_mhz: float | None = None
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "formats": str(self.point.formats),
            "lanes": self.point.design.fit.plan.sizes.lanes,
            "luts": self.luts,
            "error": self.error,
            "fmax_mhz": self.fmax_mhz,
            "folder": str(self.folder),
            "refused": self.refused,
        }


def make(
    chosen: Recommended, board: Board, found: Found, out: Path, say: Callable[[str], None]
) -> Iterator[Made]:
    """Build the chosen point with its bitstream, and place two others; each in a folder of its own.

    Takes minutes each. One that does not fit after all, or that a tool fails at, is told and not built.
    """
    from amphw.rtl.build.board_files import build
    from amphw.rtl.plan.remedies import Remedies

    for number, point in enumerate(_points(found)):
        folder = out / ("circuit" if point is found.chosen else f"other-{number}")
        say(f"building {point.formats}, {point.design.fit.plan.sizes.lanes} lanes, in {folder}")
        whole = point is found.chosen and not board.is_system
        fit = point.design.fit
        try:
            built = build([fit], board, folder, board.pins(), None, whole, say, Remedies(None, None))
        except (FitError, ToolchainError) as error:
            yield Made(point, folder, refused=str(error))
            continue
        chosen.write(folder, fit.keys)
        luts = built.synthesis.luts
        yield Made(point, folder, luts, fit.estimate.luts / luts - 1, built.synthesis.fmax_mhz)


def _points(found: Found) -> list[Point]:
    """The chosen one, and the fastest and the smallest of the others with lanes of their own."""
    first = [found.chosen] if found.chosen is not None else []
    others = {p.design.fit.plan.sizes.lanes: p for p in found.front}
    for point in first:
        others.pop(point.design.fit.plan.sizes.lanes, None)
    rest = sorted(others.values(), key=lambda p: p.luts)
    return [*first, *(rest if len(rest) <= OTHERS else [rest[0], rest[-1]])]
