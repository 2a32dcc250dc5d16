"""The file of machines, and what is found out about each before ranks are started there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amphw.ir.config_fields import ConfigError
from amphw.replicas.hosts import LAUNCHER, LAUNCHER_OPTIONS, Host, read_hosts, room, ssh_environment, unusable

SSH = """#!/bin/sh
# In the place of ssh: the machine "dead" does not answer, any other is this one.
while :; do case "$1" in -x) shift;; -o) shift 2;; *) break;; esac; done
name=$1; shift
if [ "$name" = dead ]; then echo "connect to host dead port 22: No route to host" >&2; exit 255; fi
exec sh -c "$*"
"""


def stand_in(folder: Path) -> str:
    script = folder / "ssh"
    script.write_text(SSH)
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LAUNCHER, stand_in(tmp_path))
    proxy = tmp_path / "hydra_pmi_proxy"
    proxy.touch(mode=0o755)
    return tmp_path


def read(folder: Path, text: str) -> list[Host]:
    path = folder / "hosts.txt"
    path.write_text(text)
    return read_hosts(path)


def test_a_line_is_a_host_with_its_ranks(tmp_path: Path) -> None:
    found = read(tmp_path, "# ours\nnode-a\n\nnode-b:4 # two sockets\n10.0.0.7 slots=2\nnode-a slots = 2\n")
    assert found == [Host("node-a", 3), Host("node-b", 4), Host("10.0.0.7", 2)]
    assert room(found) == 9


@pytest.mark.parametrize("line", ["node b", "node:x", "node:0", "-oProxyCommand=x", "me@node", "node:2:3"])
def test_a_line_that_is_no_host_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(
        ConfigError, match=r"hosts.txt, line 2: .* is no host; write NAME, NAME:N or NAME slots=N"
    ):
        read(tmp_path, f"node\n{line}\n")


def test_a_file_without_hosts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no host"):
        read(tmp_path, "# none yet\n")
    with pytest.raises(ConfigError, match="cannot read the hosts"):
        read_hosts(tmp_path / "absent")


def test_a_host_that_does_not_answer_is_named_with_sshs_reason(ssh: Path) -> None:
    pytest.importorskip("mpi4py")
    found = unusable([Host("dead"), Host("other"), Host("localhost")], str(ssh / "mpiexec"))
    assert list(found) == ["dead"] and "No route to host" in found["dead"]


def test_a_host_without_our_python_is_told(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert "there is no /nowhere/python" in unusable([Host("other")], str(ssh / "mpiexec"))["other"]


def test_a_host_without_our_mpi_is_told(ssh: Path) -> None:
    (ssh / "hydra_pmi_proxy").unlink()
    assert "install amphw[mpi] there" in unusable([Host("other")], str(ssh / "mpiexec"))["other"]


def test_the_users_options_for_ssh_come_first() -> None:
    options = ssh_environment({LAUNCHER_OPTIONS: "-o ConnectTimeout=60"})[LAUNCHER_OPTIONS].split()
    assert options[:2] == ["-o", "ConnectTimeout=60"] and "BatchMode=yes" in options
