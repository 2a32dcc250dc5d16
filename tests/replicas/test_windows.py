"""How ranks in step share out the instances of a common window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from amphw.ir.instance import Instance
from amphw.replicas.collectives import ranges
from amphw.replicas.windows import Windows, dealt, size_of


@dataclass(frozen=True)
class Lists:
    """Instances with lists of these lengths."""

    lengths: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: int) -> Instance:
        return Instance(tables={"tokens": np.zeros(self.lengths[place], np.int64)})


LENGTHS = st.lists(st.integers(0, 50), max_size=60).map(tuple)


def together(
    lengths: tuple[int, ...], start: int, window: int, servers: int, ranks: int
) -> list[list[list[int]]]:
    """What all ranks pump: by rank and window, the numbers of the instances."""
    looked: list[list[list[int]]] = [[] for _ in range(ranks + servers)]

    def look(rank: int) -> Callable[[Sequence[Instance]], None]:
        return lambda upcoming: looked[rank].append([i.number for i in upcoming])

    every = [
        Windows(Lists(lengths), start, window, 100, r if r < ranks else None, ranks, look(r))
        for r in range(ranks + servers)
    ]
    sources = [iter(w) for w in every]

    def deal() -> None:
        sizes = np.sum([w.sizes() for w in every], axis=0)
        for w in every:
            w.deal(sizes)

    deal()
    deal()
    pumped: list[list[list[int]]] = [[] for _ in every]
    while True:
        for rank, w in enumerate(every):
            upcoming = [i.number for i in w.next()]
            pumped[rank].append([next(sources[rank]).number for _ in upcoming])
            assert pumped[rank][-1] == upcoming
        if not any(each[-1] for each in pumped):
            break
        deal()
    assert all(next(source, None) is None for source in sources)
    assert all(seen[: len(each) - 1] == each[1:] for seen, each in zip(looked, pumped, strict=True))
    return pumped


@given(LENGTHS, st.integers(1, 5), st.integers(0, 2), st.integers(1, 5), st.data())
def test_ranks_take_every_instance_of_a_common_window_once(
    lengths: tuple[int, ...], window: int, servers: int, ranks: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(lengths)))
    pumped = together(lengths, start, window, servers, ranks)
    numbers = [100 + place for place in range(start, len(lengths))]
    for k in range(len(pumped[0])):
        mine = [each[k] for each in pumped]
        common = numbers[k * window * ranks : (k + 1) * window * ranks]
        assert sorted(n for each in mine for n in each) == common
        if len(common) == window * ranks:  # the last may have fewer
            assert [len(each) for each in mine] == [window] * ranks + [0] * servers


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(1, 6))
def test_ranks_take_as_many_each_and_swap_only_what_brings_them_closer(sizes: list[int], ranks: int) -> None:
    taken = dealt(np.array(sizes, np.int64), ranks)
    assert sorted(k for mine in taken for k in mine) == list(range(len(sizes)))
    assert max(map(len, taken)) - min(map(len, taken)) <= 1

    def spread(parts: Sequence[Sequence[int]]) -> int:
        loads = [sum(sizes[k] for k in mine) for mine in parts]
        return max(loads) - min(loads)

    begins = [range(len(sizes))[part] for part in ranges(len(sizes), ranks)]
    assert spread(taken) <= spread(begins)


def test_two_ranks_come_close() -> None:
    sizes = np.random.default_rng(1).integers(20, 100, 32)
    loads = [int(sizes[mine].sum()) for mine in dealt(sizes, 2)]
    assert abs(loads[0] - loads[1]) <= 2


def test_an_instance_is_as_large_as_its_tables_and_data() -> None:
    assert size_of(Instance()) == 1
    tables, data = {"a": np.zeros((2, 3), np.int64)}, {"x": np.zeros((5, 4), np.float32)}
    assert size_of(Instance(tables=tables, data=data)) == 27
