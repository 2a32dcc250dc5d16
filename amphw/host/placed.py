"""What a configuration says of devices by their labels, and whether this run has those.

A configuration outlives its devices: a run goes on elsewhere, and a model predicts where it was not trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amphw.engine.lowering.placing import asked_for, links_asked_for
from amphw.host.config import RunConfig
from amphw.ir.device import Device, Explains, Linked, Places

AGAIN = "--set device.{0}= leaves it out, --set device.{0}=... says it for the devices that are there"


def nowhere(cfg: RunConfig[Any], device: Device) -> dict[str, list[str]]:
    """By setting of [device], place or links: the labels in it that no device of this run has."""
    places = set(device.places()) if isinstance(device, Places) else set()
    links = places | set(device.linkable()) if isinstance(device, Linked) else places
    named = {
        "place": [label for label in asked_for(cfg.device.place).values() if label not in places],
        "links": [label for label in links_asked_for(cfg.device.links) if label not in links],
    }
    return {setting: list(dict.fromkeys(labels)) for setting, labels in named.items() if labels}


def fitting(cfg: RunConfig[Any], device: Device) -> tuple[RunConfig[Any], list[str]]:
    """The configuration without such settings, and a sentence on each."""
    found = nowhere(cfg, device)
    notes = [
        f"device.{setting} = '{getattr(cfg.device, setting)}', as it was saved, is left out: "
        f"there is no device {_names(labels)} here."
        for setting, labels in found.items()
    ]
    left_out: dict[str, Any] = dict.fromkeys(found, "")
    return replace(cfg, device=replace(cfg.device, **left_out)), notes


def saved_for_others(cfg: RunConfig[Any], device: Device) -> str:
    """What to tell somebody who goes on with a run on devices of other labels; empty: nothing."""
    return " ".join(
        f"device.{setting} = '{getattr(cfg.device, setting)}' comes from the saved run, and there is no "
        f"device {_names(labels)} in this one: {AGAIN.format(setting)}."
        for setting, labels in nowhere(cfg, device).items()
    )


def where(device: Device) -> str:
    """What runs a loaded graph: the device's name and, of several, which they are and what each computes."""
    about = device.capabilities()
    if not isinstance(device, Places):
        return about.full_name
    placed = device.explained() if isinstance(device, Explains) else []
    said = [about.notes, *(line for line in placed if line.startswith(("placed on ", "WARNING: ")))]
    return "; ".join([about.name, *filter(None, said)])


def _names(labels: list[str]) -> str:
    return ", ".join(f"'{label}'" for label in labels)
