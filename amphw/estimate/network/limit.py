"""What bounds a network's throughput, in words: a device, a link, or waiting."""

from __future__ import annotations

from amphw.estimate.outcome import Limit, Outcome
from amphw.ir.limits import BUSY, waiting
from amphw.ir.units import written


def limit_of(of: Outcome) -> Limit:
    """Of the lesser of what is calculated and what is played."""
    played = of.played
    if played is None or of.throughput <= played.throughput:
        load = of.bottleneck
        if load.of == "device":
            return _device(of, next(d.number for d in of.devices if load.name == f"device {d.number}"))
        if load.of == "controller":
            return _controller(load.name)
        return _link(of, load.name) if load.of == "link" else _waiting(of)
    computing = max(range(len(of.devices)), key=lambda d: played.device_busy[d])
    if played.device_busy[computing] >= BUSY:
        return _device(of, computing)
    controlling = max(range(len(of.devices)), key=lambda d: played.controller_busy[d])
    if played.controller_busy[controlling] >= BUSY:
        return _controller(f"controller of device {controlling}")
    sending = max(played.link_busy, key=lambda name: played.link_busy[name], default="")
    if played.link_busy.get(sending, 0.0) >= BUSY:
        return _link(of, sending)
    return _waiting(of)


def no_room(error: Exception) -> Limit:
    """Of the first device that is too small."""
    return Limit("memory", "", [], str(error).split(";")[0])


def heaviest(of: Outcome, device: int) -> list[str]:
    """Nodes of a device that take time, the one that takes most first."""
    busy = {n.name: n.busy / len(n.devices) for n in of.per_node if device in n.devices and n.busy}
    return sorted(busy, key=lambda name: -busy[name])


def _device(of: Outcome, number: int) -> Limit:
    nodes = heaviest(of, number)
    if not nodes:
        return Limit("device", f"device {number}", [], "nothing takes time")
    largest = next(n for n in of.per_node if n.name == nodes[0])
    if len(largest.devices) > 1:
        copies = f"one of its {len(largest.devices)} copies is there"
    else:
        copies = "a node is on one device" if largest.memory.value else "without parameters it has one copy"
    seconds = written(of.devices[number].busy, "s")
    words = f"device {number} computes for {seconds} an instance, mostly {nodes[0]}: {copies}"
    return Limit("device", f"device {number}", nodes, words)


def _controller(name: str) -> Limit:
    return Limit("controller", name, [], f"the {name} fetches and delivers firings all the time")


def _link(of: Outcome, name: str) -> Limit:
    link = next(link for link in of.links if link.name == name)
    back = next((x.name for x in of.links if (x.source, x.target) == (link.target, link.source)), "")
    # Gradients take the way back.
    edges = [e for e in of.per_edge if name in e.links or (back in e.links and e.gradient_bits_per_s)]
    if not edges:
        return Limit("link", name, [], f"the link {name} carries {written(link.bytes, 'B')} an instance")
    most = max(edges, key=lambda e: e.link_bytes.get(name, e.link_bytes.get(back, 0.0)))
    words = (
        f"the link {name} carries {written(link.bytes, 'B')} an instance, mostly of "
        f"{most.source} -> {most.target}"
    )
    return Limit("link", name, [most.source, most.target], words)


def _waiting(of: Outcome) -> Limit:
    return Limit("keys", "instances in flight", [], waiting(of.keys, "devices and links"))
