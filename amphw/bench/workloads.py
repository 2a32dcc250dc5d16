"""The workloads, and the settings under which our side runs them.

A workload is a model with the update intervals that are compared and with settings of ours. The settings are
what the device needs to be fast here; how often parameters are updated is never one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amphw.bench.errors import BenchError
from amphw.ir.config_fields import did_you_mean
from amphw.models import MODELS


@dataclass(frozen=True)
class Workload:
    """name: how `amphw bench` calls it. model: how `amphw train` does.

    every: counted instances between two updates, which are also the peers' batches; the first is the one that
    the ratios are about, and where peers are at their fastest. instances: how many of the training set both
    sides cycle through. settings: like `Model.defaults`. device: for the device alone.
    """

    name: str
    model: str
    every: tuple[int, ...]
    instances: int
    training: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: Mapping[str, Any] = field(default_factory=dict)

    def overrides(self) -> list[str]:
        """The settings as `section.key=value`."""
        return [f"{s}.{key}={value}" for s, fields in self.settings.items() for key, value in fields.items()]


WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "mlp",
            "mnist",
            every=(100,),  # the batch of the papers, and one instance of ours
            instances=50,  # of 100 images: 16 MB, more than any cache holds
            settings={
                # Two layers ahead of one another keep both workers busy; more only make gradients older.
                "train": {"max_active_keys": 4, "max_infer_keys": 4},
                # An instance is nearly a frame already: two of them gain 2 %.
                "device": {"frame_rows": 200},
            },
        ),
        Workload(
            "list-reduction",
            "list-reduction",
            every=(100,),
            instances=200,  # of 100 sequences
            training=200,  # what the model's schedule of learning rates is made for
            settings={
                "train": {"max_active_keys": 8, "max_infer_keys": 8},
                # Two instances a frame: 200 rows are enough for full speed.
                "device": {"frame_rows": 200},
            },
        ),
        Workload(
            "tree-lstm",
            "tree-lstm",
            every=(100, 25),
            instances=2000,
            settings={
                # Enough trees for frames of 30 branch rows; more would leave the cache.
                "train": {"max_active_keys": 32, "max_infer_keys": 64},
                # A frame of the upper levels waits until it is worth its fixed cost.
                "device": {"frame_cap": 64, "min_rows": 16},
            },
        ),
        Workload(
            "ggnn",
            "ggnn",
            every=(100, 20),
            instances=2000,
            settings={
                # A molecule alone offers frames of 18 rows; with more of them their states leave the cache.
                "train": {"max_active_keys": 8, "max_infer_keys": 16},
                "device": {"frame_cap": 64, "frame_rows": 128, "min_rows": 16},
            },
        ),
        Workload(
            "bilstm",
            "bilstm",
            every=(50,),
            instances=1000,
            settings={
                "train": {"max_active_keys": 32, "max_infer_keys": 32},
                # Letters and words come one at a time: without waiting, most frames have one to three rows.
                "device": {"min_rows": 8},
            },
        ),
        Workload(
            "language-model",
            "language-model",
            every=(50,),
            instances=1000,
            settings={"train": {"max_active_keys": 32, "max_infer_keys": 32}},
        ),
        Workload(
            "lm",
            "language-model",  # as a newcomer writes it: its output is a dense layer over the vocabulary
            every=(58,),  # sentences, which are 638 words on average
            instances=1000,
            settings={
                "model": {"softmax": "full", "vocabulary": 20_000},
                "train": {"max_active_keys": 16, "max_infer_keys": 16},
                # A frame streams 5 MB of output weights: it waits for more than one sentence.
                "device": {"min_rows": 48},
            },
        ),
        Workload(
            "transformer",
            "transformer",
            every=(50,),
            instances=1000,
            settings={"train": {"max_active_keys": 16, "max_infer_keys": 16}},
        ),
    )
}


def get_workload(name: str) -> Workload:
    """The workload of that name, whose model exists. Raises BenchError listing those that can be run."""
    there = runnable()
    if name not in WORKLOADS:
        near = did_you_mean(name, [*there, *OTHERS])
        raise BenchError(f"there is no workload {name!r}.{near} {_listed(there)}")
    if name not in there:
        raise BenchError(
            f"the workload {name!r} needs the model {WORKLOADS[name].model!r}, which this version of amphw "
            f"does not have. {_listed(there)}"
        )
    return WORKLOADS[name]


def runnable() -> list[str]:
    """Workloads whose model exists."""
    return [name for name, w in WORKLOADS.items() if w.model in MODELS]


OTHERS = ("frame-overhead", "opencl", "replicas", "exchange", "rtl-mutation")
"""What `amphw bench` runs beside the workloads."""


def _listed(names: Sequence[str]) -> str:
    return f"Workloads: {', '.join([*names, *OTHERS])}."
