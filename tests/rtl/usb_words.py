"""Words over USB to a circuit that gives them back, in packets as a driver sends them."""

from __future__ import annotations

import numpy as np

from amphw.rtl.gateware.usb.serial_port import DATA
from amphw.rtl.isa.word_frames import Decoder, Encoder
from sim.usb_host import Host


def received(host: Host, size: int) -> bytes:
    """At least so many bytes from the device."""
    came = b""
    for _ in range(20 * (size // 64 + 20)):
        came += host.receive(DATA) or b""
        if len(came) >= size:
            return came
    raise AssertionError(f"{len(came)} of {size} bytes: {host.counts}")


def sent(host: Host, out: bytes) -> bytes:
    """Send bytes as a driver does, whatever happens to a packet -> what came meanwhile."""
    came, packet = b"", host.packet
    for at in range(0, len(out), packet):
        for _ in range(200):
            if host.send(DATA, out[at : at + packet]):
                break
            came += host.receive(DATA) or b""
        else:
            raise AssertionError(f"not taken: {host.counts}")
    return came


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 16, count, dtype=np.uint16)


def echoed(host: Host, words: np.ndarray, start: bool = True) -> None:
    """Words go there and come back to the bit, and neither end has anything to complain of."""
    encoder, decoder = Encoder(), Decoder()
    out = (encoder.start() if start else b"") + encoder.feed(words)
    came = sent(host, out)
    found = decoder.feed(came)
    while len(found) < len(words):
        found = np.concatenate([found, decoder.feed(received(host, 1))])
    assert np.array_equal(found, words)
    assert not decoder.faulty
