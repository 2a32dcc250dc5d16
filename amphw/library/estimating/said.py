"""What somebody says of the devices and links of a network, and which of it does not go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from amphw.ir.errors import AmphwError

Called = Callable[[str], str]
"""How a thing that can be said is written: `--link` on the command line, and `link` in Python."""

NAMES = {"listed": "network"}
"""What is not called as its field."""


class SaidError(AmphwError):
    """What was said is too much or too little. name: of what it is about, as it is written."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Said:
    """None: nothing was said. flops, memory, link, latency and clock are quantities with their units, such as
    "1TFLOPS", "8GB", "10Gb/s", "1us" and "90MHz". utilisation: of flops, 0 to 1. lanes, clock, formats: of
    circuits. listed: a file with a network. like: a device that is here, which is timed. devices: how many.
    credits: forward messages under way on a link."""

    flops: str | None = None
    utilisation: float | None = None
    lanes: int | None = None
    clock: str | None = None
    formats: str | None = None
    listed: Path | None = None
    like: str | None = None
    devices: int | None = None
    memory: str | None = None
    link: str | None = None
    latency: str | None = None
    credits: int | None = None

    def given(self) -> dict[str, object]:
        """What was said, by field."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    def by_default(self, called: Called, known: bool = False, timed: bool = True) -> bool:
        """Whether nothing says how fast devices are, so that they are like the cpu.

        known: a rate is known without them. timed: devices may be like one that is timed. Raises SaidError
        for what is said twice, or too little.
        """
        given, name = self.given(), named(called)
        fast = [name(each) for each in ("flops", "lanes", "like") if each in given]
        if self.listed is not None:
            fast += [name(each) for each in ("devices", "memory", "utilisation") if each in given]
            if fast:
                listed = name("listed")
                raise SaidError(f"{fast[0]} is for devices that are alike; {listed} lists them", fast[0])
        elif len(fast) > 1:
            raise SaidError(
                f"a device has either {' or '.join(fast)}; {name('listed')} lists several", fast[1]
            )
        elif not fast and not known and not timed:
            flops = name("flops")
            raise SaidError(f"say how fast a device is, as in {flops} 1TFLOPS", flops)
        of_circuits = [each for each in ("clock", "formats") if each in given]
        if self.listed is not None:
            of_circuits = [each for each in of_circuits if each == "clock"]  # which the file says
        if self.lanes is None and of_circuits:
            first = name(of_circuits[0])
            raise SaidError(f"{first} is for {name('lanes')}", first)
        if self.utilisation is not None and self.flops is None and not known:
            said = fast[0] if fast else name("like")
            which = name("utilisation")
            raise SaidError(f"{which} is for {name('flops')}: {said} has times as they are", which)
        return not (fast or known or self.listed is not None)


def named(called: Called) -> Called:
    """From a field to how it is written."""
    return lambda field: called(NAMES.get(field, field))


def default(called: Called) -> str:
    """What devices are like where nothing is said."""
    ways = [named(called)(each) for each in ("flops", "lanes", "like", "listed")]
    return f"cpu, the default without {', '.join(ways[:-1])} and {ways[-1]}"


def option(name: str) -> str:
    """As on the command line."""
    return f"--{name}"


def keyword(name: str) -> str:
    """As in Python."""
    return name


def stated(said: Mapping[str, object]) -> dict[str, str]:
    """What was given to a function, by field, as it was written: `link='10Gb/s'`."""
    return {
        field: f"{NAMES.get(field, field)}={str(value) if isinstance(value, Path) else value!r}"
        for field, value in said.items()
    }
