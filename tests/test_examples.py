"""The examples: each is one file, a model in the language, which trains through the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.models import get_model
from tests.daily import daily

FOLDER = Path(__file__).parents[1] / "examples"
# Fewer epochs than by default, and far more than it takes to be above these accuracies.
LEARNS = {
    "depth": (["epochs=2", "model.sample=true"], 0.9),
    "experts": (["epochs=5"], 0.9),
    "graph_attention": (["epochs=1"], 0.6),
    "listops": (["epochs=3", "model.depth=2", "train_instances=4000"], 0.4),
    "parser": (["epochs=5"], 0.6),
    "paths": (["epochs=2"], 0.8),
    "pointer": (["epochs=2"], 0.8),
    "ponder": (["epochs=9"], 0.65),
    "transformer": (["epochs=1"], 0.7),
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(LEARNS)


@pytest.mark.parametrize("name", daily(["ponder"], sorted({*LEARNS} - {"ponder"})))
def test_an_example_learns(name: str) -> None:
    overrides, accuracy = LEARNS[name]
    model = get_model(str(FOLDER / f"{name}.py"))
    cfg = resolve(model.config, model.defaults, None, ["trace=false", *overrides])
    device = CpuDevice()
    try:
        summary = Trainer(model, cfg, device, None).run()
    finally:
        device.close()
    assert summary.valid["accuracy"] > accuracy
    assert summary.messages["lost"] == 0


@pytest.mark.parametrize("name", LEARNS)
def test_an_example_is_short(name: str) -> None:
    code = (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 60
