"""Our side of the time to an accuracy: the model trained as `amphw train` does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amphw.bench.serving import Channel
from amphw.host.config import resolve
from amphw.host.controller import Trainer
from amphw.host.devices import make_device
from amphw.host.progress import LiveStats, Progress
from amphw.host.records import EpochRecord
from amphw.ir.device import Device, DeviceOptions


class EpochTeller(Progress):
    """Progress that tells the epochs and shows nothing."""

    def __init__(self, tell: Callable[[EpochRecord], None]) -> None:
        self._tell = tell

    def update(self, live: LiveStats) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        self._tell(record)


class WithSettings:
    """A device that is loaded with some settings more than the configuration has a name for."""

    def __init__(self, device: Device, settings: Mapping[str, Any]) -> None:
        self._device, self._settings = device, settings

    def load(self, graph: Any, rules: Any, options: DeviceOptions) -> None:
        self._device.load(graph, rules, replace(options, settings={**options.settings, **self._settings}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def train(
    model: Any,
    overrides: Sequence[str],
    settings: Mapping[str, Any],
    device_name: str,
    request: Mapping[str, Any],
    channel: Channel,
) -> dict[str, Any]:
    """Train until the target (or without one: null) or the last epoch. request: epochs, target, seed."""
    target = "none" if request["target"] is None else request["target"]
    wanted = [f"target={target}", f"epochs={request['epochs']}", f"seed={request['seed']}"]
    cfg = resolve(model.config, model.defaults, None, [*overrides, *wanted, "trace=false"])
    history: list[dict[str, Any]] = []

    def tell(record: EpochRecord) -> None:
        value = record.valid[model.metric]
        history.append({"epoch": record.epoch, "seconds": record.seconds, "metric": value})
        channel.progress(**history[-1])

    device = make_device(device_name)
    try:
        trainer = Trainer(model, cfg, WithSettings(device, settings), None, EpochTeller(tell))  # type: ignore[arg-type]
        summary = trainer.run()
    finally:
        device.close()
    return {"reached": history[-1] if summary.target_reached else None, "history": history}
