"""Models of plain data: what their predictions tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amphw import frontend as fe
from amphw.cpu_runtime import CpuDevice
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.records import RunSummary
from amphw.ir.device import DeviceOptions, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.files import model_in
from amphw.models.plain import NoSettings, Part, PlainModel


class Points(PlainModel[NoSettings]):
    """From one number to three."""

    name, summary, config = "points", "three numbers of one", NoSettings

    def write(self, cfg: NoSettings) -> tuple[Callable[[Any], None], fe.Spec]:
        double = fe.Linear(3, bias=False, init=np.array([[1.0, 2.0, 3.0]]))

        def model(x: Any) -> None:
            fe.regress(double(x.a), x.b)

        return model, fe.Record(a=fe.Floats(1), b=fe.Floats(3))

    def data(self, cfg: NoSettings, seed: int, part: Part) -> Sequence[Any]:
        return [{"a": 2.0, "b": [0.0, 0.0, 0.0]}]


def test_a_prediction_of_several_numbers_is_told_whole() -> None:
    model, cfg = Points(), NoSettings()
    device = ReferenceDevice()
    device.load(model.graph(cfg), {"*": UpdateRule()}, DeviceOptions(updates="off"))
    instance = model.parse(cfg, '{"a": 2.0, "b": [0, 0, 0]}')
    device.submit(0, 0, instance, Mode.PREDICT)
    (report,) = device.drain()
    told = model.explain(cfg, instance, report)
    assert told["prediction"] == [pytest.approx([2.0, 4.0, 6.0])]


def trained(model: PlainModel[Any], *overrides: str) -> RunSummary:
    cfg = resolve(model.config, model.defaults, None, ["trace=false", "epochs=1", *overrides])
    device = CpuDevice()
    try:
        return Trainer(model, cfg, device, None).run()
    finally:
        device.close()


def test_figures_are_those_that_the_loss_reports() -> None:
    assert (Points().metrics, Points().metric) == (("loss", "error"), "error")
    summary = trained(Points())
    assert set(summary.valid) == {"loss", "error"}


class NamedWrongly(Points):
    metrics, metric = ("loss", "accuracy"), "accuracy"


class NoSuchLoss(Points):
    loss_node = "whole"


class WithoutData(Points):
    def data(self, cfg: NoSettings, seed: int, part: Part) -> Sequence[Any]:
        return []


class Lazy(Points):
    def data(self, cfg: NoSettings, seed: int, part: Part) -> Any:
        yield from super().data(cfg, seed, part)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NamedWrongly(), "figures include accuracy, but its loss reports loss, error, prediction"),
        (NoSuchLoss(), "loss_node is 'whole'; its losses are loss"),
        (WithoutData(), "no instances to train on"),
    ],
)
def test_a_model_that_promises_too_much_is_refused(model: PlainModel[Any], message: str) -> None:
    with pytest.raises(AmphwError, match=message):
        trained(model)


def test_data_may_come_one_by_one() -> None:
    assert trained(Lazy()).epochs == 1


def test_a_file_whose_model_is_not_complete_is_told_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "half.py"
    path.write_text(
        "from amphw.models.plain import NoSettings, PlainModel\n"
        "class Half(PlainModel[NoSettings]):\n"
        "    name, config = 'half', NoSettings\n"
        "    def dta(self, cfg, seed, part): ...\n"
    )
    with pytest.raises(ModelError, match="the model Half lacks summary, data, write"):
        model_in(str(path))
    with pytest.raises(ModelError, match="the model Half lacks"):
        model_in(str(path), "Half")


@pytest.mark.parametrize(
    "text,end",
    [
        ("def f():\n    raise ValueError('bad')\nf()\n", "faulty.py:2: ValueError: bad"),
        ("x = (\n", "faulty.py:1: SyntaxError: '(' was never closed"),
    ],
)
def test_a_file_that_cannot_be_loaded_shows_its_own_lines_alone(tmp_path: Path, text: str, end: str) -> None:
    path = tmp_path / "faulty.py"
    path.write_text(text)
    with pytest.raises(ModelError) as refused:
        model_in(str(path))
    assert str(refused.value).endswith(end)
    assert "importlib" not in str(refused.value) and "amphw/models" not in str(refused.value)


def test_explain_names_the_models_lines_alone() -> None:
    told = PlainModel.compiled(Points(), NoSettings()).explain()
    assert "test_plain.py:" in told and "amphw/models/plain.py" not in told
