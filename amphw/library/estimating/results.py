"""An estimate and a placement as a program in Python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amphw.estimate.network.busy import Load, in_words
from amphw.estimate.outcome import Outcome, outcome_json
from amphw.estimate.sentences import what_limits
from amphw.library.frames import frame
from amphw.library.tables import table
from amphw.page.numbers import bits, number, percent, seconds, size

if TYPE_CHECKING:
    import pandas

    from amphw.library.estimating.proposal import Proposal

SHOWN = 12
"""Devices, and links, that a notebook shows, the busiest."""


@dataclass(frozen=True, repr=False)
class Estimate:
    """How fast a model would train on a network of devices, and what would cross its links.

    outcome: everything that is known of it, down to the work of a node and how each number is known.
    """

    outcome: Outcome

    def __repr__(self) -> str:
        return f"Estimate({self._told()}; {self.limits})"

    def _told(self) -> str:
        of = self.outcome
        devices = f"{len(of.devices)} device{'s' * (len(of.devices) > 1)}"
        return f"{of.model} on {devices}: {number(self.throughput)} instances/s"

    @property
    def throughput(self) -> float:
        """Instances a second: calculated and, where it was played through, played, whichever is less."""
        return self.outcome.sustained

    @property
    def limits(self) -> str:
        """What limits the throughput, in words."""
        return what_limits(self.outcome)

    @property
    def bottleneck(self) -> Load:
        """The busiest device or link: its `name`, what it is `of`, and its `seconds` an instance."""
        return self.outcome.bottleneck

    @property
    def placement(self) -> dict[str, list[int]]:
        """Numbers of the devices that have each node, one for each of its replicas."""
        return {node.name: list(node.devices) for node in self.outcome.per_node}

    @property
    def devices(self) -> pandas.DataFrame:
        """A row for each: its nodes, its share of the time that it computes, and memory in bytes."""
        return frame(
            {
                "device": each.number,
                "what": each.what,
                "nodes": list(each.nodes),
                "busy": each.share,
                "seconds": each.busy,
                "memory": each.memory,
                "room": each.room,
            }
            for each in self.outcome.devices
        )

    @property
    def links(self) -> pandas.DataFrame:
        """A row for each that something crosses: bytes of an instance, bits a second at the throughput, and
        its share of the bandwidth where that has a limit."""
        return frame(
            {
                "link": each.name,
                "source": each.source,
                "target": each.target,
                "bytes": each.bytes,
                "bits_per_s": each.bits_per_s,
                "busy": each.share,
            }
            for each in self.outcome.crossed
        )

    @property
    def nodes(self) -> pandas.DataFrame:
        """A row for each: operations, firings and messages of an instance, and bytes of its parameters."""
        return frame(
            {
                "node": each.name,
                "devices": list(each.devices),
                "forward": each.forward.mean,
                "backward": each.backward.mean,
                "update": each.update,
                "firings": each.firings.mean if each.firings else None,
                "messages": each.messages.mean if each.messages else None,
                "seconds": each.busy,
                "parameters": each.memory.value,
                "memory": each.memory.parameters + each.memory.in_flight,
            }
            for each in self.outcome.per_node
        )

    @property
    def edges(self) -> pandas.DataFrame:
        """A row for each edge between nodes: messages and bytes of an instance, and bits a second, forward
        and back, at the throughput. Where both ends are on one device, it crosses no link."""
        return frame(
            {
                "source": each.source,
                "target": each.target,
                "port": each.port,
                "messages": each.messages.mean if each.messages else None,
                "bytes": each.activation_bytes.mean,
                "bits_per_s": each.bits_per_s,
                "gradient_bits_per_s": each.gradient_bits_per_s,
                "links": list(each.links),
            }
            for each in self.outcome.per_edge
        )

    def to_json(self) -> dict[str, Any]:
        """What `amphw estimate --json` prints."""
        return outcome_json(self.outcome)

    def report(self, file: str | Path) -> Path:
        """Write a page that opens anywhere -> its path. Raises AmphwError for an estimate that was not made
        with `events=True`, and WriteError for a disk that refuses."""
        from amphw.estimate.page.report import estimate_page
        from amphw.host.run_folder import write_atomic

        target = Path(file).expanduser()
        write_atomic(target, estimate_page(self.outcome).encode("utf-8"))
        return target

    def _repr_html_(self) -> str:
        of = self.outcome
        busiest = sorted(of.devices, key=lambda each: -each.share)[:SHOWN]
        rows = [
            [
                f"device {each.number}",
                ", ".join(each.nodes),
                percent(each.share),
                size(each.memory) + (f" of {size(each.room)}" if each.room else ""),
            ]
            for each in busiest
        ]
        parts = [
            f"<p><b>{escape(self._told())}</b><br>What limits: {escape(self.limits)}.</p>",
            table(["", "nodes", "busy", "memory"], rows, ["busy"]),
        ]
        links = sorted(of.crossed, key=lambda each: -each.bytes)[:SHOWN]
        if links:
            rows = [
                [
                    each.name,
                    size(each.bytes),
                    bits(each.bits_per_s),
                    "" if each.share is None else percent(each.share),
                ]
                for each in links
            ]
            columns = ["link", "bytes an instance", "b/s", "busy"]
            parts.append(table(columns, rows, columns[1:]))
        more = len(of.devices) - len(busiest), len(of.crossed) - len(links)
        if any(more):
            parts.append(f"<p>And {more[0]} devices and {more[1]} links that are less busy.</p>")
        return "".join(parts)


@dataclass(frozen=True, repr=False)
class Placement(Mapping[str, str]):
    """Which node goes to which device, by name: the device's label, or "cpu" for the host.

    proposal: everything that is known of it; `proposal.model` has the measured times.
    """

    proposal: Proposal

    def __repr__(self) -> str:
        where = ", ".join(f"{node}: {label}" for node, label in self.items())
        return f"Placement({where}; {number(self.throughput)} instances/s)"

    def __getitem__(self, node: str) -> str:
        return self.proposal.chosen.placement[node]

    def __iter__(self) -> Any:
        return iter(self.proposal.chosen.placement)

    def __len__(self) -> int:
        return len(self.proposal.chosen.placement)

    @property
    def setting(self) -> str:
        """What trains with it: `amphw.train(..., place=placement.setting)`."""
        return self.proposal.setting

    @property
    def throughput(self) -> float:
        """Instances a second."""
        return self.proposal.chosen.throughput

    @property
    def alone(self) -> float:
        """Instances a second with all nodes on the host."""
        return self.proposal.host.throughput

    @property
    def limits(self) -> str:
        """What limits the throughput, in words."""
        return in_words(self.bottleneck, self.proposal.model.keys)

    @property
    def bottleneck(self) -> Load:
        """The busiest device or link: its `name`, what it is `of`, and its `seconds` an instance."""
        return self.proposal.chosen.bottleneck

    @property
    def refused(self) -> dict[tuple[str, str], str]:
        """Why a device does not take a node, by (node, label)."""
        return dict(self.proposal.model.refused)

    @property
    def short(self) -> list[str]:
        """Limits that it violates, in sentences; none where it can be."""
        return list(self.proposal.chosen.short)

    @property
    def nodes(self) -> pandas.DataFrame:
        """A row for each: where it goes, and seconds that each device would be busy with it for an instance;
        None where the device refuses it."""
        return frame(self._nodes())

    def _nodes(self) -> Iterable[dict[str, Any]]:
        model = self.proposal.model
        for node, label in self.items():
            times = {x: found.busy if (found := model.seconds.get((node, x))) else None for x in model.labels}
            yield {"node": node, "device": label, **times}

    @property
    def devices(self) -> pandas.DataFrame:
        """A row for each device and link that is busy: seconds of an instance, its share of the time and, of
        a device, memory in bytes and bytes of an instance to it and from it."""
        return frame(self._devices())

    def _devices(self) -> Iterable[dict[str, Any]]:
        of = self.proposal.chosen
        for load in of.loads:
            device = load.of == "device"
            yield {
                "name": load.name,
                "of": load.of,
                "seconds": load.seconds,
                "busy": load.share,
                "memory": of.memory[load.name] if device else None,
                "bytes_to": of.bytes_to.get(load.name) if device else None,
                "bytes_from": of.bytes_from.get(load.name) if device else None,
            }

    def _repr_html_(self) -> str:
        faster = number(self.throughput / self.alone)
        beside = f"; with all nodes on the cpu {number(self.alone)}" if faster != number(1.0) else ""
        told = f"{number(self.throughput)} instances/s{beside}"
        rows = [
            [row["node"], row["device"]]
            + ["refused" if row[x] is None else seconds(row[x]) for x in self.proposal.model.labels]
            for row in self._nodes()
        ]
        columns = ["node", "goes to", *(f"on {x}" for x in self.proposal.model.labels)]
        warned = "".join(f"<p>It cannot be: {escape(each)}.</p>" for each in self.short)
        refused: dict[tuple[str, str], list[str]] = {}
        for (node, label), why in self.refused.items():
            refused.setdefault((label, why), []).append(node)
        reasons = "".join(
            "<p>" + escape(f"{label} refuses {', '.join(nodes)}: {why}") + "</p>"
            for (label, why), nodes in refused.items()
        )
        above = f"<p><b>{escape(told)}</b><br>What limits: {escape(self.limits)}.</p>{warned}"
        return above + table(columns, rows, columns[2:]) + reasons
