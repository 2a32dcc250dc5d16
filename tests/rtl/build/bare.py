"""Pin-outs that lack what a board needs, and one that has it at a connector."""

from amaranth.build import Attrs, Clock, Connector, DiffPairs, Pins, Resource
from amaranth_boards.resources import UARTResource


class Bare:
    default_clk = "clock"
    resources = [Resource("clock", 0, Pins("A1", dir="i"), Clock(10e6))]


class Wired:
    """Its serial line is that of whatever is plugged in."""

    default_clk = "clock"
    resources = [Bare.resources[0], UARTResource(0, rx="1", tx="3", conn=("pmod", 0))]
    connectors = [Connector("pmod", 0, "B7 - C9 D1")]


class Unwired(Wired):
    connectors = [Connector("pmod", 0, "B7 - - D1")]


class Paired(Wired):
    resources = [
        Resource("clock", 0, DiffPairs("A1", "A2", dir="i"), Clock(10e6), Attrs(IO_TYPE="LVDS")),
        Wired.resources[1],
    ]
