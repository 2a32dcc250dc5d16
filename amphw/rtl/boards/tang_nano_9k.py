"""Sipeed Tang Nano 9K: a cheap Gowin GW1NR-9C."""

from amphw.rtl.boards.board import Board, Resources
from amphw.rtl.toolchain.families import Target

TANG_NANO_9K = Board(
    name="tang-nano-9k",
    target=Target("gowin", device="GW1NR-LV9QN88PC6/I5", series="GW1N-9C"),
    resources=Resources(luts=8_640, ffs=6_480, dsps=20, brams=26, bram_bits=18_432),
    clock_hz=27e6,
    frequency_mhz=27,
    platform=("amaranth_boards.tang_nano_9k", "TangNano9kPlatform"),
    loader="tangnano9k",
)
