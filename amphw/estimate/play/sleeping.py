"""The sleep method: a run on devices that there are not, in which layers wait as long as those would take.

AMPNet, ICLR 2018 submission HJnQJXbC-, appendix C and table 3: all control is real, and every fully connected
layer takes the time that a device of so many FLOPS would. Training and validation are measured for some
seconds each, and time to target = epochs * (n_train / throughput_train + n_valid / throughput_valid).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from amphw.estimate.outcome import Slept
from amphw.host.config import RunConfig
from amphw.host.devices import make_device
from amphw.host.pump_loop import PumpLoop
from amphw.host.run_model import chosen_instances
from amphw.host.session import graph_of, update_rules
from amphw.ir.device import Device, DeviceOptions, Mode
from amphw.ir.errors import AmphwError
from amphw.ir.instance import Instance

REFERENCES = {"list-reduction": 268_000.0, "tree-lstm": 440.0, "ggnn": 2_455.0}
"""Instances a second in the paper's table 3, on 16 cores, at 1 TFLOPS; list reduction with four replicas."""


def time_to_target(epochs: int, train: int, valid: int, train_per_s: float, valid_per_s: float) -> float:
    """Seconds."""
    return epochs * (train / train_per_s + valid / valid_per_s)


def measure(
    model: Any,
    cfg: RunConfig[Any],
    where: Mapping[str, int],
    flops: float,
    instances: int,
    seconds: float,
    epochs: int,
) -> Slept:
    """where: number of the device of each node with parameters; all of them have `flops`. instances: of
    training and of validation, which are run again and again. `prepare` of the model has run.

    Raises AmphwError where there are none.
    """
    everything = {
        "training": model.training(cfg.model, cfg.train.seed, 1, cfg.train.train_instances),
        "validation": model.validation(cfg.model, cfg.train.seed, cfg.train.valid_instances),
    }
    for what, found in everything.items():
        if not len(found):
            raise AmphwError(f"throughput is measured in {what}, and there are no {what} instances")
    valid = [everything["validation"][i] for i in range(min(instances, len(everything["validation"])))]
    keys, infer = cfg.train.max_active_keys, cfg.train.max_infer_keys
    place = {node: f"d{number}" for node, number in where.items()}
    spec = ",".join(["cpu", *(f"{d}=sleep:{flops!r}FLOPS" for d in sorted(set(place.values())))])
    device = loaded(model, cfg, spec, place)
    try:
        train_per_s, valid_per_s = (
            throughput(device, model, of, slots, mode, seconds)
            for of, slots, mode in (
                (chosen_instances(model, cfg, instances), range(keys), Mode.TRAIN),
                (valid, range(keys, keys + infer), Mode.INFER),
            )
        )
    finally:
        device.close()
    train, held_out = (int(found.size) for found in everything.values())
    return Slept(
        train_per_s=train_per_s,
        valid_per_s=valid_per_s,
        train_size=train,
        valid_size=held_out,
        epochs=epochs,
        time_to_target=time_to_target(epochs, train, held_out, train_per_s, valid_per_s),
        seconds=seconds,
        reference=REFERENCES.get(model.name),
    )


def loaded(model: Any, cfg: RunConfig[Any], spec: str, place: Mapping[str, str]) -> Device:
    """The device `spec` with the model's graph. place: the label of each node that is not on the CPU."""
    device = make_device(spec)
    graph = graph_of(model, cfg)
    settings = asdict(cfg.device) | {"place": place, "links": ""}
    keys, infer = cfg.train.max_active_keys, cfg.train.max_infer_keys
    options = DeviceOptions(keys, infer, "self", cfg.train.seed, settings=settings)
    device.load(graph, update_rules(cfg, graph), options)
    return device


def throughput(
    device: Device, model: Any, instances: Sequence[Instance], slots: range, mode: Mode, seconds: float
) -> float:
    """What the model counts a second on a device that is loaded, with all these slots in use."""
    for number, instance in enumerate(instances):
        instance.number = number
    loop = PumpLoop(device, instances, [int(model.size(i)) for i in instances], slots, mode)
    loop.run_to([len(instances)])  # each once: its plan is made, and memory is taken hold of
    found = loop.run(seconds)
    return float(found["count"] / found["seconds"])
