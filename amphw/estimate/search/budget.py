"""What a search may spend: `devices=8,link=10Gb/s,memory=8GB,dsps=56`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from amphw.ir.errors import AmphwError
from amphw.ir.units import quantity

EXAMPLES = {"devices": "devices=8", "link": "link=10Gb/s", "memory": "memory=8GB", "dsps": "dsps=56"}


@dataclass(frozen=True)
class Budget:
    """At most; None: nobody has said. devices: their number. link: bits a second of a link. memory: bytes of
    a device. dsps: of a device. said: by key, as it was written."""

    devices: int | None = None
    link: float | None = None
    memory: float | None = None
    dsps: int | None = None
    said: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Raises AmphwError for a key that there is none of or that is there twice, and for what is no
        quantity."""
        said: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            if key not in EXAMPLES or not equals:
                raise AmphwError(
                    f"a budget has no '{part.strip()}': write it as {','.join(EXAMPLES.values())}, of which "
                    "each may be left out"
                )
            if key in said:
                raise AmphwError(f"a budget with {key} twice: {said[key]} and {value}")
            said[key] = value
        return cls(
            devices=_count(said, "devices"),
            link=quantity(said["link"], "bits a second") if "link" in said else None,
            memory=quantity(said["memory"], "bytes") if "memory" in said else None,
            dsps=_count(said, "dsps"),
            said=said,
        )


def _count(said: Mapping[str, str], key: str) -> int | None:
    if key not in said:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", said[key]) or not int(said[key]):
        raise AmphwError(f"a budget with {key}={said[key]}: expected a whole number above 0")
    return int(said[key])
