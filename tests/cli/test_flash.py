"""`amphw flash`: the command that it runs, and what it says where that cannot be."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from amphw.rtl.build.circuit import FILE, Circuit
from amphw.rtl.plan.hardware import Sizes

CIRCUIT = Circuit("icebreaker", 1_000_000, 1, "q4.12", ("cell",), Sizes(), "", "")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What `amphw rtl --board icebreaker --bitstream --out hw` would have left."""
    folder = tmp_path / "hw"
    folder.mkdir()
    (folder / FILE).write_text(CIRCUIT.text())
    (folder / "top.bin").write_bytes(b"bits")
    return folder


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A loader that writes its arguments down, and fails where the file `broken` is."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "openFPGALoader"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/asked\nif [ -e {tmp_path}/broken ]; then exit 3; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "asked"


def test_a_folder_knows_its_board(amphw, built: Path, loader: Path) -> None:
    done = amphw("flash", built)
    assert done.exit_code == 0, done.stderr
    assert loader.read_text().split() == ["--board", "ice40_generic", str(built / "top.bin")]
    assert "top.bin is in the board icebreaker" in " ".join(done.stderr.split())


def test_it_is_kept_if_that_is_wanted(amphw, built: Path, loader: Path) -> None:
    assert amphw("flash", built / "top.bin", "--board", "icebreaker", "--keep").exit_code == 0
    assert "--write-flash" in loader.read_text().split()


@pytest.mark.parametrize(
    ("board", "name", "file"),
    [
        ("ulx3s-85f", "ulx3s", "top.bit"),
        ("icebreaker", "ice40_generic", "top.bin"),
        ("tang-nano-9k", "tangnano9k", "top.fs"),
        ("tang-primer-20k", "tangprimer20k", "top.fs"),
        ("ecpix5-45f", "ecpix5", "top.bit"),
        ("colorlight-5a-75b", "colorlight", "top.bit"),
        ("orangecrab-25f", "orangeCrab", "top.bit"),
    ],
)
def test_each_board_has_a_name_there(amphw, tmp_path: Path, board: str, name: str, file: str) -> None:
    (tmp_path / file).write_bytes(b"bits")
    done = amphw("flash", tmp_path / file, "--board", board, "--dry-run")
    assert (done.exit_code, done.stdout) == (0, f"openFPGALoader --board {name} {tmp_path / file}\n")


def test_nothing_is_run_to_show_it(amphw, built: Path, loader: Path) -> None:
    assert amphw("flash", built, "--dry-run").exit_code == 0
    assert not loader.exists()


def test_without_the_loader_it_is_said_how_to_get_it(amphw, built: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = amphw("flash", built)
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "amphw: openFPGALoader is not on the path, which writes bitstreams into boards: on Debian: apt "
        "install openfpgaloader; others: https://"
    )


def test_a_loader_that_fails(amphw, built: Path, loader: Path) -> None:
    (loader.parent / "broken").touch()
    done = amphw("flash", built)
    assert done.exit_code == 1
    assert "top.bin ended with status 3. Is the board plugged in" in done.stderr


def test_what_cannot_be_flashed(amphw, built: Path, tmp_path: Path) -> None:
    other = replace(CIRCUIT, board="ulx3s-85f")
    for arguments, complaint in (
        (
            ["list-reduction", "--board", "icebreaker"],
            "there is no file or folder list-reduction: amphw rtl MODEL --board",
        ),
        ([tmp_path / "none"], "there is no file or folder"),
        ([tmp_path], f"holds no {FILE}, so it is none that amphw rtl --board has written"),
        ([built / "top.bin"], "does not say which board it is for: --board BOARD"),
        ([built, "--board", "ulx3s-85f"], "was built for the board icebreaker, not for ulx3s-85f"),
        ([built, "--board", "icebraker"], "There is no board 'icebraker'. Did you mean icebreaker "),
        (
            [built / "top.bin", "--board", "ulx3s-85f"],
            "is no bitstream for ulx3s-85f: those are called *.bit",
        ),
    ):
        done = amphw("flash", *arguments)
        assert done.exit_code == 1 and complaint in done.stderr, done.stderr
    (built / FILE).write_text(other.text())
    assert "holds no bitstream top.bit: amphw rtl MODEL" in amphw("flash", built).stderr
