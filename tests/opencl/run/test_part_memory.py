"""Where a part of a run has what in its arena."""

from __future__ import annotations

import numpy as np

from amphw.engine.lowering.lower import lower
from amphw.engine.tiles.code import Base, Place
from amphw.engine.tiles.tiling import tile
from amphw.opencl import abi
from amphw.opencl.run.rows import APART, Counts, KeptRows, Room
from tests.graphs.cases import CASES


def test_room_is_given_out_from_the_front_and_taken_back() -> None:
    room = Room(1, 10 * APART)
    first, second, third = (room.take(3 * APART) for _ in range(3))
    assert (first, second, third) == (APART, 4 * APART, 7 * APART)
    assert room.take(1) is None
    room.give(4 * APART)
    assert room.take(4 * APART) is None
    assert room.take(APART + 1) == 4 * APART
    assert room.take(APART) == 6 * APART
    assert room.take(1) is None


def kept_rows() -> KeptRows:
    """Of a node with rows in two spaces."""
    (case,) = [c for c in CASES if c.name == "fe-network-max"]
    lowered = lower(case.build())
    return KeptRows(tile(lowered.units[lowered.by_name["cell"]]))


def test_each_row_of_each_instance_has_a_place_of_its_own() -> None:
    kept, rng = kept_rows(), np.random.default_rng(3)
    counts, place = {}, 96
    for slot in (0, 5):
        rows = {s: rng.integers(0, 4, 7) if k else 2 for k, s in enumerate(kept.spaces)}
        counts[slot] = Counts(7, rows)
        end = kept.lay(slot, place, counts[slot])
        assert end - place <= kept.words(counts[slot])
        place = end
    taken: set[int] = set()
    slots, firings = np.array([5, 0, 5, 0], np.int32), np.array([3, 6, 0, 2], np.int32)
    for base in (Base(*each) for each in kept.bases):
        space = kept.spaces[base.space]
        of_firing = {s: np.broadcast_to(np.asarray(c.rows[space]), 7) for s, c in counts.items()}
        n = np.array([of_firing[s][f] for s, f in zip(slots, firings, strict=True)], np.int32)
        at = kept.rows(slots, firings, base.space, n)
        table, stride = kept.table(base, at), abi.row_stride(base.width)
        first = {
            s: kept.table(base, kept.rows(np.array([s]), np.array([0]), base.space, np.ones(1, int)))[0]
            for s in (0, 5)
        }
        expected = [
            first[s] + (int(of_firing[s][:f].sum()) + r) * stride
            for s, f in zip(slots.tolist(), firings.tolist(), strict=True)
            for r in range(of_firing[s][f])
        ]
        assert table.tolist() == expected
        assert not table.size or (table % stride == 0).all()
        words = {w for p in expected for w in range(p, p + base.width)}
        assert len(words) == len(expected) * base.width and not words & taken
        taken |= words
        inside = {w for p, n_words in kept.spans(base, at) for w in range(p, p + n_words)}
        assert words <= inside


def test_what_only_the_frame_reads_is_not_kept() -> None:
    kept = kept_rows()
    assert not kept.has(Base(Place.Scratch, 0, 4, 0))
    assert all(place in (Place.Operand, Place.Output, Place.Saved) for place, *_ in kept.bases)
