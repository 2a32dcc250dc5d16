"""What each member has trained on, sent and taken, line by line as it happens; nothing is ever changed.

Every incarnation of a member has a file of its own. A round is written down when all of its instances have
retired, and before anything of it is sent: what a member had not written down when it died has reached
nobody, and others may train on it. A message is written down before it is applied.

A member that counts as lost may be alive, and write a round down after somebody has read how far it was. So
who counts it as lost first leaves a mark beside its ledger and reads then, and the member writes first and
looks for the mark then: a round either was read, or is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amphw.replicas.ako.message import Layout, Member, Message
from amphw.replicas.elastic.journal import Journal
from amphw.replicas.elastic.leases import Lease

JOB = "job"
"""Why a member ended: the job did."""


def ledger_of(folder: Path, me: Member) -> Path:
    """folder: of the run."""
    return folder / "members" / str(me.number) / f"ledger-{me.incarnation}.jsonl"


def fence(folder: Path, me: Member) -> None:
    """From now on this incarnation sends no further round."""
    mark = _mark(ledger_of(folder, me))
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _mark(ledger: Path) -> Path:
    return ledger.with_suffix(".over")


def recorded(folder: Path, me: Member, lease: Lease) -> int:
    """How many instances of a lease its holder has written down."""
    found = 0
    for line in Journal(ledger_of(folder, me)).backwards():
        if line.get("lease", lease.number) < lease.number:
            break  # a member's leases are in order
        if line.get("lease") == lease.number:
            start, stop = line["instances"]
            found += stop - start
    return found


class Ledger:
    """That of one incarnation."""

    def __init__(self, folder: Path, me: Member):
        self._me, self._journal = me, Journal(ledger_of(folder, me))

    @property
    def is_over(self) -> bool:
        """Whether the incarnation counts as lost."""
        return _mark(self._journal.path).exists()

    def _write(self, **line: Any) -> None:
        self._journal.append({"member": self._me.number, "incarnation": self._me.incarnation, **line})

    def began(self, donor: Member | None, round: int) -> None:
        """donor: whose values it has; None: those of a checkpoint, or initial ones."""
        self._write(values=list(donor) if donor is not None else None, round=round)

    def gave(self, joiner: Member, round: int) -> None:
        """What was taken until here is in the values that this newcomer gets, with as many own rounds."""
        self._write(gave=list(joiner), round=round)

    def layout(self, layout: Layout, peers: Iterable[Member], revision: int) -> None:
        """From now on rounds are cut and owed like this."""
        owed = [list(peer) for peer in peers]
        self._write(
            layout=layout.number, first=layout.first, partitions=layout.partitions, peers=owed,
            revision=revision,
        )  # fmt: skip

    def round(
        self, number: int, lease: Lease, start: int, stop: int, revision: int, counts: np.ndarray
    ) -> None:
        """These places of the epoch's order have retired. counts: as in `Message`."""
        self._write(
            epoch=lease.epoch, lease=lease.number, instances=[start, stop], round=number, revision=revision,
            rows=counts[:, 0].tolist(),
        )  # fmt: skip

    def received(self, messages: Sequence[Message]) -> None:
        """These are applied now."""
        common = {"member": self._me.number, "incarnation": self._me.incarnation}
        lines = [
            {
                **common,
                "from": list(m.source),
                "layout": m.layout.number,
                "partition": m.partition,
                "rounds": [m.first, m.last],
                "rows": m.counts[:, 0].tolist(),
            }
            for m in messages
        ]
        if lines:
            self._journal.append(*lines)

    def ended(self, round: int, why: str) -> None:
        """In good order: all that is owed is sent, and all that was sent to this member has come."""
        self._write(ended=round, why=why)

    def close(self) -> None:
        self._journal.close()
