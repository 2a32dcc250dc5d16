"""A pin-out with nothing but a clock."""

from amaranth.build import Clock, Pins, Resource


class Bare:
    default_clk = "clock"
    resources = [Resource("clock", 0, Pins("A1", dir="i"), Clock(10e6))]
