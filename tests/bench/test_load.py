"""Who used the processors, read from a /proc of our own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amphw.bench.load import Usage, UsageMeter, total

TICKS = os.sysconf("SC_CLK_TCK")


def proc(root: Path, user: int, idle: int, steal: int, **processes: int) -> None:
    """/proc/stat of two processors, and what processes have used; all in ticks."""
    root.mkdir(exist_ok=True)
    lines = [f"cpu {user} 0 0 {idle} 0 0 0 {steal} 7 7", "cpu0 1 1 1 1", "cpu1 1 1 1 1", "intr 5"]
    (root / "stat").write_text("\n".join(lines) + "\n")
    for name, used in processes.items():
        pid = str(os.getpid()) if name == "me" else name.removeprefix("p")
        (root / pid).mkdir(exist_ok=True)
        (root / pid / "stat").write_text(f"{pid} (a (b) c) S " + "0 " * 10 + f"{used} 0 0 0\n")


def test_what_others_used_is_foreign(tmp_path) -> None:
    root = tmp_path / "proc"
    proc(root, user=1000, idle=0, steal=50, me=10, p77=100)
    meter = UsageMeter([77], root)
    proc(root, user=1000 + 3 * TICKS, idle=5 * TICKS, steal=50 + TICKS, me=10, p77=100 + TICKS)
    usage = meter.read()
    assert usage.busy == pytest.approx(4.0)  # three seconds of users, one that another machine took
    assert usage.own == pytest.approx(1.0)
    assert usage.processors == 2


def test_the_share_is_of_all_processors() -> None:
    assert Usage(seconds=2.0, busy=3.0, own=2.0, processors=2).foreign == pytest.approx(0.25)
    # The kernel counts in ticks: a little less than nothing is nothing.
    assert Usage(seconds=2.0, busy=1.9, own=2.0, processors=2).foreign == 0.0


def test_without_proc_nothing_is_known(tmp_path) -> None:
    usage = UsageMeter([], tmp_path / "none").read()
    assert usage.busy is None and usage.foreign is None
    assert total([usage, Usage(1.0, 1.0, 1.0, 1)]).foreign is None


def test_a_process_that_ended_counts_as_nothing(tmp_path) -> None:
    root = tmp_path / "proc"
    proc(root, user=0, idle=0, steal=0, me=0, p77=100)
    meter = UsageMeter([77], root)
    (root / "77" / "stat").unlink()
    assert meter.read().own == 0.0


def test_several_measurements_add_up() -> None:
    usage = total([Usage(1.0, 2.0, 1.5, 2), Usage(3.0, 2.0, 2.0, 2)])
    assert (usage.seconds, usage.busy, usage.own) == (4.0, 4.0, 3.5)
    assert usage.foreign == pytest.approx(0.5 / 8)
