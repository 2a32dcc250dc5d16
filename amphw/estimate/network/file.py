"""Networks of devices that are not alike, as a TOML file lists them.

[[device]]                 # number 0
flops = "1TFLOPS"
memory = "8GB"
nodes = ["leaf"]           # the others take turns

[[device]]                 # number 1
lanes = 16
clock = "90MHz"

[[link]]                   # both ways; without any, each device has one to each other
between = [0, 1]
bandwidth = "10Gb/s"
latency = "1us"
credits = 4

[host]                     # passes on what circuits send each other, and computes in no time
nodes = ["h0"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amphw.estimate.network.devices import Circuit, DeviceKind, Processor, Wire
from amphw.estimate.network.topology import Network, Part
from amphw.ir.errors import AmphwError
from amphw.ir.units import quantity

MakeCircuit = Callable[[int, float | None], Circuit]
"""(lanes, clock in cycles a second, None: that of a board) -> a circuit."""

DEVICE_KEYS = ("flops", "use", "lanes", "clock", "memory", "nodes")
HOST_KEYS = ("nodes",)
LINK_KEYS = ("between", "bandwidth", "latency", "credits")


def read_network(path: Path, circuit: MakeCircuit, like: Network | None = None) -> Network:
    """like: whose links there are where the file has none. Raises AmphwError, with the file's name, for what
    it cannot mean."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AmphwError(f"{path}: {error}") from None
    try:
        return _network(said, circuit, like)
    except AmphwError as error:
        raise AmphwError(f"{path}: {error}") from None


def _network(said: Mapping[str, Any], circuit: MakeCircuit, like: Network | None) -> Network:
    _only(said, ("device", "link", "host"), "a network")
    devices, links = (_tables(said, name) for name in ("device", "link"))
    if not devices:
        raise AmphwError("no [[device]] is listed")
    parts = [_part(number, table, circuit) for number, table in enumerate(devices)]
    wires: dict[tuple[int, int], Wire] = {}
    for number, table in enumerate(links):
        what = f"link {number}"
        _only(table, LINK_KEYS, what)
        a, b = _between(table.get("between"), len(parts), what)
        if (a, b) in wires:
            raise AmphwError(f"{what}: devices {a} and {b} have a link already")
        wires[a, b] = wires[b, a] = Wire(
            _quantity(table, "bandwidth", "bits a second", what),
            _quantity(table, "latency", "seconds", what) or 0.0,
            _whole(table.get("credits", 0), f"{what}: credits"),
        )
    same = like or Network(1.0)
    if links and (same.bandwidth is not None or same.latency or same.credits):
        raise AmphwError(
            "links are listed here, and --link, --latency and --credits are for files without [[link]]: "
            "leave them out"
        )
    return Network(
        bandwidth=same.bandwidth,
        latency=same.latency,
        credits=same.credits,
        policy=same.policy,
        parts=parts,
        wires=wires if links else None,
        kept=_kept(said["host"]) if "host" in said else None,
    )


def _kept(table: Any) -> list[str]:
    """Nodes of the host."""
    if not isinstance(table, dict):
        raise AmphwError("'host': expected a table, as in [host]")
    _only(table, HOST_KEYS, "the host")
    return _names(table, "the host")


def _part(number: int, table: Mapping[str, Any], circuit: MakeCircuit) -> Part:
    what = f"device {number}"
    _only(table, DEVICE_KEYS, what)
    flops, clock = _quantity(table, "flops", "operations a second", what), None
    device: DeviceKind
    if (flops is None) == ("lanes" not in table):
        raise AmphwError(f"{what}: say either flops or lanes")
    for key, of in (("use", "lanes"), ("clock", "flops")):
        if key in table and of in table:
            raise AmphwError(f"{what}: {key} means nothing for a device with {of}")
    if flops is None:
        clock = _quantity(table, "clock", "cycles a second", what)
        device = circuit(_whole(table["lanes"], f"{what}: lanes"), clock)
    else:
        use = table.get("use", 1.0)
        if isinstance(use, bool) or not isinstance(use, int | float):
            raise AmphwError(f"{what}: use = {use!r}, expected a number above 0, up to 1")
        device = Processor(flops, use)
    return Part(device, _quantity(table, "memory", "bytes", what), _names(table, what))


def _names(table: Mapping[str, Any], what: str) -> list[str]:
    nodes = table.get("nodes", [])
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
        raise AmphwError(f'{what}: nodes = {nodes!r}, expected names, as in ["cell", "head"]')
    return nodes


def _tables(said: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = said.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise AmphwError(f"'{name}': expected tables, as in [[{name}]]")
    return found


def _only(table: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for key in table:
        if key not in known:
            raise AmphwError(f"{what}: '{key}' is not known; expected some of {', '.join(known)}")


def _quantity(table: Mapping[str, Any], key: str, of: str, what: str) -> float | None:
    if key not in table:
        return None
    try:
        return quantity(str(table[key]), of)
    except AmphwError as error:
        raise AmphwError(f"{what}: {key}: {error}") from None


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise AmphwError(f"{what} = {value!r}, expected a whole number")
    return value


def _between(value: Any, devices: int, what: str) -> tuple[int, int]:
    whole = isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)
    if not whole or value[0] == value[1] or not all(0 <= each < devices for each in value):
        raise AmphwError(
            f"{what}: between = {value!r}, expected two of the devices 0 to {devices - 1}, as in [0, 1]"
        )
    return value[0], value[1]
