"""Budgets as they are written."""

from __future__ import annotations

import pytest

from amphw.estimate.search.budget import Budget
from amphw.ir.errors import AmphwError


def test_a_budget_is_read() -> None:
    found = Budget.parse("devices=8, link=10Gb/s,memory=8GB,dsps=56")
    assert (found.devices, found.link, found.memory, found.dsps) == (8, 1e10, 8e9, 56)
    assert found.said == {"devices": "8", "link": "10Gb/s", "memory": "8GB", "dsps": "56"}


def test_what_is_left_out_has_no_limit() -> None:
    found = Budget.parse("link=1Gb/s")
    assert (found.devices, found.memory, found.dsps) == (None, None, None)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "a budget has no '': write it as devices=8,link=10Gb/s,memory=8GB,dsps=56, of which each"),
        ("devices=8,", "a budget has no ''"),
        ("devices", "a budget has no 'devices'"),
        ("lanes=4", "a budget has no 'lanes=4'"),
        ("devices=8,devices=9", "a budget with devices twice: 8 and 9"),
        ("devices=0", "a budget with devices=0: expected a whole number above 0"),
        ("devices=-1", "a budget with devices=-1"),
        ("devices=1.5", "a budget with devices=1.5"),
        ("devices=inf", "a budget with devices=inf"),
        ("devices=1e9999", "a budget with devices=1e9999"),
        ("devices=", "a budget with devices="),
        ("dsps=nan", "a budget with dsps=nan"),
        ("dsps=0", "a budget with dsps=0"),
        ("link=10", "'10' is no number of bits a second"),
        ("link=0Gb/s", "'0Gb/s' is no number of bits a second"),
        ("link=-1Gb/s", "'-1Gb/s' is no number of bits a second"),
        ("link=infb/s", "'infb/s' is no number of bits a second"),
        ("memory=8", "'8' is no number of bytes"),
        ("memory=1e999B", "'1e999B' is no number of bytes"),
    ],
)
def test_budgets_that_cannot_be(text: str, complaint: str) -> None:
    with pytest.raises(AmphwError) as raised:
        Budget.parse(text)
    assert complaint in str(raised.value)
