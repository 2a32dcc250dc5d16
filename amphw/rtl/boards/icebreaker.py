"""1BitSquared iCEBreaker: a small iCE40 UP5K, for the smallest designs."""

from amphw.rtl.boards.board import Board, Resources
from amphw.rtl.toolchain.families import Target

ICEBREAKER = Board(
    name="icebreaker",
    target=Target("ice40", device="up5k", package="sg48"),
    resources=Resources(luts=5_280, ffs=5_280, dsps=8, brams=30, bram_bits=4_096),
    clock_hz=12e6,
    frequency_mhz=12,
    platform=("amaranth_boards.icebreaker", "ICEBreakerPlatform"),
    loader="ice40_generic",
)
