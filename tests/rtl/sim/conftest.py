"""What the benches have tried and met stands at the end of pytest's output."""

from __future__ import annotations

from typing import Any

from sim.coverage import REPORTED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if REPORTED:
        terminalreporter.section("benches")
        for line in REPORTED:
            terminalreporter.write_line(line)
