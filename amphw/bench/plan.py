"""What was asked for, checked before anything is started, and the files that all sides read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from amphw.bench.errors import BenchError
from amphw.bench.export import export_instances, export_parameters
from amphw.bench.forms import BATCHED, FLOAT32, FORMS, PER_INSTANCE, Form
from amphw.bench.forms import forms as forms_of
from amphw.bench.processor import multiplies_bfloat16
from amphw.bench.sides import PEERS
from amphw.bench.workloads import Workload
from amphw.host.config import RunConfig, resolve
from amphw.host.devices import device_entries, make_device
from amphw.host.run_model import chosen_instances
from amphw.host.session import update_rules
from amphw.models import get_model

BRIEF_S = 1.0
_LOOKED_AT = 20

Say = Callable[[str], None]
"""Told what is going on, a line at a time."""


@dataclass(frozen=True)
class Plan:
    """A benchmark as asked for.

    overrides: settings of the configuration, the user's. every: instances between two updates. peer_forms: if
    not empty, the only ones that are tried. keys: of ours in flight; 1 compares with peers that take one
    instance at a time; 0: as the workload has it. peer_device: where peers compute, as PyTorch calls it.
    """

    workload: Workload
    overrides: Sequence[str]
    every: Sequence[int]
    peers: Sequence[str]
    peer_python: str
    peer_forms: Sequence[str] = ()
    seconds: float = 2.0
    rounds: int = 7
    keys: int = 0
    inference: bool = True
    device: str = "cpu"
    peer_device: str = "cpu"

    def __post_init__(self) -> None:
        for name in self.peers:
            if name not in PEERS:
                raise BenchError(f"there is no peer {name!r}. Peers: {', '.join(PEERS)}.")
        known = [form.name for form in FORMS.get(self.workload.name, ())]
        for name in self.peer_forms:
            if name not in known:
                raise BenchError(
                    f"{self.workload.name} has no form {name!r}. Forms: {', '.join(known) or 'none'}."
                )
        twice = [n for n in dict.fromkeys(self.every) if self.every.count(n) > 1]
        if twice:
            raise BenchError(f"--every has {', '.join(map(str, twice))} twice; give each interval once.")
        if self.device.partition(":")[0] not in device_entries():
            make_device(self.device)  # raises, with the names that there are

    @property
    def brief(self) -> float:
        """Seconds of a run that is not measured, or only to choose by."""
        return min(BRIEF_S, self.seconds)

    @cached_property
    def model(self) -> Any:
        return get_model(self.workload.model)

    @cached_property
    def settings(self) -> list[str]:
        """All overrides: the workload's, then the user's, then what this benchmark is about."""
        keys = [f"train.max_active_keys={self.keys}"] if self.keys else []
        return [*self.workload.overrides(), *self.overrides, *keys]

    @cached_property
    def cfg(self) -> RunConfig[Any]:
        return resolve(self.model.config, self.model.defaults, None, self.settings)

    @property
    def precision(self) -> str:
        """What our products are computed in."""
        precision: str = self.cfg.device.precision
        return precision

    def our_spec(self, every: int) -> dict[str, Any]:
        """What `amphw.bench.ours` is told."""
        return {
            "model": self.workload.model,
            "overrides": self.settings,
            "instances": self.workload.instances,
            "device": self.device,
            "settings": dict(self.workload.device),
            "every": every,
            "warm": self.brief,
        }

    def forms(self, peer: str) -> list[Form]:
        """The forms of a peer that count in this comparison."""
        alone = self.keys == 1 and any(f.kind == PER_INSTANCE for f in FORMS.get(self.workload.name, ()))
        found = forms_of(self.workload.name, peer, PER_INSTANCE if alone else BATCHED)
        there = [f for f in found if not f.graphed or self.peer_device != "cpu"]
        there = [f for f in there if f.precision in (FLOAT32, self.precision)]
        return [f for f in there if not self.peer_forms or f.name in self.peer_forms]

    def others(self, peer: str) -> list[Form]:
        """Forms that do not count, but are worth knowing."""
        counted = self.forms(peer)
        there = [f for f in forms_of(self.workload.name, peer) if not f.graphed and f not in counted]
        # Of batches, those alone that are of another precision than ours.
        found = [f for f in there if f.kind != BATCHED or (f.precision != FLOAT32 and self.keys != 1)]
        return [f for f in found if not self.peer_forms or f.name in self.peer_forms]


def check_every(plan: Plan) -> None:
    """Check that the intervals are whole numbers of instances, as sides update after whole instances only.

    A record would otherwise be labelled with an interval that nobody kept. Raises BenchError.
    """
    model, cfg = plan.model, plan.cfg
    model.prepare(cfg.model, cfg.train.seed)
    # The leftovers of an epoch make instances that count less, hence the largest of several.
    size = max(model.size(instance) for instance in chosen_instances(model, cfg, _LOOKED_AT))
    for every in plan.every:
        if every % size:
            raise BenchError(
                f"--every {every} is no multiple of {size}, the {model.counted} that an instance of "
                f"{plan.workload.name} holds; give one, such as {-(-every // size) * size}."
            )


def worth_trying(plan: Plan, form: Form) -> bool:
    """False for a form of bfloat16 where the processor has no instructions for it, unless it is named."""
    if form.precision == FLOAT32 or plan.peer_device != "cpu" or form.name in plan.peer_forms:
        return True
    return multiplies_bfloat16()


def peers_of(workload: str) -> list[str]:
    """The peers that have a workload."""
    return [peer for peer in PEERS if forms_of(workload, peer)]


def write_inputs(plan: Plan, folder: Path, whole: bool = False) -> Mapping[str, Any]:
    """Write what peers read -> their specification, less who they are. whole: all of the training set, and
    the validation set."""
    model, cfg = plan.model, plan.cfg
    model.prepare(cfg.model, cfg.train.seed)
    graph = model.graph(cfg.model)
    rules = {node: asdict(rule) for node, rule in update_rules(cfg, graph).items()}
    count = 1 << 62 if whole else plan.workload.instances
    export_instances(folder / "train.npz", chosen_instances(model, cfg, count), model.size)
    export_parameters(folder / "parameters.npz", graph, cfg.train.seed)
    if whole:
        held_out = model.validation(cfg.model, cfg.train.seed, cfg.train.valid_instances)
        instances = [held_out[i] for i in range(len(held_out))]
        export_instances(folder / "valid.npz", instances, model.size)
    return {
        "workload": plan.workload.name,
        "data": str(folder / "train.npz"),
        "valid": str(folder / "valid.npz") if whole else None,
        "parameters": str(folder / "parameters.npz"),
        "rules": rules,
        "settings": asdict(cfg.model),
        "device": plan.peer_device,
        "warm": plan.brief / 2,
    }
