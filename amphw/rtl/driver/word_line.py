"""What carries words to a board and back, whatever it is made of."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class WordLine(Protocol):
    """name: as the user knows it. window: words that may be on their way to the board, which has not been
    heard to have taken them. strict: whether what goes wrong on the line ends it, as it does but for
    `settle`. lag: seconds by which it notices later than who waits for an answer that nothing comes at
    all; its own message tells more of that.

    Every method raises DeviceLostError where the line has gone for good.
    """

    name: str
    window: int
    strict: bool
    lag: float

    @property
    def identity(self) -> int | None:
        """The digest of what was built into the circuit (`Circuit.identity`), once it has begun; None where
        the line does not tell."""
        ...

    def start(self) -> None:
        """Say that this begins: both ends count from here. DeviceAbsentError where nobody is there to begin
        with, or somebody else holds the board."""
        ...

    def write(self, words: np.ndarray) -> None:
        """Words [n] uint16, behind all before."""
        ...

    def read(self, seconds: float) -> np.ndarray | None:
        """The words [n] uint16 that have come, as soon as something has, which may complete none; None after
        so many seconds without."""
        ...

    def forgive(self) -> None:
        """What was wrong so far does not count."""
        ...

    def seconds(self, words: int) -> float:
        """How long so many words are on their way."""
        ...

    def complaint(self) -> str:
        """Why no answer was right so far, and what to do about it."""
        ...

    def close(self) -> None: ...
