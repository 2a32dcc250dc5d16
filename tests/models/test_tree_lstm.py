"""The Tree-LSTM: its graph computes the recursion, its data comes whole, its text reads back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amphw.cpu_runtime import CpuDevice
from amphw.data.sst import Tree, parse_tree, sample_sst
from amphw.engine.lowering.lower import lower
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.prediction import predict
from amphw.host.run_folder import RunFolder
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import DeviceOptions, Mode, Report
from amphw.ir.errors import InstanceError
from amphw.ir.instance import Instance
from amphw.ir.passes import fuse
from amphw.ir.reference import ReferenceDevice
from amphw.ir.update import UpdateRule
from amphw.models import ModelError
from amphw.models.tree_lstm import TreeLSTM, TreeLSTMConfig
from tests.conformance import harness

MODEL = TreeLSTM()
SMALL = TreeLSTMConfig(hidden=3, embedding=4, vocabulary=12, sample=True)
SHAPES = (
    "(3 film)",
    "(3 (2 a) (4 film))",
    "(1 (2 not) (4 (3 (2 very) (3 good)) (2 film)))",
    "(0 (0 (0 (0 bad) (2 and)) (1 dull)) (2 story))",
    "(2 (2 (2 the) (2 film)) (3 (2 is) (3 (3 good) (2 and))))",
)
STEP = 1e-5

Parameters = Mapping[str, Mapping[str, np.ndarray]]


def drawn(cfg: TreeLSTMConfig = SMALL) -> list[Instance]:
    """Every shape of tree, and generated ones, numbered."""
    instances = [MODEL.parse(cfg, text) for text in SHAPES] + MODEL.training(cfg, 1, 1, 4)[:]
    for number, instance in enumerate(instances):
        instance.number = number
    return instances


def loaded(cfg: TreeLSTMConfig = SMALL, dtype: type = np.float32) -> ReferenceDevice:
    device = ReferenceDevice(dtype=dtype)
    device.load(MODEL.graph(cfg), {"*": UpdateRule()}, DeviceOptions(2, 2, updates="off", seed=3))
    return device


def run(device: ReferenceDevice, instance: Instance, mode: Mode = Mode.PREDICT) -> Report:
    device.submit(0, 1, instance, mode)
    (report,) = device.drain()
    return report


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def logits(p: Parameters, instance: Instance) -> np.ndarray:
    """[nodes, 5], node by node as Tai et al. write it down (their equations 9 to 14 for two children)."""
    word, child = instance.tables["word"], instance.tables["child"]
    hidden = p["head"]["W"].shape[0]
    h: list[np.ndarray] = []
    c: list[np.ndarray] = []
    for x in p["embed"]["E"][word]:
        i, o, u = np.split(x @ p["leaf"]["W"] + p["leaf"]["b"], 3)
        c.append(sigmoid(i) * np.tanh(u))
        h.append(sigmoid(o) * np.tanh(c[-1]))
    for left, right in child:
        z = np.concatenate([h[left], h[right]]) @ p["branch"]["W"] + p["branch"]["b"]
        i, o, forget_left, forget_right, u = (z[k * hidden : (k + 1) * hidden] for k in range(5))
        c.append(sigmoid(i) * np.tanh(u) + sigmoid(forget_left) * c[left] + sigmoid(forget_right) * c[right])
        h.append(sigmoid(o) * np.tanh(c[-1]))
    return np.stack(h) @ p["head"]["W"] + p["head"]["b"]


def losses(p: Parameters, instance: Instance) -> np.ndarray:
    y = logits(p, instance)
    return np.log(np.exp(y).sum(axis=1)) - y[np.arange(len(y)), instance.tables["label"]]


def test_the_graph_computes_the_recursion() -> None:
    device = loaded(dtype=np.float64)
    p = {name: node.values for name, node in device.parameters().items()}
    for instance in drawn():
        report = run(device, instance)
        y = logits(p, instance)
        assert report.rows == {"loss": instance.attrs["nodes"]}
        np.testing.assert_allclose(report.outputs["loss"]["loss"][:, 0], losses(p, instance), rtol=1e-9)
        assert (report.outputs["loss"]["prediction"][:, 0] == y.argmax(axis=1)).all()
        assert report.sums["loss"]["accuracy"] == (y.argmax(axis=1) == instance.tables["label"]).sum()


def test_gradients_agree_with_central_differences_of_the_recursion() -> None:
    device, instances = loaded(dtype=np.float64), drawn()
    for instance in instances:
        run(device, instance, Mode.TRAIN)
    p = {name: dict(node.values) for name, node in device.parameters().items()}
    rng = np.random.default_rng(0)
    for node, held in device.parameters().items():
        for name, gradient in held.gradients.items():
            largest = np.argsort(-np.abs(gradient), axis=None)[:2]
            for flat in {*largest.tolist(), *rng.integers(0, gradient.size, 3).tolist()}:
                entry = np.unravel_index(flat, gradient.shape)
                kept, totals = p[node][name], []
                for step in (STEP, -STEP):
                    p[node][name] = kept.copy()
                    p[node][name][entry] += step
                    totals.append(sum(losses(p, i).sum() for i in instances))
                p[node][name] = kept
                expected = (totals[0] - totals[1]) / (2 * STEP)
                assert gradient[entry] == pytest.approx(expected, rel=1e-5, abs=1e-8), (node, name, entry)


def test_the_multi_core_device_agrees_with_the_reference() -> None:
    graph, instances = MODEL.graph(SMALL), drawn()
    expected = harness.reference(graph, instances)
    device = CpuDevice()
    try:
        found = harness.run(device, graph, instances, workers=2)
    finally:
        device.close()
    harness.assert_same(found, expected)
    assert found.forward == found.backward


def test_a_cpu_runs_a_firing_a_phrase_and_else_one_a_tree() -> None:
    lowered = lower(fuse(MODEL.graph(SMALL)))
    assert [u.name for u in lowered.units] == ["start", "embed", "leaf", "branch", "group_n", "head", "loss"]
    states = {u.name: u.behaviour.state.names for u in lowered.units}
    assert states.pop("branch") == ("n",)
    assert set(states.values()) == {()}
    (branch,) = (u for u in lowered.units if u.name == "branch")
    to_head = [p for p in lowered.paths if lowered.units[p.target].name == "group_n"]
    assert {branch.behaviour.program.outputs_types[p.value].width for p in to_head} == {SMALL.hidden}


@pytest.mark.parametrize("kind", ["dropout", "recurrent_dropout"])
def test_dropout_acts_in_training_alone(kind: str) -> None:
    cfg = replace(SMALL, **{kind: 0.5})
    plain, dropping = loaded(), loaded(cfg)
    instance = drawn()[-1]
    inferred = run(plain, instance).sums["loss"]["loss"]
    assert run(dropping, instance).sums["loss"]["loss"] == pytest.approx(inferred, rel=1e-6)
    assert abs(run(dropping, instance, Mode.TRAIN).sums["loss"]["loss"] - inferred) > 1e-3


def test_a_run_starts_at_word_vectors_and_says_so(tmp_path: Path) -> None:
    """A checkpoint has them, so the file is not needed again."""
    assert "start at random" in MODEL.notes(SMALL)[0]
    path, folder = tmp_path / "vectors.txt", RunFolder(tmp_path / "run")
    path.write_text("film 1 2 3 4\nAardvark 9 9 9 9\nstory 0.5 0.5 0.5 0.5\n")
    small = ["hidden=3", "embedding=4", "vocabulary=12", "sample=true", f"glove={path}"]
    brief = ["epochs=1", "train_instances=20", "valid_instances=5", "lr=1e-9", "update.nodes.embed.lr=1e-9"]
    cfg = resolve(TreeLSTMConfig, MODEL.defaults, None, [*small, *brief])
    device = CpuDevice()
    try:
        Trainer(MODEL, cfg, device, folder).run()
        rows = device.parameters()["embed"].values["E"]
    finally:
        device.close()
    assert sorted(row.round(6).tolist() for row in rows if row.round(6).max() in (0.5, 4)) == [
        [0.5, 0.5, 0.5, 0.5],
        [1, 2, 3, 4],
    ]
    assert f"2 of 12 embeddings start at {path}" in MODEL.notes(cfg.model)[0]
    path.unlink()
    device = CpuDevice()
    try:
        predicted = predict(MODEL, cfg, device, folder.path, [MODEL.parse(cfg.model, SHAPES[0])])
        assert len(list(predicted)) == 1
    finally:
        device.close()


def test_an_epoch_holds_every_tree_once_in_an_order_of_its_own() -> None:
    def epoch(seed: int, number: int, limit: int = 0) -> list[bytes]:
        return [i.tables["word"].tobytes() for i in MODEL.training(SMALL, seed, number, limit)]

    assert len(epoch(1, 1)) == len(sample_sst(2000, 2)) == MODEL.training(SMALL, 1, 1).size
    assert epoch(1, 1, 50) == epoch(1, 1, 50)
    assert epoch(1, 1, 50) != epoch(1, 2, 50)
    assert sorted(epoch(1, 1)) == sorted(epoch(1, 2))
    assert MODEL.validation(SMALL, 1).size == 500
    assert [i.attrs for i in MODEL.validation(SMALL, 1, 9)] == [
        i.attrs for i in MODEL.validation(SMALL, 1, 9)
    ]


def trained(seed: int, count: int) -> list[Tree]:
    """The generated trees that the first epoch begins with."""
    trees = sample_sst(2000, 2 * seed)
    return [trees[i] for i in np.random.default_rng([seed, 1]).permutation(2000)[:count]]


def test_words_beyond_the_vocabulary_share_a_row() -> None:
    known = MODEL.parse(SMALL, "(2 (2 the) (2 film))").tables["word"]
    strange = MODEL.parse(SMALL, "(2 (2 colourless) (2 green))").tables["word"]
    assert known.min() > 0 and strange.tolist() == [0, 0]
    assert known.max() < SMALL.vocabulary


def test_a_word_has_the_same_row_whatever_the_seed() -> None:
    for seed in (0, 1):
        for instance, tree in zip(MODEL.training(SMALL, seed, 1)[:50], trained(seed, 50), strict=True):
            text = "(2 (2 x) " * (len(tree.words) - 1) + f"(2 {tree.words[-1]})" + ")" * (len(tree.words) - 1)
            assert MODEL.parse(SMALL, text).tables["word"][-1] == instance.tables["word"][-1]


def test_a_tree_that_contradicts_itself_is_refused() -> None:
    instance = MODEL.parse(SMALL, SHAPES[-1])
    instance.tables["place"][0] = 1
    with pytest.raises(InstanceError, match="axiom 'child inverse of parent and place' fails"):
        loaded().submit(0, 1, instance, Mode.TRAIN)


def test_a_text_reads_as_a_tree_and_its_prediction_is_explained() -> None:
    device = loaded()
    instance = MODEL.parse(SMALL, "(3 (2 a) (4 film))")
    told = MODEL.explain(SMALL, instance, run(device, instance))
    assert (told["label"], len(told["nodes"])) == (3, 3)
    assert told["prediction"] == told["nodes"][-1]
    assert told["sentiment"] in ("very negative", "negative", "neutral", "positive", "very positive")
    assert 0 < told["probability_of_label"] < 1

    unlabelled = MODEL.parse(SMALL, "(? (? a) (? film))")
    assert MODEL.explain(SMALL, unlabelled, run(device, unlabelled)).keys() == {
        "prediction",
        "sentiment",
        "nodes",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a good film",
            "column 1: 'a' stands outside the brackets; expected a binary tree in brackets, such as",
        ),
        ("(3 (2 a) (3 good)", "the tree is not complete: 1 of its brackets are still open; expected"),
        ("(2 (2 x) " * 200 + "(2 x)" + ")" * 200, "the tree has 201 words, allowed are 56"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        MODEL.parse(SMALL, text)
    assert str(caught.value).startswith(message)


def test_the_longest_tree_that_is_allowed_runs() -> None:
    text = "(2 (2 x) " * 55 + "(2 x)" + ")" * 55
    assert len(parse_tree(text).words) == SMALL.words == 56
    assert run(loaded(), MODEL.parse(SMALL, text)).rows == {"loss": 111}


def test_the_configuration_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"\[model\]: vocabulary is 0, expected an integer of 1 or more"):
        resolve(TreeLSTMConfig, {}, None, ["vocabulary=0"])
    with pytest.raises(ConfigError, match=r"\[model\]: recurrent_dropout is -0\.1, expected a number"):
        resolve(TreeLSTMConfig, {}, None, ["recurrent_dropout=-0.1"])
    with pytest.raises(ConfigError, match=r"\[model\]: dropout is 1\.0, expected a number from 0 to below 1"):
        resolve(TreeLSTMConfig, {}, None, ["dropout=1.0"])


def test_the_full_graph_has_the_widths_of_the_paper() -> None:
    graph = MODEL.graph(TreeLSTMConfig())
    shapes = {name: graph.nodes[name].params[0].shape for name in graph.parameterised}
    assert shapes == {"embed": (8736, 300), "leaf": (300, 450), "branch": (300, 750), "head": (150, 5)}


def test_it_learns_the_generated_trees() -> None:
    size = ["hidden=16", "embedding=16", "vocabulary=40", "sample=true", "train_instances=600"]
    size += ["valid_instances=100", "epochs=6"]
    size += ["target=none"]  # it would end when it has just reached that
    cfg = resolve(MODEL.config, MODEL.defaults, None, size)
    summary = Trainer(MODEL, cfg, CpuDevice(), None).run()
    assert summary.history[-1].train_loss < 0.6 * summary.history[0].train_loss
    assert summary.valid["accuracy"] > 0.8
