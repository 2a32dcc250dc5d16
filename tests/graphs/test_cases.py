"""Which graphs are tested, and which of them every day."""

from tests.graphs.cases import CASES, EVERYDAY


def test_the_cases_of_every_day_have_every_kind_of_node() -> None:
    kinds = {case.name: {type(node) for node in case.build().nodes.values()} for case in CASES}
    assert set(EVERYDAY) <= set(kinds)
    assert set().union(*(kinds[name] for name in EVERYDAY)) == set().union(*kinds.values())
