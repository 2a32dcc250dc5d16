"""`amphw.train`: what it takes, what it tells, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amphw
from amphw import frontend as fe
from amphw.data.cache import DataError
from amphw.frontend.source import FrontendError
from amphw.ir.config_fields import ConfigError
from amphw.ir.errors import InstanceError
from amphw.models.base import ModelError
from tests.library.parity import QUIET, SPEC, instances, model


def trained(*args: Any, **settings: Any) -> amphw.Run:
    return amphw.train(*args, **{**QUIET, **settings})


def test_a_function_learns_from_a_list() -> None:
    run = trained(model(), instances(1500), spec=SPEC, epochs=10, lr=0.01)
    assert run.evaluate(instances(200, seed=1))["accuracy"] > 0.9
    right = [
        found["prediction"][0] == x["odd"]
        for found, x in zip(run.predict(instances(50, 2)), instances(50, 2), strict=True)
    ]
    assert np.mean(right) > 0.9


def test_a_seed_decides_everything_on_a_device_that_is_deterministic() -> None:
    def parameters(seed: int) -> dict[str, Any]:
        settings = {"device": "reference", "mode": "sync", "seed": seed, "epochs": 1}
        return trained(model(4), instances(60), spec=SPEC, **settings).latest().parameters

    first, again, other = parameters(3), parameters(3), parameters(4)
    for node, values in first.items():
        for name, value in values.items():
            np.testing.assert_array_equal(value, again[node][name])
    assert not np.array_equal(first["head"]["W"], other["head"]["W"])


def test_settings_are_those_of_the_command_line() -> None:
    run = trained(
        model(),
        instances(80),
        spec=SPEC,
        **{"update.nodes.head.lr": 0.5},
        update={"optimizer": "sgd"},
        workers=1,
    )
    cfg = run.config
    assert cfg.node_updates == {"head": {"lr": 0.5}} and cfg.update.optimizer == "sgd"
    assert cfg.device.workers == 1 and cfg.train.epochs == 2 and cfg.train.seed == 0
    of_numpy = {"epochs": np.int64(1), "update": {"lr": np.float64(0.01)}, "seed": np.int64(3)}
    cfg = trained(model(), instances(80), spec=SPEC, **of_numpy).config
    assert (cfg.train.epochs, cfg.train.seed, cfg.update.lr) == (1, 3, 0.01) and type(cfg.update.lr) is float
    with pytest.raises(ConfigError, match=r"the setting epoch: no section has a key epoch\. Did you mean"):
        trained(model(), instances(80), spec=SPEC, epoch=3)
    with pytest.raises(ConfigError, match="the setting epochs: train.epochs is 0, expected an integer"):
        trained(model(), instances(80), spec=SPEC, epochs=0)
    with pytest.raises(ConfigError, match="checkpoint_every is 0"):
        trained(model(), instances(80), spec=SPEC, checkpoint_every=0)


def test_callbacks_are_told_of_every_epoch_and_may_stop_the_run(tmp_path: Path) -> None:
    seen = list[int]()

    def callback(epoch: amphw.Epoch) -> None:
        seen.append(epoch.record.epoch)
        assert len(json.loads((tmp_path / "run" / "metrics.json").read_text())) == len(seen), "it is saved"
        if len(seen) == 3:
            epoch.stop()

    run = trained(model(), instances(80), spec=SPEC, epochs=50, callbacks=[callback], out=tmp_path / "run")
    assert seen == [1, 2, 3] and run.summary.stopped_by == "interrupt"


def test_what_a_callback_raises_ends_the_run(tmp_path: Path) -> None:
    def callback(epoch: amphw.Epoch) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trained(model(), instances(80), spec=SPEC, callbacks=[callback], out=tmp_path / "run")
    assert len(amphw.load(tmp_path / "run").records) == 1


def test_an_interrupt_ends_training_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def stopping(stop: Any, note: Any) -> Iterator[None]:
        stop()
        yield

    monkeypatch.setattr("amphw.library.running.stopping", stopping)
    run = trained(model(), instances(80), spec=SPEC, epochs=50)
    assert run.summary.stopped_by == "interrupt" and run.summary.messages["lost"] == 0


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    data, out = instances(80), tmp_path / "run"
    trained(model(), data, spec=SPEC, out=out, epochs=2)
    run = trained(model(), data, spec=SPEC, out=out, resume=True, epochs=5)
    assert [record.epoch for record in run.records] == [1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="name it: out="):
        trained(model(), data, spec=SPEC, resume=True)


def test_streams_are_taken_so_many_an_epoch() -> None:
    def endless() -> Iterator[Any]:
        yield from iter(instances(10**4))

    run = trained(model(), endless, spec=SPEC, train_instances=50, epochs=3)
    assert [record.instances for record in run.records] == [50, 100, 150]
    ended = trained(model(), iter(instances(120)), spec=SPEC, train_instances=50, valid=None, epochs=9)
    assert [record.instances for record in ended.records] == [50, 100, 120]
    assert ended.summary.stopped_by == "data"
    with pytest.raises(DataError, match="give train_instances=N"):
        trained(model(), endless, spec=SPEC)


def test_without_validation_the_latest_parameters_are_the_ones() -> None:
    run = trained(model(), instances(60), spec=SPEC, valid=None)
    assert run.records[-1].valid == {} and run.checkpoint == run.latest().checkpoint
    with pytest.raises(amphw.AmphwError, match="was not validated"):
        run.evaluate()
    with pytest.raises(ConfigError, match="nothing to validate on"):
        trained(model(), instances(60), spec=SPEC, valid=None, target=0.9)


def test_validation_may_have_data_of_its_own() -> None:
    valid = instances(40, seed=5)
    run = trained(model(), instances(60), spec=SPEC, valid=valid)
    assert run.records[0].instances == 60
    assert run.evaluate()["accuracy"] == run.evaluate(valid)["accuracy"]
    stream = trained(model(), instances(60), spec=SPEC, valid=iter(valid), valid_instances=40)
    assert stream.evaluate()["accuracy"] == stream.evaluate(valid)["accuracy"]
    with pytest.raises(DataError, match="valid_instances=N"):
        trained(model(), instances(60), spec=SPEC, valid=iter(valid))
    with pytest.raises(DataError, match="valid is 1"):
        trained(model(), instances(60), spec=SPEC, valid=1.0)


def test_models_of_amphw_are_trained_by_name() -> None:
    small = {"hidden": 8, "train_instances": 200, "valid_instances": 100, "target": None}
    run = trained("list-reduction", **small)
    assert 0 <= run.evaluate()["accuracy"] <= 1
    assert "prediction" in run.predict(["range 3 1 4", "mean 2 2"])[0]
    assert run.gradients("range 3 1 4").keys() == run.parameters.keys()
    with pytest.raises(DataError, match="data of its own"):
        trained("list-reduction", instances(3))
    with pytest.raises(ModelError, match="Did you mean list-reduction"):
        trained("list-reductio")


def test_every_loss_has_its_figures() -> None:
    tag, whole, embed = fe.Linear(2), fe.Linear(1), fe.Embedding(2, 4)

    def two(x: Any) -> None:
        h = embed(x.bits)
        fe.classify(tag(h), x.bits.item)
        fe.regress(whole(fe.reduce(h)), fe.number(x.odd), name="count")

    run = trained(two, instances(80), spec=SPEC)
    assert list(run.records[1].valid) == ["loss", "accuracy", "count.loss", "count.error"]
    assert "count.error" in run.records[1].train
    assert run.evaluate(instances(9))["count.loss"] > 0


def test_mistakes_are_told_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    bad = [{"bits": [1, 2], "odd": 0}] * 20
    for raised, told, args in (
        (InstanceError, r"bits\[1\] is 2, allowed is 0\.\.1", (model(), bad, SPEC)),
        (DataError, "what do instances look like", (model(), instances(9), None)),
        (DataError, "what is it trained on", (model(), None, SPEC)),
        (DataError, "the model is 7", (7, instances(9), SPEC)),
        (FrontendError, "has no loss", (lambda x: None, instances(9), SPEC)),
    ):
        with pytest.raises(raised, match=told):
            trained(args[0], args[1], spec=args[2], out=out)
    assert not out.exists()
    compiled = fe.compile(model(), SPEC)
    with pytest.raises(DataError, match="is compiled"):
        trained(compiled, instances(9), spec=fe.Record(odd=fe.Int(2)))
    assert len(trained(compiled, instances(30)).records) == 2


def test_an_instance_that_does_not_fit_is_told_by_its_number_in_the_data() -> None:
    data = instances(60)
    data[41]["bits"] = [5]
    with pytest.raises(InstanceError, match=r"instance 41: bits\[0\] is 5"):
        trained(model(), data, spec=SPEC)
    with pytest.raises(InstanceError, match="instance 41"):
        trained(model(), iter(data), spec=SPEC, train_instances=50, valid=0.1)


def test_a_function_whose_losses_have_names_is_trained_by_the_first() -> None:
    tag, embed = fe.Linear(2), fe.Embedding(2, 4)

    def named(x: Any) -> None:
        fe.classify(tag(embed(x.bits)), x.bits.item, name="parts")

    run = trained(named, instances(60), spec=SPEC)
    assert list(run.records[1].valid) == ["loss", "accuracy"]
    assert run.predict(instances(2))[0].keys() == {"prediction"}


def test_a_run_that_was_interrupted_in_a_stream_goes_on_with_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = list[Any]()

    @contextmanager
    def stopping(stop: Any, note: Any) -> Iterator[None]:
        stops[:] = [stop]
        yield

    def endless() -> Iterator[Any]:
        for number, each in enumerate(instances(200)):
            if number == 45:
                stops[0]()
            yield each

    monkeypatch.setattr("amphw.library.running.stopping", stopping)
    settings = {"spec": SPEC, "train_instances": 60, "valid": None, "out": tmp_path / "run"}
    first = trained(model(), endless(), **settings)
    assert first.records == []
    run = trained(model(), iter(instances(20)), resume=True, **settings)
    assert [record.epoch for record in run.records] == [1] and run.summary.stopped_by == "data"


def test_a_run_of_another_function_is_not_gone_on_with_and_stays_as_it_was(tmp_path: Path) -> None:
    out, data = tmp_path / "run", instances(60)
    run = trained(model(8), data, spec=SPEC, out=out)
    with pytest.raises(amphw.AmphwError, match="another graph"):
        trained(model(4), data, spec=SPEC, out=out, resume=True, epochs=3)
    assert amphw.load(out).predict(data[:1])[0]["prediction"] == run.predict(data[:1])[0]["prediction"]
    with pytest.raises(amphw.AmphwError, match=r"train\.seed = 0, this one has 5"):
        trained(model(8), data, spec=SPEC, out=out, resume=True, epochs=3, seed=5)


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_afresh(tmp_path: Path) -> None:
    out, data = tmp_path / "run", instances(60)
    trained(model(), data, spec=SPEC, out=out)
    for name in ("checkpoint.safetensors", "best.safetensors", "summary.json", "metrics.json"):
        (out / name).unlink()
    with pytest.warns(UserWarning, match="begins afresh"):
        run = trained(model(), data, spec=SPEC, out=out, resume=True)
    assert len(run.records) == 2


def test_what_cannot_be_called_or_tracked_is_refused_at_once() -> None:
    seen = list[int]()
    run = trained(model(), instances(60), spec=SPEC, callbacks=lambda epoch: seen.append(epoch.record.epoch))
    assert seen == [1, 2] == [record.epoch for record in run.records]
    with pytest.raises(ConfigError, match="a callback is called"):
        trained(model(), instances(60), spec=SPEC, callbacks=[3])
    pytest.importorskip("tensorboard")
    with pytest.raises(amphw.AmphwError, match="name one: out="):
        trained(model(), instances(60), spec=SPEC, track="tensorboard")


def test_blas_has_its_threads_back() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads() -> list[int]:
        return [each["num_threads"] for each in threadpool_info()]

    with threadpool_limits(limits=2):
        before = threads()
        run = trained(model(), instances(60), spec=SPEC)
        run.predict(instances(2))
        run.evaluate()
        assert threads() == before


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    trained(model(), instances(30), spec=SPEC, out=tmp_path / "run")
    with pytest.raises(amphw.AmphwError, match="already holds a run"):
        trained(model(), instances(30), spec=SPEC, out=tmp_path / "run")
