"""What is static goes out as ONNX: onnxruntime computes the same of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.frontend.onnx_export import write_onnx
from amphw.host.config import resolve
from amphw.ir.device import DeviceOptions
from amphw.ir.reference import ReferenceDevice, outputs_of, values_of
from amphw.ir.update import UpdateRule
from amphw.models import get_model

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

BATCH = fe.Axis("batch", most=4)
SPEC = fe.Record(
    v=fe.Along(BATCH, fe.Floats(6)),
    k=fe.Along(BATCH, fe.Int(5)),
    image=fe.Along(BATCH, fe.Floats(50)),
    label=fe.Along(BATCH, fe.Int(3)),
    target=fe.Along(BATCH, fe.Floats(3)),
)


def instance(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    return {
        "v": rng.normal(size=(rows, 6)),
        "k": rng.integers(0, 5, rows),
        "image": rng.normal(size=(rows, 50)),
        "label": rng.integers(0, 3, rows),
        "target": rng.normal(size=(rows, 3)),
    }


def ran(made: fe.Compiled, plain: dict[str, Any], path: Path) -> dict[str, np.ndarray]:
    """What onnxruntime makes of the file, by name."""
    made.to_onnx(path)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {
        i.name: np.asarray(plain[i.name], np.float32 if i.type == "tensor(float)" else np.int64)
        for i in session.get_inputs()
    }
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def perceptron() -> Callable[[Any], None]:
    embed, first, top = fe.Embedding(5, 4), fe.Linear(4), fe.Linear(3)

    def model(x: Any) -> None:
        h = fe.dropout(fe.relu(first(x.v.item) + embed(x.k.item)), 0.5)
        fe.classify(top(fe.concat(h, x.v.item[1:3])), x.label.item)

    return model


def convolutions() -> Callable[[Any], None]:
    conv = fe.Conv2d((5, 5, 2), 3, 3, padding=1, activation=fe.relu)
    pool, top = fe.MaxPool(conv.out, 2, stride=2), fe.Linear(3)

    def model(x: Any) -> None:
        fe.classify(top(pool(conv(x.image.item))), x.label.item)

    return model


def functions() -> Callable[[Any], None]:
    """Every function of the language on rows, and a layer of one's own."""
    norm, scale, gate, cell = fe.LayerNorm(), fe.RMSNorm(), fe.Linear(6), fe.GRU(6)
    own = fe.Layer(lambda p, x: fe.concat(x, x * 0.0 + p.row), {"row": (6,)})

    def model(x: Any) -> None:
        v = x.v.item
        parts = (
            *(
                fe.sigmoid(v),
                fe.tanh(v),
                fe.gelu(v),
                fe.exp(v),
                fe.softplus(v),
                fe.sqrt(fe.absolute(v) + 1.0),
            ),
            *(
                fe.leaky_relu(v, 0.2),
                fe.maximum(v, 0.3),
                fe.minimum(v, 0.1),
                fe.softmax(v),
                fe.log_softmax(v),
            ),
            *(norm(v), scale(v), cell(fe.constant(6, 0.5), gate(v)), fe.log(fe.exp(v)), v / (v * v + 1.0)),
        )
        total = parts[0]
        for k, part in enumerate(parts[1:]):
            total = total + part * (0.1 * k)
        y = fe.concat(own(total)[:8], fe.largest(v), fe.mean_columns(v), fe.column(v, x.k.item))
        y = fe.concat(y, fe.above(v[:1], 0.1), fe.number(x.k.item))
        fe.regress(y[:3], x.target.item, name="one")
        fe.loss(fe.sum_columns(y * y), name="two", y=y)

    return model


MODELS = {"perceptron": perceptron, "convolutions": convolutions, "functions": functions}


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("rows", [1, 3])
def test_onnxruntime_computes_the_same(case: str, rows: int, tmp_path: Path) -> None:
    made = fe.compile(MODELS[case](), SPEC)
    plain = instance(rows)
    found = ran(made, plain, tmp_path / "model.onnx")
    told = 0
    for loss, reports in made.outputs(plain).items():
        for name, expected in reports.items():
            if f"{loss}.{name}" in found:
                np.testing.assert_allclose(found[f"{loss}.{name}"], expected, rtol=2e-4, atol=2e-5)
                told += 1
    assert told


def answered_twice() -> Callable[[Any], None]:
    """A target of two losses, and Integers that are the same in every row."""
    a, b = fe.Linear(3), fe.Linear(3)
    c = fe.Layer(lambda p, x: x * p.scale, {"scale": (6,)})

    def model(x: Any) -> None:
        fe.regress(a(x.v.item), x.target.item, name="one")
        fe.regress(b(x.v.item), x.target.item * 2.0, name="two")
        v = c(x.v.item)
        fe.loss(fe.column(v, 2) * 0.5, name="three", y=fe.column(v, x.which))

    return model


def test_what_is_the_same_in_every_row_and_what_is_an_answer(tmp_path: Path) -> None:
    spec = fe.Record(v=fe.Along(BATCH, fe.Floats(6)), target=fe.Along(BATCH, fe.Floats(3)), which=fe.Int(3))
    made = fe.compile(answered_twice(), spec)
    plain = {"v": instance(3)["v"], "target": instance(3)["target"], "which": [1]}
    found = ran(made, plain, tmp_path / "model.onnx")
    assert {i.name for i in made.to_onnx().graph.input} == {"v", "which"}
    expected = made.outputs(plain | {"which": 1})
    for name in ("one.prediction", "two.prediction", "three.y"):
        loss, reported = name.split(".")
        assert found[name].shape[0] == 3
        np.testing.assert_allclose(found[name], expected[loss][reported], rtol=1e-5, atol=1e-6)


def test_what_needs_answers_is_left_out(tmp_path: Path) -> None:
    made = fe.compile(perceptron(), SPEC)
    model = made.to_onnx()
    assert {i.name for i in model.graph.input} == {"v", "k"}
    assert {o.name for o in model.graph.output} == {"top.3", "loss.prediction"}
    found = ran(made, instance(3), tmp_path / "model.onnx")
    assert (found["top.3"].argmax(1) == found["loss.prediction"][:, 0]).all()


def test_what_was_learnt(tmp_path: Path) -> None:
    """A run goes out with its parameters, and is there again with them."""
    data = [instance(2) for _ in range(20)]
    run = amphw.train(perceptron(), data, spec=SPEC, epochs=1, trace=False)
    run.to_onnx(tmp_path / "model.onnx")
    held = {
        t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(tmp_path / "model.onnx").graph.initializer
    }
    for node, parameters in run.parameters.items():
        for name, values in parameters.items():
            np.testing.assert_array_equal(held[f"{node}.{name}"], values)


def test_it_comes_back(tmp_path: Path) -> None:
    """What has gone out is imported again, and computes the same."""
    made = fe.compile(perceptron(), SPEC)
    made.to_onnx(tmp_path / "model.onnx")
    net = fe.from_onnx(tmp_path / "model.onnx", outputs=["top.3"])

    def model(x: Any) -> None:
        fe.classify(net(x.v, x.k), x.label.item)

    again = fe.compile(model, SPEC)
    plain = instance(3)
    np.testing.assert_allclose(
        again.outputs(plain)["loss"]["loss"], made.outputs(plain)["loss"]["loss"], rtol=1e-6
    )


@pytest.mark.parametrize("name", ["mnist", "ako-mnist"])
def test_models_of_the_project(name: str) -> None:
    model = get_model(name)
    cfg = resolve(model.config, model.defaults, None, ["sample=true", "batch=5"]).model
    graph, device = model.graph(cfg), ReferenceDevice()
    device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off"))
    made = write_onnx(graph, values_of(device))
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    instance = model.validation(cfg, 0, 10)[0]
    (found,) = session.run(["loss.prediction"], {"image": instance.data["image"]})
    np.testing.assert_array_equal(found, outputs_of(device, instance)["loss"]["prediction"])


def test_control_flow_is_refused() -> None:
    cell = fe.GRU(4)

    def model(x: Any) -> None:
        fe.classify(fe.Linear(3)(fe.fold(cell, fe.constant(4), x.v)), x.k)

    made = fe.compile(model, fe.Record(v=fe.Sequence(fe.Floats(6), most=3), k=fe.Int(3)))
    with pytest.raises(fe.FrontendError, match=r"the node '.*' cannot become ONNX: .*a model without"):
        made.to_onnx()
