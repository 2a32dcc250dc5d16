"""Radiona ULX3S with the largest ECP5: open hardware with an open flow, and room for a 256 x 128 layer."""

from amphw.rtl.boards.board import Board, Resources
from amphw.rtl.toolchain.families import Target

ULX3S_85F = Board(
    name="ulx3s-85f",
    target=Target("ecp5", device="85k", package="CABGA381", speed="6"),
    resources=Resources(luts=83_640, ffs=83_640, dsps=156, brams=208, bram_bits=18_432),
    clock_hz=25e6,
    frequency_mhz=50,
    platform=("amaranth_boards.ulx3s", "ULX3S_85F_Platform"),
    loader="ulx3s",
)
