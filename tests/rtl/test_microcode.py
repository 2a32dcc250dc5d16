from __future__ import annotations

import numpy as np
import pytest

from amphw.ir.graph import Graph
from amphw.rtl.commands import Unit
from tests.rtl.microprograms import Bench, graphs, subjects

GRAPHS = dict(graphs())


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("late", Unit, ids=lambda u: u.name.lower())
def test_units_compute_what_their_programs_say(graph: Graph, late: Unit) -> None:
    compiled = 0
    for number, subject in enumerate(subjects(graph)):
        bench = Bench(subject, np.random.default_rng(number), late)
        bench.inference()
        bench.training()
        compiled += 1
    assert compiled
