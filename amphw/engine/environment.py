"""Which engine the environment chooses: `AMPHW_ENGINE`, and `AMPHW_NO_NATIVE`, which builds heed, too."""

from __future__ import annotations

import os

from amphw.ir.errors import AmphwError

ENGINE = "AMPHW_ENGINE"
ENGINES = ("native", "numpy", "reference")
NO_NATIVE = "AMPHW_NO_NATIVE"
_NO = {"", "0", "n", "no", "f", "false", "off"}
"""What the build takes for a no, in either case."""


def wanted() -> str:
    """One of ENGINES, or empty: the best that there is.

    AMPHW_NO_NATIVE=1 is numpy, as where amphw was installed with it. Raises AmphwError for what is not known,
    and where the two contradict each other.
    """
    engine, without = os.environ.get(ENGINE, ""), os.environ.get(NO_NATIVE, "")
    if engine not in {"", *ENGINES}:
        raise AmphwError(f"{ENGINE}={engine}, allowed is {', '.join(ENGINES)}")
    if without.lower() in _NO:
        return engine
    if engine == "native":
        raise AmphwError(
            f"{NO_NATIVE}={without} and {ENGINE}=native contradict each other: unset {NO_NATIVE} for the C++ "
            f"data plane, or {ENGINE} for the one in numpy"
        )
    return engine or "numpy"
