"""What `make sdist` makes, built and installed by pip in an empty environment outside of the checkout.

`make sdist-test` runs it. Building needs a C++ compiler; what is installed then runs without one. The tools
of circuits, which are large, are lent by this environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.wheel.installed import ROOT, Installed

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def sdist() -> Path:
    found = sorted((ROOT / "dist").glob("amphw-*.tar.gz"))
    if not found:
        pytest.skip("there is no source distribution in dist/; run make sdist")
    return found[-1]


def test_it_brings_what_git_keeps(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    kept = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    assert names - set(kept) == {"PKG-INFO"}
    built_of = [name for name in kept if name.startswith(("amphw/", "boards/"))]
    assert set(built_of) | {"CMakeLists.txt", "LICENSE", "README.md"} <= names


@pytest.mark.timeout(1800)
def test_pip_builds_and_installs_it(sdist: Path, tmp_path: Path) -> None:
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    installed = Installed(tmp_path, sys.executable, sdist)
    installed.trains_and_estimates("--quick")
    installed.says_what_circuits_need()
    if not (Path(sysconfig.get_path("purelib")) / "amaranth").is_dir():
        return
    inside = installed.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    lent = "\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (Path(inside.stdout.strip()) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    for program in Path(sysconfig.get_path("scripts")).glob("yowasp-*"):
        (installed.bin / program.name).symlink_to(program)
    installed.builds_a_circuit()
