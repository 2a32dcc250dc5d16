"""Pieces of a device's memory: the host hands them out, so the device never runs out of any."""

from __future__ import annotations


class Arena:
    """Contiguous pieces of `first` .. `end` - 1, first fit; free neighbours are joined."""

    def __init__(self, first: int, end: int):
        self.first, self.end = first, end
        self._free: list[tuple[int, int]] = [(first, end)] if end > first else []

    def take(self, size: int) -> int | None:
        """The first address of a piece, or None if there is no room just now."""
        if size == 0:
            return self.first
        for k, (low, high) in enumerate(self._free):
            if high - low >= size:
                self._free[k : k + 1] = [(low + size, high)] if high - low > size else []
                return low
        return None

    def give(self, at: int, size: int) -> None:
        """A piece is free again."""
        if size == 0:
            return
        pieces = sorted([*self._free, (at, at + size)])
        joined = [pieces[0]]
        for low, high in pieces[1:]:
            if low == joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        self._free = joined

    @property
    def room(self) -> int:
        """Words in all."""
        return self.end - self.first

    @property
    def left(self) -> int:
        return sum(high - low for low, high in self._free)
