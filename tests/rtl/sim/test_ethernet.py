"""The link over Ethernet under Verilator, opposite a network card that others wrote."""

from __future__ import annotations

import pytest

pytest.importorskip("cocotbext.eth")

from amphw.rtl.gateware.network.ethernet import EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.network.rgmii import Rgmii, steps
from amphw.rtl.gateware.streams import GatewareError
from sim import setups
from sim.ddr import MODEL
from sim.runner import run_bench
from tests.rtl.network_echo import EchoAtPins


@pytest.mark.thorough
def test_ethernet() -> None:
    result = setups.ethernet().run()
    assert min(result.counts[what] for what in ("lose", "double", "delay", "damage")) > 5
    # Those of the PHY's clocks are met in tests/rtl/gateware/test_gmii.py.
    assert set(result.seen) == {"sender.sender_state", "session.sender.datagram_state"}
    assert not any(result.unseen.values()), result.unseen


@pytest.mark.thorough
def test_rgmii() -> None:
    """With models of the chip's cells for both edges of a clock, which are the chip's own on a board."""
    own = Addresses(setups.ABOUT["mac"], setups.ABOUT["ip"])
    run_bench(
        lambda: EchoAtPins(EthernetLink(own, 0, 80e6, **setups.TIMES), Rgmii(0.0, 0.0, 1e4, MODEL)),
        "rgmii_bench",
        name="rgmii",
        settings=setups.ABOUT,
    )


@pytest.mark.parametrize("delay", [-0.1, 3.3])
def test_a_delay_that_the_chip_has_not(delay: float) -> None:
    with pytest.raises(GatewareError, match=r"delayed by 0 to 3\.175 ns on an ECP5, not by"):
        steps(delay)
