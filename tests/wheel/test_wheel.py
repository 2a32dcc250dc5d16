"""What `make wheel` has built, installed into empty environments outside of the checkout, without a compiler.

`make wheel-test` runs it, after building; every interpreter from 3.11 on that is here is tried. Environments
get their other packages from the registry, so this takes minutes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.wheel.installed import Installed, interpreters, wheel_for, wheels

pytestmark = pytest.mark.wheel


@pytest.fixture(params=sorted(interpreters()) or ["none"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Installed:
    wheel = wheel_for(request.param) if request.param != "none" else None
    if wheel is None:
        pytest.skip(f"no wheel for Python {request.param} in dist/; run make wheel with it")
    return Installed(tmp_path, interpreters()[request.param], wheel)


@pytest.mark.timeout(1800)
def test_it_trains_and_estimates_without_a_compiler(installed: Installed) -> None:
    installed.trains_and_estimates()
    installed.says_what_circuits_need()


@pytest.mark.timeout(1800)
def test_it_builds_a_circuit(tmp_path: Path) -> None:
    version = f"3.{sys.version_info[1]}"
    wheel = wheel_for(version)
    if wheel is None:
        pytest.skip(f"no wheel for Python {version} in dist/; run make wheel")
    Installed(tmp_path, sys.executable, wheel, "[rtl]").builds_a_circuit()


def test_it_brings_what_is_needed_and_nothing_else() -> None:
    found = [*wheels(), *wheels("aarch64")]
    if not found:
        pytest.skip("there is no wheel in dist/; run make wheel")
    for wheel in found:
        names = zipfile.ZipFile(wheel).namelist()
        tops = {name.split("/")[0] for name in names}
        assert {top for top in tops if not top.startswith("amphw")} == set(), tops
        assert not [name for name in names if name.endswith((".cpp", ".hpp"))]
        assert len([name for name in names if "/_native." in name]) == 1
        assert any(name.startswith("amphw/boards/") for name in names)
        assert wheel.stat().st_size < 4e6
