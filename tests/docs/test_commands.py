"""Every `amphw` command in the README and in docs/ is run, so that the pages stay true.

A page's commands run in order in one empty folder, because a later one may need what an earlier one wrote.
In a `console` block the lines that begin with `$ ` are commands, in an `sh` block every line. A comment
before a block changes how it is tested, not how it reads:

    <!-- test: --set train_instances=400 -->   appended to every `amphw train` and `amphw demo` of the block
    <!-- test: skip: needs a board -->         the block is not run, for the reason given
    <!-- test: hardware -->                    the block builds a circuit: it is run by `make hardware` alone
    <!-- test: file mine.py -->                the block is written into that file, before commands are run
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.daily import daily

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"(?:^<!-- test: (?P<test>[^\n]*) -->\n+)?^```(?P<kind>console|sh)\n(?P<body>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"^<!-- test: file (\S+) -->\n+```(?:python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LONG = ("python.md",)
"""Pages whose programs train for longer than others'."""
_TRAINS = re.compile(r"(?:\w+=(?:\"[^\"]*\"|\S+) |mpiexec -n \d+ )*amphw (train|demo)\b")


@dataclass(frozen=True)
class Command:
    """One command of a page: as it is written, and as it is run."""

    written: str
    run: str


def commands(text: str, hardware: bool = False) -> list[Command]:
    """The `amphw` commands of a page in order: those that build circuits, or all others."""
    found = []
    for block in _BLOCK.finditer(text):
        extra = block["test"] or ""
        if extra.startswith("skip:") or (extra == "hardware") != hardware:
            continue
        extra = "" if hardware else extra
        for line in block["body"].replace("\\\n", " ").splitlines():
            if block["kind"] == "console":
                if not line.startswith("$ "):
                    continue  # what the command printed
                line = line[2:]
            line = line.split("  #")[0].strip()
            if re.search(r"\bamphw\b", line) and not line.startswith(("#", "cd ", "git ", "pip ")):
                small = f"{line} {extra}" if _TRAINS.match(line) else line
                found.append(Command(line, small.strip()))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty working folder, beside one with a program `amphw` that runs this checkout."""
    programs = tmp_path / "bin"
    programs.mkdir()
    script = programs / "amphw"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m amphw.cli "$@"\n')
    script.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    return work


def run_command(command: str, folder: Path, timeout: int) -> subprocess.CompletedProcess[str]:
    places = [str(folder.parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(places)}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )


def run(page: Path, folder: Path, hardware: bool, timeout: int) -> None:
    for name, body in _FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(body)
    for command in commands(page.read_text(encoding="utf-8"), hardware):
        done = run_command(command.run, folder, timeout)
        assert done.returncode == 0, f"{page.name}: {command.written}\n{done.stdout}\n{done.stderr}"


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_work(page: Path, folder: Path) -> None:
    run(page, folder, hardware=False, timeout=240)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", ["opencl:0 ", "cpu,a="])
def test_the_readmes_run_on_other_devices_reaches_its_target(device: str, folder: Path) -> None:
    """As it is printed, to its end: in the other tests of commands, runs are too short to diverge."""
    page = PAGES[0].read_text(encoding="utf-8")
    (command,) = (c for c in commands(page) if f"amphw train list-reduction --device {device}" in c.written)
    done = run_command(f"{command.written} --json", folder, timeout=800)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target_reached"], done.stderr


@pytest.mark.hardware
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "<!-- test: hardware -->" in page.read_text()],
    ids=lambda page: page.name,
)
def test_the_circuits_of_a_page_can_be_built(page: Path, folder: Path) -> None:
    run(page, folder, hardware=True, timeout=3600)


@pytest.mark.parametrize(
    "page",
    daily([page for page in PAGES if page.name not in LONG], [page for page in PAGES if page.name in LONG]),
    ids=lambda page: page.name,
)
def test_the_programs_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """As one, since a later one may need what an earlier one imported."""
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{page.name}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_and_links_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^(?:\$ )?make (\w+)$", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: no target {target}"
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" not in link:
            there = page.parent / link if link else page
            assert there.exists(), f"{page.name}: {link} does not exist"
            assert not anchor or anchor in anchors(there), f"{page.name}: {link} has no heading #{anchor}"


def anchors(page: Path) -> set[str]:
    """What the headings of a page are linked by, as GitHub makes it of their words."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_commands_are_found_as_the_pages_write_them() -> None:
    page = """
<!-- test: --set epochs=1 -->
```console
$ amphw train x --out a \\
    --seeds 2
epoch 1
$ echo "1 2" | amphw predict x -  # from stdin
$ A=1 B="2 3" amphw train x
```
```python
amphw train not-a-command
```
<!-- test: skip: needs a board -->
```sh
amphw train y
```
<!-- test: hardware -->
```sh
amphw rtl z
```
```sh
# amphw in a comment
amphw models
```
"""
    assert [each.run for each in commands(page)] == [
        "amphw train x --out a      --seeds 2 --set epochs=1",
        'echo "1 2" | amphw predict x -',
        'A=1 B="2 3" amphw train x --set epochs=1',
        "amphw models",
    ]
    assert [each.run for each in commands(page, hardware=True)] == ["amphw rtl z"]
