"""The link over Ethernet under Verilator, opposite a network card that others wrote."""

from __future__ import annotations

import pytest

pytest.importorskip("cocotbext.eth")

from amphw.rtl.gateware.network.ethernet import EthernetLink
from amphw.rtl.gateware.network.internet import Addresses
from amphw.rtl.gateware.network.rgmii import Rgmii, steps
from amphw.rtl.gateware.streams import GatewareError
from sim.ddr import MODEL
from sim.runner import run_bench
from tests.rtl.network_echo import EchoAtPins

ABOUT = {"mac": 0x024D_0000_0032, "ip": 0xC0A8_0132, "identity": 0x0123_4567_89AB_CDEF}
TIMES = {"hold": 60_000, "retry": 8_000}


@pytest.mark.thorough
def test_ethernet() -> None:
    result = run_bench(
        lambda: EthernetLink(Addresses(ABOUT["mac"], ABOUT["ip"]), ABOUT["identity"], 80e6, **TIMES),
        "ethernet_bench",
        name="ethernet",
        settings={**ABOUT, **TIMES},
    )
    assert min(result.counts[what] for what in ("lose", "double", "delay", "damage")) > 5
    # Those of the PHY's clocks are met in tests/rtl/gateware/test_gmii.py.
    assert set(result.seen) == {"sender.sender_state", "session.sender.datagram_state"}
    assert not any(result.unseen.values()), result.unseen


@pytest.mark.thorough
def test_rgmii() -> None:
    """With models of the chip's cells for both edges of a clock, which are the chip's own on a board."""
    own = Addresses(ABOUT["mac"], ABOUT["ip"])
    run_bench(
        lambda: EchoAtPins(EthernetLink(own, 0, 80e6, **TIMES), Rgmii(0.0, 0.0, 1e4, MODEL)),
        "rgmii_bench",
        name="rgmii",
        settings=ABOUT,
    )


@pytest.mark.parametrize("delay", [-0.1, 3.3])
def test_a_delay_that_the_chip_has_not(delay: float) -> None:
    with pytest.raises(GatewareError, match=r"delayed by 0 to 3\.175 ns on an ECP5, not by"):
        steps(delay)
