"""Settings with which a model has room on a board, where its user has not said otherwise.

Models recommend settings for processors, which like batches and wide layers. Hardware has little memory, so
what does not fit is made smaller in this order: rows in a message, then what the optimiser keeps, number
formats, lanes and keys, and the widths of layers last, which alone change what a model can learn. A setting
that was given stays as it is; if nothing fits with it, the message says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amphw.host.config import RunConfig, resolve
from amphw.host.config_toml import to_toml
from amphw.host.run_folder import RunFolder
from amphw.host.sections.update import UpdateConfig
from amphw.host.session import graph_of, update_rules
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Capabilities
from amphw.ir.errors import GraphError
from amphw.library.running import Watched, ready, run_once
from amphw.models.base import Model
from amphw.rtl.build import fit
from amphw.rtl.build.boards import Board
from amphw.rtl.build.circuit import RUN
from amphw.rtl.build.fit import Fit, FitError
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.numbers.formats import DEFAULT, Formats
from amphw.rtl.plan.remedies import LOGIC, MEMORY, Remedies

WIDTHS = ("hidden", "width", "embedding", "spelling", "vocabulary", "steps")
"""Settings of models that make them smaller."""

LEAST_WIDTH = 4
"""To which a width is halved at most, but for those of `LEAST`."""

LEAST = {"steps": 1}

EPOCHS = 2
"""After which widths are compared."""

Tried = Callable[[RunConfig[Any], Formats], list[Fit]]
"""What fits with a configuration and number formats; FitError or GraphError where nothing does."""


@dataclass(frozen=True)
class Setting:
    """One that was chosen. key: in full, `formats` for the number formats. why: a phrase. also: what changes
    with it, by key."""

    key: str
    value: Any
    why: str
    also: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = {self.key: self.value, **self.also}
        return f"{', '.join(f'{key}={value}' for key, value in values.items())}: {self.why}"


@dataclass(frozen=True)
class Recommended:
    """A model that should have room, with what was chosen for it.

    full: the configuration with the same settings but for the widths; None where they are as they were.
    """

    cfg: RunConfig[Any]
    formats: Formats
    fits: Sequence[Fit]
    chosen: Sequence[Setting]
    full: RunConfig[Any] | None

    def run(self, keys: int) -> RunConfig[Any]:
        """The configuration of a run on a circuit for so many keys."""
        train = self.cfg.train
        train = replace(
            train,
            max_active_keys=min(keys, train.max_active_keys),
            max_infer_keys=min(keys, train.max_infer_keys),
        )
        return replace(self.cfg, train=train)

    def write(self, folder: Path, keys: int) -> Path:
        """The settings of a run on a circuit for so many keys, into its folder."""
        path = folder / RUN
        path.write_text(to_toml(self.run(keys)), encoding="utf-8")
        return path


@dataclass(frozen=True)
class Wanted:
    """What a user has said: a configuration file and settings as for `amphw train`, number formats, lanes,
    keys, and the nodes that the circuit has. None: nothing."""

    config: Path | None = None
    settings: Sequence[str] = ()
    formats: str | None = None
    lanes: int | None = None
    keys: int | None = None
    nodes: Sequence[str] | None = None


def what_is_lost(model: Model[Any], found: Recommended, say: Callable[[str], None]) -> tuple[float, float]:
    """The validation metric after `EPOCHS` epochs on the CPU, as it is and with the reduced widths.

    Both with the settings that were chosen, but for the number formats, so that the widths alone differ. say:
    is told what takes long.
    """
    assert found.full is not None
    reached = []
    for cfg, what in ((found.full, "as wide as it was"), (found.cfg, "with the reduced widths")):
        say(f"training {EPOCHS} epochs on the CPU, {what}")
        reached.append(
            _reached(model, replace(cfg, train=replace(cfg.train, epochs=EPOCHS, target=None)), say)
        )
    return reached[0], reached[1]


def _reached(model: Model[Any], cfg: RunConfig[Any], say: Callable[[str], None]) -> float:
    """In a folder that is gone then."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_once(
            model, cfg, ready(model, cfg, "cpu", say), RunFolder.create(Path(folder) / "run", model.name),
            model.name, watched=Watched(report=False),
        )  # fmt: skip
        return outcome.summary.valid[model.metric]


def recommended(model: Model[Any], board: Board, wanted: Wanted, own_schema: bool = False) -> Recommended:
    """The model as it is if it fits, else with as few settings changed as it takes.

    own_schema: whether the user wrote the model. Raises FitError or GraphError where no setting that is free
    is enough, and ConfigError for settings that are not allowed.
    """

    def tried(cfg: RunConfig[Any], formats: Formats) -> list[Fit]:
        graph, train = graph_of(model, cfg), cfg.train
        remedies = Remedies(wanted.lanes, wanted.keys, smaller(cfg.model), own_schema)
        return fit.fits(
            graph, update_rules(cfg, graph), formats, board, train.max_active_keys,
            train.max_infer_keys, wanted.keys, wanted.lanes, wanted.nodes, remedies,
        )  # fmt: skip

    return chosen_to_fit(model, wanted, tried)


def chosen_to_fit(model: Model[Any], wanted: Wanted, tried: Tried, narrows: bool = True) -> Recommended:
    """The model with as few settings changed as it takes for `tried` to find something. narrows: whether
    layers may become narrower. Raises what `tried` raises where no setting that is free is enough."""
    return _Search(model, wanted, tried, narrows).found()


class _Search:
    def __init__(self, model: Model[Any], wanted: Wanted, tried: Tried, narrows: bool):
        self._model, self._wanted, self._tried, self._narrows = model, wanted, tried, narrows
        self._defaults = model.recommended(Capabilities("rtl", "fpga", optimizers=UPDATES))
        self._chosen: dict[str, Setting] = {}
        self._first: Exception | None = None
        self._useless: set[str] = set()
        """Keys that were given, so that a choice has no effect, or whose choice is not allowed."""

    def found(self) -> Recommended:
        cfg = self._configuration(self._chosen.values())
        while True:
            try:
                fits = self._fits(cfg)
                break
            except (FitError, GraphError) as error:
                cfg = self._smaller(cfg, error)
        if narrow := [s for s in self._chosen.values() if _is_width(s.key)]:
            fits = self._widened(narrow, fits)
        chosen = list(self._chosen.values())
        wide = self._configuration([s for s in chosen if not _is_width(s.key)]) if narrow else None
        return Recommended(self._configuration(chosen), self._formats(), fits, chosen, wide)

    def _smaller(self, cfg: RunConfig[Any], error: Exception) -> RunConfig[Any]:
        """With the next step taken; raises the error, with what was tried, where there is none."""
        self._first = self._first or error
        for step in _steps(cfg, self._formats(), error, self._wanted):
            if step.key in self._useless or self._chosen.get(step.key) == step:
                continue
            if not self._narrows and _is_width(step.key):
                continue
            taken = {**self._chosen, step.key: step}
            try:
                changed = self._configuration(taken.values())
            except ConfigError:  # it depends on another setting
                self._useless.add(step.key)
                continue
            if _has(changed, step):
                self._chosen = taken
                return changed
            self._useless.add(step.key)
        if str(error) == str(self._first):  # nothing that was tried has to do with it
            raise error
        tried = ", ".join(f"{s.key}={s.value}" for s in self._chosen.values())
        raise FitError(f"Even with {tried}: {error}") from None

    def _widened(self, narrow: Sequence[Setting], fits: list[Fit]) -> list[Fit]:
        """Widths were halved one after the other until all was small enough: some need not be so small."""
        full = self._configuration(()).model
        left = [s.key for s in sorted(narrow, key=lambda s: WIDTHS.index(s.key.removeprefix("model.")))]
        while left:
            for key in tuple(left):  # twice as wide in turn, so that none gets all the room
                before, now = self._chosen, self._chosen[key]
                most = getattr(full, key.removeprefix("model."))
                self._chosen = {**before, key: replace(now, value=min(most, 2 * now.value))}
                found = self._fits_or_none() if self._chosen != before else None
                if found is None:
                    self._chosen = before
                    left.remove(key)
                else:
                    fits = found
        return fits

    def _fits_or_none(self) -> list[Fit] | None:
        try:
            return self._fits(self._configuration(self._chosen.values()))
        except (FitError, GraphError, ConfigError):
            return None

    def _formats(self) -> Formats:
        known = self._chosen.get("formats")
        return Formats.parse(known.value if known is not None else self._wanted.formats or DEFAULT)

    def _configuration(self, chosen: Iterable[Setting]) -> RunConfig[Any]:
        """What was chosen lies above the model's settings, and below what was given."""
        tree: dict[str, Any] = deepcopy(dict(self._defaults))
        for each in chosen:
            for key, value in {each.key: each.value, **each.also}.items():
                *sections, name = key.split(".")
                if sections:
                    inside = tree
                    for section in sections:
                        inside = inside.setdefault(section, {})
                    inside[name] = value
        return resolve(self._model.config, tree, self._wanted.config, self._wanted.settings)

    def _fits(self, cfg: RunConfig[Any]) -> list[Fit]:
        return self._tried(cfg, self._formats())


def _is_width(key: str) -> bool:
    return key.removeprefix("model.") in WIDTHS


def _has(cfg: RunConfig[Any], step: Setting) -> bool:
    """Whether a choice has an effect: what is given is stronger."""
    section, _, name = step.key.partition(".")
    return not name or getattr(getattr(cfg, section), name) == step.value


def smaller(model: object) -> list[str]:
    """Options that make a model with this configuration smaller, as they are written."""
    options = ["--set batch=1"] if getattr(model, "batch", 1) != 1 else []
    for name in WIDTHS:
        value = getattr(model, name, None)
        if isinstance(value, int) and value > 1:
            options.append(f"--set {name}=... (now {value:,})")
    return options


# --- what is tried ------------------------------------------------------------------------------------------


def _steps(cfg: RunConfig[Any], formats: Formats, error: Exception, wanted: Wanted) -> Iterator[Setting]:
    """What may help, the least harmful first."""
    short = error.short if isinstance(error, FitError) else LOGIC | MEMORY
    if short & MEMORY and getattr(cfg.model, "batch", 1) != 1:
        yield Setting("model.batch", 1, "a message with one row takes the least payload memory")
    yield from _optimizer(cfg)
    if short & MEMORY and formats.rounding == "nearest" and wanted.formats is None:
        less = replace(formats, rounding="stochastic")
        yield Setting(
            "formats", str(less), "updates that are rounded at random need no low halves of weights"
        )
    if short & MEMORY:
        if getattr(cfg.model, "form", None) == "messages":
            yield Setting("model.form", "rows", "one message in place of many takes less payload memory")
        yield from _narrower(cfg)
    if short & LOGIC and cfg.update.clip > 0.0:
        yield Setting("update.clip", 0.0, "measuring gradients takes logic")


def _optimizer(cfg: RunConfig[Any]) -> Iterator[Setting]:
    """Without velocities; steps are as long as those were in the long run."""
    update = cfg.update
    if update.optimizer == "sgd":
        return
    if update.optimizer == "momentum":
        long_run = 1.0 / (1.0 - update.momentum)
        own = {f"update.nodes.{n}.lr": s["lr"] for n, s in cfg.node_updates.items() if "lr" in s}
        rates = {key: round(rate * long_run, 6) for key, rate in {"update.lr": update.lr, **own}.items()}
    else:
        rates = {"update.lr": UpdateConfig.lr}  # others scale it by themselves
    yield Setting("update.optimizer", "sgd", "what others keep takes as much memory as gradients", rates)


def _narrower(cfg: RunConfig[Any]) -> Iterator[Setting]:
    """Half of the largest width first."""
    known: list[tuple[int, str]] = []
    for name in WIDTHS:
        value = getattr(cfg.model, name, None)
        if isinstance(value, int) and value > LEAST.get(name, LEAST_WIDTH):
            known.append((value, name))
    for value, name in sorted(known, reverse=True):
        half = max(LEAST.get(name, LEAST_WIDTH), value // 2)
        yield Setting(f"model.{name}", half, "as wide as fits")
