"""The serial link under Verilator: words both ways, bad lines, and every state of its state machines."""

from __future__ import annotations

import pytest

from amphw.rtl.gateware.link.framing import WordDecoder
from sim import setups
from sim.runner import run_bench


@pytest.mark.thorough
def test_framing() -> None:
    result = run_bench(WordDecoder, "framing_bench", name="framing")
    assert result.seen == {"decoder_state": {"First", "Middle", "Last", "Deliver"}}


@pytest.mark.thorough
def test_uart() -> None:
    result = setups.uart().run()
    assert set(result.seen) == {"receiver.receiver_state", "decoder.decoder_state", "encoder.encoder_state"}
    assert not any(result.unseen.values()), result.unseen
