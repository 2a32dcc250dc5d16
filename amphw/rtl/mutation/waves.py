"""What happened at a component's inputs in a run of a bench, read from the waveforms of its ports (VCD)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amphw.rtl.toolchain.build_cache import cached, key

_VARIABLE = re.compile(r"\$var\s+\w+\s+(\d+)\s+(\S+)\s+(\S+)")


@dataclass(frozen=True)
class Changes:
    """How inputs changed: clocks first at each time, the others after them, as benches do after an edge.

    stream: uint32; per time the number of clocks that change, that of other inputs, and whether a clock
    rises; then of each its number in `names` and its value in words of 32 bits, the low ones first. looks:
    times at which a clock rises.
    """

    names: Sequence[str]
    widths: Sequence[int]
    stream: np.ndarray
    looks: int


def changes(waves: Path, inputs: Sequence[str], clocks: Sequence[str]) -> Changes:
    """Read them, once: they are kept in the cache, by the path of the waveforms.

    inputs: of the top level, clocks among them. Names that the waveforms lack never change.
    """

    def build(folder: Path) -> None:
        found = _read(waves, inputs, clocks)
        np.savez(folder / "changes.npz", widths=found.widths, stream=found.stream, looks=found.looks)

    stat = waves.stat()
    name = key(str(waves), str(stat.st_size), str(stat.st_mtime_ns), *inputs, "clocks", *clocks)
    with np.load(cached("changes", name, build) / "changes.npz") as kept:
        return Changes(list(inputs), kept["widths"].tolist(), kept["stream"], int(kept["looks"]))


def _read(waves: Path, inputs: Sequence[str], clocks: Sequence[str]) -> Changes:
    names, widths = list(inputs), [1] * len(inputs)
    found: dict[str, int] = {}
    times: list[tuple[dict[int, int], dict[int, int]]] = []
    edges, others = dict[int, int](), dict[int, int]()
    is_clock = {k for k, name in enumerate(names) if name in clocks}
    before: dict[int, int] = {}
    with waves.open() as lines:
        for line in lines:
            if match := _VARIABLE.match(line.strip()):
                if match[3] in names and match[2] not in found:
                    found[match[2]] = names.index(match[3])
                    widths[names.index(match[3])] = int(match[1])
                continue
            first = line[0]
            if first == "#":
                if edges or others:
                    times.append((edges, others))
                edges, others = {}, {}
                continue
            if first in "01xz":
                value, code = int(first == "1"), line[1:].strip()
            elif first == "b":
                bits, code = line[1:].split()
                value = int(re.sub("[xz]", "0", bits), 2)
            else:
                continue
            port = found.get(code)
            if port is None or before.get(port, 0) == value:
                continue
            before[port] = value
            (edges if port in is_clock else others)[port] = value
    times.append((edges, others))
    stream: list[int] = []
    looks = 0
    for clocked, driven in times:
        rises = int(any(clocked.values()))
        looks += rises
        stream += [len(clocked), len(driven), rises]
        for port, value in (*clocked.items(), *driven.items()):
            stream.append(port)
            stream += [value >> 32 * k & 0xFFFFFFFF for k in range(-(-widths[port] // 32))]
    return Changes(names, widths, np.array(stream, np.uint32), looks)
