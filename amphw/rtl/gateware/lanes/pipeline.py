"""A straight pipeline of arithmetic, which carries along what a later step needs."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value

from amphw.rtl.gateware.lanes.multiply import wide_product


class Pipeline:
    """Values of one moment, by name; `step` puts registers behind those that are still needed."""

    def __init__(self, m: Module, **values: Value) -> None:
        self.module, self.values, self.depth = m, values, 0

    def __getattr__(self, name: str) -> Value:
        return self.values[name]

    def step(self, drop: tuple[str, ...] = (), **new: Value) -> None:
        """One cycle later: `new` values, made of the present ones, join them; those of `drop` end here."""
        self.depth += 1
        following = {}
        for name, value in {**self.values, **new}.items():
            if name not in drop:
                value = Value.cast(value)
                label, data = f"{name}_{self.depth}", name != "valid"
                following[name] = register = Signal(value.shape(), name=label, reset_less=data)
                self.module.d.sync += register.eq(value)
        self.values = following

    def multiply(self, drop: tuple[str, ...] = (), **products: tuple[Value, Value]) -> None:
        """As many cycles later as the longest product takes, all join; those of `drop` end here."""
        found = {
            name: wide_product(self.module, *pair, name=f"{name}_{self.depth}")
            for name, pair in products.items()
        }
        longest = max(cycles for _, cycles in found.values())
        for cycle in range(1, longest + 1):
            self.step(drop)
            drop = ()
            self.values |= {name: product for name, (product, cycles) in found.items() if cycles == cycle}
