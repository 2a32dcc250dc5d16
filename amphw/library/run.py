"""What training has come to, as a program in Python has it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from amphw.host import snapshots
from amphw.host.checkpoint import CheckpointError
from amphw.host.checkpointing import CHECKPOINT
from amphw.host.config import RunConfig, resolve
from amphw.host.devices import stands_for
from amphw.host.placed import fitting
from amphw.host.prediction import Predictor, find_checkpoint
from amphw.host.records import EpochRecord, RunSummary
from amphw.host.run_folder import METRICS, SUMMARY, RunFolder
from amphw.host.session import graph_of
from amphw.ir.device import Device, DeviceOptions
from amphw.ir.errors import InstanceError
from amphw.ir.instance import Instance
from amphw.ir.reference import ReferenceDevice, gradients_of, outputs_of, values_of
from amphw.ir.told import prediction_names, predictions
from amphw.ir.update import UpdateRule
from amphw.library.artifacts import REPORT
from amphw.library.data import Data, data_set, has_length
from amphw.library.frames import RunError, frame
from amphw.library.held import HeldDevice
from amphw.library.resuming import saved_settings
from amphw.library.running import one_blas_thread, opened
from amphw.library.saving import Scratch, copied, read_model
from amphw.library.tables import table
from amphw.models import Model, nested_json
from amphw.models.plain import CompiledModel
from amphw.page.numbers import duration, number

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from amphw.library.estimating.results import Estimate, Placement

Arrays = dict[str, dict[str, np.ndarray]]
"""By node and name."""


class Run:
    """A model that was trained, with its records; `amphw.train` and `amphw.load` give one.

    What it predicts with is the checkpoint with the best validation value or, where none was taken, the
    latest; `latest` is the same run with the latest one.
    """

    def __init__(
        self,
        model: Model[Any],
        config: RunConfig[Any],
        folder: RunFolder,
        device: str = "cpu",
        *,
        checkpoint: Path | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        """checkpoint: to predict with. scratch: the folder is in it, and goes with it."""
        self._model, self.config, self._folder, self.device = model, config, folder, device
        self._checkpoint, self._scratch = checkpoint, scratch
        self._held = HeldDevice()

    def __repr__(self) -> str:
        done = self.records
        valid = ", ".join(f"{name} {number(value)}" for name, value in done[-1].valid.items()) if done else ""
        told = f", validation: {valid}" if valid else ""
        return f"Run({self._model.name} on {self.device}: {len(done)} epochs{told})"

    # --- what it was --------------------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Where its files are; of a run without `out`, a folder that goes when the run does."""
        return self._folder.path

    @property
    def report(self) -> Path:
        """The report, an HTML page that opens anywhere. Raises RunError where none was written."""
        if not (path := self._folder.file(REPORT)).exists():
            raise RunError(
                f"the run in {self.folder} has no report: it was trained with report=False, or has not ended"
            )
        return path

    @property
    def summary(self) -> RunSummary:
        """What the run amounts to. Raises RunFolderError for one that has not ended."""
        return RunSummary.from_json(self._folder.read_json(SUMMARY) | {"history": self._records()})

    @property
    def records(self) -> list[EpochRecord]:
        """One for each epoch."""
        return [EpochRecord.from_json(each) for each in self._records()]

    def _records(self) -> list[dict[str, Any]]:
        return self._folder.read_json(METRICS) if self._folder.file(METRICS).exists() else []

    @property
    def history(self) -> pandas.DataFrame:
        """A row for each epoch: what was trained on, losses, validation, throughput, staleness (versions).

        Raises RunError without pandas; `records` has the same.
        """
        return frame((_row(record) for record in self.records), "; .records has the same")

    def plot(self, metric: str | None = None) -> Figure:
        """A validation metric against instances and against training time; without a name the model's own.

        Raises RunError where there is nothing to draw.
        """
        from amphw.host.plots import convergence_figure

        wanted = metric or self._model.metric
        try:
            return convergence_figure(
                {self._model.name: self.records}, self.config.train.target, wanted, self._model.counted
            )
        except ValueError as error:
            names = (
                ", ".join(dict.fromkeys(name for record in self.records for name in record.valid)) or "none"
            )
            raise RunError(f"{error} (the run has {names})") from None

    # --- what it has learnt -------------------------------------------------------------------------

    @property
    def checkpoint(self) -> Path:
        """The file with the parameters. Raises CheckpointError where none was kept."""
        return self._checkpoint or find_checkpoint(self.folder)

    def latest(self) -> Run:
        """The same run with the parameters that it ended with. Raises CheckpointError where they were not
        kept."""
        path = self._folder.file(CHECKPOINT)
        if not path.exists():
            raise CheckpointError(f"the run in {self.folder} has kept no {CHECKPOINT}")
        return Run(
            self._model, self.config, self._folder, self.device, checkpoint=path, scratch=self._scratch
        )

    @property
    def parameters(self) -> Arrays:
        """By node and name, as arrays of numpy of 32 bits; changing them changes nothing here."""
        return values_of(self._reference(np.float32))

    def to_torch(self) -> dict[str, dict[str, Any]]:
        """For each layer that `from_torch` made, by its node, the `state_dict` of its module, with what was
        learnt. Raises FrontendError where there is none, and RunError for a model that is not of the
        language; `parameters` has all values as arrays."""
        if not isinstance(self._model, CompiledModel):
            raise RunError(
                "this model is not of the model language; .parameters has all values, as numpy arrays"
            )
        return self._model.compiled(self.config.model).to_torch(self.parameters)

    def to_onnx(self, path: str | PathLike[str] | None = None) -> Any:
        """The model with what was learnt as an `onnx.ModelProto`, which is also written to `path`.

        Raises FrontendError naming the first node that is not static; see `fe.Compiled.to_onnx`.
        """
        from amphw.frontend.onnx_export import write_onnx

        graph = graph_of(self._model, self.config)
        return write_onnx(graph, self.parameters, path)

    def gradients(self, instance: Any) -> Arrays:
        """By node and name the gradients of one instance's loss, in double precision.

        They are those of the sum of all rows of all losses, with this run's dropout masks of the instance
        with the number 0. Raises InstanceError for one that does not fit.
        """
        return gradients_of(
            self._reference(np.float64), self._instance(instance, 0, answered=True, dtype=np.float64)
        )

    def outputs(self, instance: Any) -> Arrays:
        """By loss and name what losses report of one instance [rows, width], in double precision.

        What losses alone read may be missing; their loss, accuracy and error then mean nothing.
        """
        return outputs_of(
            self._reference(np.float64), self._instance(instance, 0, answered=False, dtype=np.float64)
        )

    def predict(self, instances: Data, device: str | None = None) -> list[dict[str, np.ndarray]]:
        """For each instance what the model reports, by name: of each row a number, or several.

        Of losses beside the main one the names are LOSS.NAME. What losses alone read, such as a label, may be
        missing. The losses themselves, and accuracy or error, are left out: `evaluate` has them. device:
        another one than the run's. Raises InstanceError naming the instance that does not fit, and RunError
        where the model reports nothing else.
        """
        graph, main = self._model.graph(self.config.model), self._model.loss_node
        if not prediction_names(graph, main):
            raise RunError(
                "the model reports nothing but its losses, so there is nothing to predict; let it report a "
                "value, such as fe.report(y=y), or use evaluate(...) and outputs(...), which have the loss"
            )
        try:
            given = [
                self._instance(each, number, answered=False) for number, each in enumerate(_listed(instances))
            ]
        except InstanceError as error:
            one = "; a dict has columns of several instances, of one give a list: predict([instance])"
            raise InstanceError(f"{error}{one * isinstance(instances, Mapping)}") from None
        if not given:
            return []
        with self._predictor(device) as predictor:
            reports = predictor.predict(given)
        if not all(main in report.outputs for report in reports):
            raise RunError(
                f"the device {device or self.device} computes no outputs to predict with; name another one, "
                'as in predict(..., device="cpu")'
            )
        found = [predictions(graph, main, report.outputs) for report in reports]
        return [{k: v[:, 0] if v.shape[1] == 1 else v for k, v in each.items()} for each in found]

    def evaluate(self, instances: Data | None = None, device: str | None = None) -> dict[str, float]:
        """Means of the loss and of the model's metrics over the rows of all instances, by name.

        instances: without them those that the run was validated on, where this is the program that trained
        it. device: another one than the run's. Raises as `predict` does.
        """
        if instances is None and not self._model.validates:
            raise RunError("the run was not validated; give the instances to evaluate on")
        if instances is None:
            train = self.config.train
            held = self._model.validation(self.config.model, train.seed, train.valid_instances)
            given: Iterable[Instance] = (held[k] for k in range(len(held)))
        else:
            given = [self._instance(each, k, answered=True) for k, each in enumerate(_listed(instances))]
        with self._predictor(device) as predictor:
            return predictor.evaluate(given)

    def close(self) -> None:
        """Give back the device that predictions have left loaded; the next one loads it again."""
        self._held.close()

    def save(self, folder: str | Path) -> Path:
        """Copy the run into a new folder, from which `amphw.load` has it again -> the folder.

        Raises RunFolderError where the folder is there, and WriteError for a disk that refuses.
        """
        target = Path(folder).expanduser()
        copied(self.folder, target)
        return target

    def _instance(self, value: Any, place: int, *, answered: bool, dtype: type = np.float32) -> Instance:
        if isinstance(value, Instance):
            return value
        if not isinstance(self._model, CompiledModel):
            if not isinstance(value, str):
                raise RunError(
                    f"instances of {self._model.name} are lines of text, as `amphw predict` takes them; got "
                    f"{type(value).__name__}"
                )
            return self._model.parse(self.config.model, value)
        value = nested_json.loads(value) if isinstance(value, str) else value
        return self._model.compiled(self.config.model).encode(value, place, answered=answered, dtype=dtype)

    @contextmanager
    def _predictor(self, device: str | None) -> Iterator[Predictor]:
        """On another device than the run's, or on the one that the last call has left."""
        import warnings

        name, checkpoint = device or self.device, self.checkpoint

        def loaded(runner: Device) -> Predictor:
            return Predictor(self._model, fitting(self.config, runner)[0], runner, checkpoint)

        with (
            one_blas_thread(),
            self._held.on(
                stands_for(name), checkpoint, lambda: opened(name, warnings.warn), loaded
            ) as predictor,
        ):
            yield predictor

    def _reference(self, dtype: type) -> ReferenceDevice:
        device = ReferenceDevice(dtype=dtype)
        graph = graph_of(self._model, self.config)
        device.load(graph, {"*": UpdateRule()}, DeviceOptions(updates="off", seed=self.config.train.seed))
        snapshots.load(self.checkpoint, device, graph, values_only=True)
        return device

    # --- how fast it would be -----------------------------------------------------------------------

    @property
    def placement(self) -> dict[str, str]:
        """Which of its devices has each node that computes, by the device's label: with the run's settings,
        and the devices that there are now. For one that is not there the cpu stands in."""
        import warnings

        from amphw.engine.lowering.lower import lower
        from amphw.engine.lowering.placing import asked_for, place
        from amphw.host.session import update_rules

        made: Any = opened(self.device, warnings.warn)
        try:
            cfg, _ = fitting(self.config, made)
            graph = graph_of(self._model, cfg)
            lowered, rules = lower(graph), update_rules(cfg, graph)
            if not hasattr(made, "parts"):
                return dict.fromkeys(place(graph, lowered, {}, rules, {}).of, self.device)
            wanted, turns = asked_for(cfg.device.place), made.host_takes_turns
            return dict(place(graph, lowered, made.parts, rules, wanted, turns, made.absent).of)
        finally:
            made.close()

    def estimate(
        self,
        data: Data | None = None,
        *,
        keys: int | None = None,
        replicas: int | None = None,
        instances: int = 32,
        events: bool = False,
        compare: bool = False,
        **said: Any,
    ) -> Estimate:
        """Estimate how fast the model would train, with the run's settings, on a network of devices.

        data: instances to count on; without them those that it was trained on, where this is the program
        that did. said: of devices and links, and the others, as `amphw.estimated` takes them. Raises as that
        does.
        """
        from amphw.library.estimating.ask import estimate_of, said_of, with_data

        made = with_data(self._model, data, self.config)
        return estimate_of(made, self.config, said_of(said), keys, replicas, instances, events, compare)

    def place(
        self,
        device: str | None = None,
        data: Data | None = None,
        *,
        instances: int = 32,
        search: bool = True,
        limits: Mapping[str, int] | None = None,
    ) -> Placement:
        """Where the model's nodes would go on several devices, and how fast that would be.

        device: the devices, such as "cpu,fixed:q4.12"; without them those of the run. data: as for
        `estimate`, the others as for `amphw.placed`, which raises the same.
        """
        from amphw.library.estimating.ask import placement_of, with_data

        made = with_data(self._model, data, self.config)
        return placement_of(made, self.config, device or self.device, instances, search, limits)

    # --- how it is shown ----------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        rows = [("device", self.device), ("epochs", str(len(self.records)))]
        if self.records:
            last = self.records[-1]
            rows += [(f"validation {name}", number(value)) for name, value in last.valid.items()]
            rows += [
                ("training loss", number(last.train_loss)),
                (f"{self._model.counted} a second", number(last.instances_per_s)),
                ("training time", duration(last.seconds)),
            ]
        curve = self._folder.file("convergence.svg")
        drawn = _image(curve) if curve.exists() else ""
        return f"<p><b>{escape(self._model.name)}</b></p>{table((), rows)}{drawn}"


def load(folder: str | Path, *, model: str | Model[Any] | None = None, device: str = "cpu") -> Run:
    """The run in a folder that `amphw.train(out=...)`, `Run.save` or `amphw train` left.

    No code of its author's is run, and none is needed: the folder has the model. model: for a run of a model
    in a file, that file, or the model. device: to predict on. Raises RunFolderError where there is no run,
    ModelError for a model that is not there, and FrontendError for a damaged one.
    """
    found = RunFolder.open(Path(folder).expanduser()).single()
    made = read_model(found, model)
    return Run(made, resolve(made.config, saved_settings(found)), found, device)


def _listed(data: Data) -> Iterable[Any]:
    """The instances, which are not endless."""
    if isinstance(data, Mapping) and not all(has_length(column) for column in data.values()):
        raise RunError("expected several instances, got one; put it into a list, as in predict([instance])")
    found = data_set(data)
    if found is None:
        return data() if callable(data) else data  # type: ignore[return-value]
    return (found[k] for k in range(len(found)))


def _row(record: EpochRecord) -> dict[str, Any]:
    plain = {f.name: getattr(record, f.name) for f in fields(record)}
    values = {name: value for name, value in plain.items() if isinstance(value, int | float)}
    for part in ("train", "valid", "live"):
        values |= {f"{part}_{name}": value for name, value in getattr(record, part).items()}
    return values | {"busy": record.busy}


def _image(svg: Path) -> str:
    """A picture, not its markup, of which JupyterLab leaves the texts alone where it does not trust it."""
    data = b64encode(svg.read_bytes()).decode("ascii")
    return f'<img alt="curve" style="max-width: 100%" src="data:image/svg+xml;base64,{data}"/>'
