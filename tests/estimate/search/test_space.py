"""What a search may choose from."""

from __future__ import annotations

import pytest

from amphw.estimate.network.network import Network
from amphw.estimate.search import space
from amphw.estimate.search.budget import Budget
from amphw.estimate.search.space import (
    Rate,
    affordable,
    bandwidths,
    device_counts,
    key_counts,
    rates,
    replica_counts,
)
from amphw.ir.errors import AmphwError

NETWORK = Network(1e9, bandwidth=1e9)


def test_the_given_rate_is_the_fastest() -> None:
    found = rates(NETWORK)
    assert [rate.label for rate in found] == ["1/16", "1/8", "1/4", "1/2", "1"]
    assert [rate.network.flops for rate in found] == [1e9 * rate.cost for rate in found]
    assert affordable(NETWORK, None) == found


def test_dsps_bound_devices_that_are_known_to_have_some(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        AmphwError, match=r"dsps=8 is for devices that are circuits \(--lanes\): .* Leave dsps out"
    ):
        affordable(NETWORK, 8)
    circuits = [Rate(f"{lanes} lanes", lanes, NETWORK.computing(lanes), dsps=lanes) for lanes in (4, 8, 16)]
    monkeypatch.setattr(space, "rates", lambda network: circuits)
    assert affordable(NETWORK, 8) == circuits[:2]
    with pytest.raises(AmphwError, match="a budget of dsps=3: the smallest device takes 4"):
        affordable(NETWORK, 3)


def test_numbers_of_devices_of_a_smaller_budget_are_among_those_of_a_larger() -> None:
    before: set[int] = set()
    for most in (1, 7, 32, 33, 36, 64, 100, 1000):
        found = device_counts(NETWORK, Budget(devices=most))
        assert before <= set(found) and found == sorted(found) and found[-1] <= most
        before = set(found)
    assert before >= set(range(1, 33)) | {36, 64, 72, 128, 144, 512, 960}
    assert device_counts(NETWORK.of(77), Budget()) == [77]
    assert device_counts(NETWORK, Budget())[-1] == 64


def test_links_are_slower_only_within_a_budget() -> None:
    assert bandwidths(NETWORK, Budget()) == [NETWORK]
    found = [network.bandwidth for network in bandwidths(NETWORK, Budget(link=1e9))]
    assert found == [1e9 / 16, 1e9 / 8, 1e9 / 4, 1e9 / 2, 1e9]


def test_replicas_share_a_given_number_of_instances_evenly() -> None:
    assert replica_counts(12, 5, None, None) == [1, 2, 4, 8, 12]
    assert replica_counts(15, 5, None, None) == [1, 2, 3, 4, 8, 15]
    assert replica_counts(12, 5, None, 6) == [1, 2]
    assert replica_counts(12, 5, 7, 6) == [7]
    assert key_counts(3, None) == [3, 6, 12, 24, 48, 96, 192]
    assert key_counts(3, 5) == [5]
