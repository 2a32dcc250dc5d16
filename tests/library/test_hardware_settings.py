"""Which settings are chosen for a model to fit on a board: the least harmful first, and no given one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

pytest.importorskip("amaranth")

from amphw.host.config import update_for
from amphw.library.hardware_settings import WIDTHS, Recommended, Wanted, recommended
from amphw.models import get_model
from amphw.rtl.build.boards import board
from amphw.rtl.build.fit import FitError


def chosen(model: str, settings: Sequence[str] = (), formats: str | None = None) -> Recommended:
    wanted = Wanted(settings=settings, formats=formats)
    return recommended(get_model(model), board("ulx3s-85f"), wanted)


def test_weights_take_less_memory_before_layers_become_narrower() -> None:
    found = chosen("mnist", ["width=64"])
    assert [each.key for each in found.chosen] == ["model.batch", "formats"]
    assert found.formats.rounding == "stochastic"
    assert found.full is None and {fit.plan.formats.accumulator for fit in found.fits} == {41}


def test_given_formats_stay_as_they_are() -> None:
    with pytest.raises(FitError, match=r"Even with model\.batch=1: It does not fit"):
        chosen("mnist", ["width=64"], "q4.12")


def test_without_velocities_steps_of_every_node_are_as_long() -> None:
    """As those of momentum in the long run, which are ten times those of its first."""
    found = chosen("tree-lstm")
    assert found.cfg.update.optimizer == "sgd"
    with_momentum = get_model("tree-lstm").momentum["update"]
    assert found.cfg.update.lr == pytest.approx(10 * with_momentum["lr"])
    assert update_for(found.cfg, "embed").lr == pytest.approx(10 * with_momentum["nodes"]["embed"]["lr"])
    assert found.full is not None  # layers are narrower, too
    assert all(getattr(found.cfg.model, name) >= 16 for name in WIDTHS if hasattr(found.cfg.model, name))


def test_a_given_rate_of_a_node_stays_as_it_is() -> None:
    found = chosen("tree-lstm", ["update.nodes.embed.lr=2.0"])
    assert update_for(found.cfg, "embed").lr == 2.0
