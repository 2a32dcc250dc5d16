"""The search for formats, lanes and keys: what it tries and keeps, and what it says of too little time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("amaranth")

from amphw.host.config import resolve
from amphw.host.config_toml import to_toml
from amphw.ir.device import Capabilities
from amphw.ir.errors import AmphwError
from amphw.library.codesign import formats as candidates
from amphw.library.codesign.search import SEEDS, Point, Search, training_settings
from amphw.library.codesign.trials import FLOAT32, Result, Trial, trained
from amphw.models import get_model
from amphw.rtl.fixed.parameters import UPDATES
from amphw.rtl.numbers.formats import DEFAULT, Formats

EPOCHS = 12


class Played:
    """Trainings that take a second an epoch in fixed point, on one processor."""

    def __init__(self, score: Callable[[Trial], float], held: str = "q3.13,w=q3.13,g=q4.12") -> None:
        self.score, self.held, self.processes = score, held, 1
        self.seconds, self.asked = 0.0, list[list[Trial]]()

    def run(self, trials: Sequence[Trial]) -> Iterator[Result]:
        self.asked.append(list(trials))
        for trial in trials:
            took = float(trial.epochs) if trial.device != FLOAT32 else 0.1
            self.seconds += took
            score = self.score(trial)
            broke = "" if math.isfinite(score) else "training diverged in epoch 3"
            yield Result(trial, score, took, "" if trial.device == FLOAT32 else self.held, broke)


def design(lanes: int, luts: int, rate: float, keys: int = 2) -> Any:
    sizes = SimpleNamespace(lanes=lanes)
    fit = SimpleNamespace(plan=SimpleNamespace(sizes=sizes), estimate=SimpleNamespace(luts=luts), keys=keys)
    return SimpleNamespace(fit=fit, instances_per_s=rate)


class Room:
    """Two circuits; formats without a low half of the weights have room for a third."""

    def designs(self, formats: Formats, lanes: int | None, keys: int | None) -> list[Any]:
        small = [design(2, 9_000, 200.0), design(16, 15_000, 800.0)]
        return small + ([design(32, 20_000, 900.0)] if formats.rounding == "stochastic" else [])


def searched(played: Played, loss: float = 1.0, minutes: float = 60.0) -> Any:
    search = Search(
        played, Room(), "accuracy", EPOCHS, 5, Formats(), loss, minutes, lambda text: None,
        clock=lambda: played.seconds,
    )  # type: ignore[arg-type]  # fmt: skip
    return search.run(None, None)


def by_width(trial: Trial) -> float:
    """Best with five bits before a value's point; float32 a bit better, and no master a point worse."""
    if trial.device == FLOAT32:
        return 0.95
    formats = Formats.parse(trial.formats)
    best = 0.945 - 0.1 * abs(formats.value.frac - 11) - 0.01 * abs(formats.gradient.frac - 12)
    return best - 0.02 * (formats.rounding == "stochastic")


def test_rounds_become_fewer_and_longer() -> None:
    played = Played(by_width)
    found = searched(played)
    first, *rounds, whole, last = played.asked
    assert [(t.device, t.seed) for t in first[1:]] == [(FLOAT32, 5 + k) for k in range(SEEDS)]
    assert [(len(r), r[0].epochs) for r in rounds] == [(30, 2), (10, 6)]
    assert (len(whole), len(last)) == (4, 4) and {t.epochs for t in (*whole, *last)} == {EPOCHS}
    winner = "q5.11,w=q4.12,g=q4.12"  # of two that are as good the wider
    assert [t.seed for t in last if t.formats == winner] == [6, 7]
    assert {t.formats for t in last} - {winner} == {f"{winner},master=24", f"{winner},round=stochastic"}
    assert str(found.chosen.formats) == winner and len(found.chosen.scores) == SEEDS
    assert found.left_out == [] and found.lost(found.chosen) == pytest.approx(0.5)


def test_the_chosen_is_the_fastest_within_the_loss() -> None:
    assert searched(Played(by_width), loss=1).chosen.design.instances_per_s == 800
    slack = searched(Played(by_width), loss=3).chosen
    assert slack.design.instances_per_s == 900 and slack.formats.rounding == "stochastic"
    assert searched(Played(by_width), loss=0.1).chosen is None


def test_what_there_is_no_time_for_is_left_out_and_said() -> None:
    found = searched(Played(by_width), minutes=1.3)
    assert found.chosen is not None and found.seconds < 1.3 * 60
    said = "; ".join(found.left_out)
    assert "formats for 2 epochs" in said and "less memory for a weight" in said
    least = searched(Played(by_width), minutes=0.3)  # one goes to the end, whatever time there is
    assert len(least.front) >= 1 and "2 further seeds" in least.left_out


def test_one_epoch_is_no_whole_training_in_every_round() -> None:
    played = Played(by_width)
    search = Search(
        played,
        Room(),
        "accuracy",
        1,
        5,
        Formats(),
        1.0,
        60.0,
        lambda text: None,
        clock=lambda: played.seconds,
    )  # type: ignore[arg-type]
    found = search.run(None, None)
    assert {len(p.scores) for p in found.front} <= {1, SEEDS}
    assert all(str(p.formats) != DEFAULT for p in found.front)


def test_nothing_learns() -> None:
    with pytest.raises(AmphwError, match=r"float32 does not learn with these settings \(training diverged"):
        searched(Played(lambda t: math.nan))
    with pytest.raises(AmphwError, match="in none of the formats that were tried did it learn"):
        searched(Played(lambda t: 0.9 if t.whole else math.nan))


POINT = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(st.lists(POINT, min_size=1, max_size=12))
def test_the_front_is_what_nothing_is_better_than(figures: list[tuple[int, int, int]]) -> None:
    points = [Point(Formats(), [s / 4], design(2, 4 - small, float(rate))) for s, rate, small in figures]
    search = Search(None, None, "accuracy", 1, 0, Formats(), 1, 1, print)  # type: ignore[arg-type]
    front = search._front(points)

    def better(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
        return a != b and all(x >= y for x, y in zip(a, b, strict=True))

    kept = {figures[k] for k, p in enumerate(points) if p in front}
    assert kept == {f for f in figures if not any(better(o, f) for o in figures)}
    assert len(front) == len(kept)


@given(st.integers(2, 15), st.integers(2, 15), st.integers(2, 15))
def test_candidates_are_near_what_was_seen(value: int, weight: int, gradient: int) -> None:
    seen = Formats.parse(
        f"v=q{16 - value}.{value},w=q{16 - weight}.{weight},g=q{16 - gradient}.{gradient},acc=41"
    )
    tried = candidates.candidates(seen)
    assert len(set(map(str, tried))) == len(tried) <= 30
    assert all(f.accumulator == 41 and 0 <= value - f.value.frac <= 4 for f in tried)


def test_what_a_circuit_needs_to_fit_all_formats_have() -> None:
    base = Formats.parse("q4.12,round=stochastic")
    wide = candidates.first(base)
    assert str(wide) == f"{DEFAULT},round=stochastic"
    assert {f.rounding for f in candidates.candidates(wide)} == {"stochastic"}
    assert candidates.variants(wide) == []
    assert [f.rounding for f in candidates.variants(Formats())] == ["nearest", "stochastic"]


def test_an_error_is_lost_in_per_cent() -> None:
    assert candidates.lost(0.66, 0.6, "mae") == pytest.approx(10)
    assert candidates.lost(0.9, 0.92, "accuracy") == pytest.approx(2)
    assert candidates.lost(-3.0, -4.0, "loss") == pytest.approx(25)
    assert candidates.lost(0.0, 0.0, "loss") == 0 and candidates.lost(0.1, 0.0, "loss") == math.inf
    assert (
        candidates.goodness(0.5, "mae")
        > candidates.goodness(0.6, "mae")
        > candidates.goodness(math.nan, "mae")
    )


def test_trainings_have_the_circuits_optimiser_and_many_rows() -> None:
    model = get_model("list-reduction")
    defaults = model.recommended(Capabilities("fixed", "fixed", optimizers=UPDATES))
    fixed = resolve(model.config, defaults, None, ["hidden=16"])
    circuit = resolve(model.config, defaults, None, ["hidden=8", "batch=1", "optimizer=sgd", "lr=0.3"])
    cfg = training_settings(fixed, circuit)
    assert (cfg.model.hidden, cfg.model.batch) == (8, fixed.model.batch) and fixed.model.batch > 1
    assert (cfg.update.optimizer, cfg.update.lr) == ("sgd", 0.3)


@pytest.mark.parametrize("device", [FLOAT32, "fixed:q6.10"])
def test_a_training(device: str) -> None:
    model = get_model("list-reduction")
    defaults = model.recommended(Capabilities("fixed", "fixed", optimizers=UPDATES))
    settings = ["hidden=4", "train_instances=400", "valid_instances=100", "workers=1"]
    found = trained(
        "list-reduction", to_toml(resolve(model.config, defaults, None, settings)), Trial(device, 1, 3)
    )
    assert 0 <= found.score <= 1 and found.broke == "" and found.seconds > 0
    assert (found.held != "") == (device != FLOAT32)


def test_a_training_that_diverges_says_so() -> None:
    model = get_model("list-reduction")
    settings = ["hidden=4", "train_instances=400", "valid_instances=100", "optimizer=sgd", "lr=1e9"]
    text = to_toml(resolve(model.config, model.defaults, None, [*settings, "workers=1"]))
    found = trained("list-reduction", text, Trial(FLOAT32, 1, 3))
    assert math.isnan(found.score) and "diverged" in found.broke
