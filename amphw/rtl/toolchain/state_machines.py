"""The state machines of a component by name: what coverage is measured against, and names for stuck ones."""

from __future__ import annotations

from typing import Any


def state_machines(component: Any) -> dict[str, dict[int, str]]:
    """Per state machine, the path of its state's signal below the component, and the state of each value.

    >>> state_machines(WordEncoder())  # doctest: +SKIP
    {'encoder_state': {0: 'First', 1: 'Middle', 2: 'Last'}}
    """
    from amaranth.hdl import Fragment

    found: dict[str, dict[int, str]] = {}

    def walk(fragment: Any, path: tuple[str, ...]) -> None:
        for name, generated in fragment.generated.items():
            if hasattr(generated, "encoding"):
                states = {value: state for state, value in generated.encoding.items()}
                found[".".join((*path, f"{name}_state"))] = states
        for number, (below, name, *_) in enumerate(fragment.subfragments):
            walk(below, (*path, name or f"U${number}"))

    walk(Fragment.get(component, None), ())
    return found
