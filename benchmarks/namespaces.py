"""Network namespaces of Linux in the place of machines: on this one's cores, joined by links of a given rate.

Each has an address and a host's name of its own, and a link to a bridge, in a namespace of its own, which
holds the rate both ways (`tc tbf`). Each computes on one processor, of which they take turns where there are
fewer. Programs are started there by a script that `mpiexec` takes in the place of ssh. Nothing outside these
namespaces is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from amphw.replicas.hosts import LAUNCHER

SSH = """#!/bin/sh
# In the place of ssh: enter the namespace that has this address, and a host's name with it.
while :; do case "$1" in -x) shift;; -o) shift 2;; *) break;; esac; done
name=$1; shift
k=$((${{name##*.}} - 1))
set_of="{processors}"
on=$(echo $set_of | cut -d' ' -f$((k + 1)))
exec taskset -c $on ip netns exec {prefix}-$k unshare --uts sh -c \\
    'hostname "$1"; exec sh -c "$2"' sh "node-$k" "$*"
"""
TCP = {"UCX_TLS": "tcp", "FI_PROVIDER": "tcp"}
"""With these MPICH takes TCP; else it finds that all ranks are on one machine, and uses its memory."""
SMALLEST_BURST, BURST = 16_000, 0.5e-3
"""Bytes, and seconds of the rate, that may leave a link at once."""
WHOLE_BURST = 80_000
"""Bytes that have room for the largest packet there is within a machine. Smaller bursts cut them, which takes
processors a third of their time at some 80 Mb/s."""
QUEUE = "50ms"
"""How long data may wait for a link before it is dropped."""


def bits(rate: str) -> int:
    """A second, of a text such as 100Mb or 1Gb. Raises ValueError."""
    for unit, factor in (("Gb", 10**9), ("Mb", 10**6)):
        if rate.endswith(unit):
            return int(float(rate.removesuffix(unit)) * factor)
    raise ValueError(f"{rate!r} is no rate; write one as 100Mb or 1Gb, which is a second")


class Failed(Exception):
    """A run that gave no figures."""


class Machines:
    """So many, numbered from 0, while this is entered. folder: for the script. prefix: of their names.

    Raises SystemExit, with the reason, where the system does not allow for them.
    """

    def __init__(self, count: int, folder: Path, prefix: str = ""):
        self.count, self.prefix = count, prefix or f"amphw-{os.getpid()}"
        self.addresses = [f"10.77.0.{k + 1}" for k in range(count)]
        self.ssh = folder / "ssh"
        usable = sorted(os.sched_getaffinity(0))
        self.processors = [usable[k % len(usable)] for k in range(count)]
        listed = " ".join(map(str, self.processors))
        self.ssh.write_text(SSH.format(prefix=self.prefix, processors=listed), encoding="utf-8")
        self.ssh.chmod(0o755)

    def __enter__(self) -> Machines:
        missing = [
            name for name in ("ip", "tc", "unshare", "hostname", "taskset") if shutil.which(name) is None
        ]
        if missing or sys.platform != "linux":
            sys.exit(f"network namespaces need Linux, with iproute2 and util-linux; {missing} not found")
        if os.geteuid() != 0:
            sys.exit("network namespaces are root's to make; run this as root, in a container for example")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__(None, None, None)
            sys.exit(
                f"this system does not allow for network namespaces: {' '.join(error.cmd)} says: "
                f"{error.stderr.strip()}; a container needs the capabilities NET_ADMIN and SYS_ADMIN"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in [self._switch, *map(self._name, range(self.count))]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def hold_to(self, rate: str, smallest: int = SMALLEST_BURST) -> int:
        """From now on links carry so much each way -> the bytes that may leave one at once, `smallest` or
        more."""
        burst = max(smallest, int(bits(rate) / 8 * BURST))
        for k in range(self.count):
            for where, device in ((self._name(k), "wire"), (self._switch, f"port{k}")):
                limit = ["rate", f"{bits(rate)}bit", "burst", str(burst), "latency", QUEUE]
                _do("tc", "-n", where, "qdisc", "replace", "dev", device, "root", "tbf", *limit)
        return burst

    def sent(self) -> int:
        """Bytes that have left all machines over their links until now, with what TCP/IP adds."""
        total = 0
        for k in range(self.count):
            shown = _do("ip", "-n", self._name(k), "-json", "-stats", "link", "show", "dev", "wire")
            total += json.loads(shown)[0]["stats64"]["tx"]["bytes"]
        return total

    def environment(self) -> dict[str, str]:
        return {**os.environ, **TCP, LAUNCHER: str(self.ssh)}

    def run(self, command: Sequence[str], seconds: float, **how: Any) -> subprocess.CompletedProcess[str]:
        """A command on the first machine -> its result, with what it wrote. Ends with it after so long."""
        entered = [
            "taskset",
            "-c",
            str(self.processors[0]),
            "ip",
            "netns",
            "exec",
            self._name(0),
            "unshare",
            "--uts",
            "sh",
            "-c",
        ]
        entered += ['hostname node-0; exec "$@"', "sh", *command]
        environment: Mapping[str, str] = self.environment() | how.pop("env", {})
        return subprocess.run(
            entered, capture_output=True, text=True, timeout=seconds, check=False, env=environment, **how
        )

    def train(
        self, model: str, ranks: int, settings: Sequence[str], seconds: float, start: Path | None = None
    ) -> dict[str, Any]:
        """The summary of a run on the first machines, a rank on each, with what `metrics.json` has of its
        `epochs`, and `wire`, the bytes that left the machines meanwhile. One rank is a process alone, which
        takes no `replicas` settings. start: the folder of a run to go on from, which stays as it is; its
        epochs are among those told. Raises Failed, also where there is no end within so many seconds."""
        with tempfile.TemporaryDirectory(prefix="amphw-links-") as scratch:
            command = [sys.executable, "-m", "amphw.cli", "train", model, "--json"]
            if start is None:
                command += ["--out", f"{scratch}/run"]
            else:
                command += ["--resume", str(shutil.copytree(start, f"{scratch}/run"))]
            if ranks > 1:
                hosts = Path(scratch) / "hosts.txt"
                hosts.write_text("\n".join(self.addresses[:ranks]) + "\n", encoding="utf-8")
                command += ["--carrier", "mpi", "--hosts", str(hosts)]
            else:
                settings = [each for each in settings if not each.startswith("replicas.")]
            command += [word for each in settings for word in ("--set", each)]
            before, what = self.sent(), f"{ranks} ranks of {model}, {', '.join(settings)}"
            try:
                done = self.run(command, seconds, cwd=scratch)
            except subprocess.TimeoutExpired:
                raise Failed(f"{what}: no end in {seconds:.0f} s") from None
            if done.returncode:
                raise Failed(f"{what}: exit code {done.returncode}: {done.stderr[-800:]}")
            epochs = json.loads(Path(scratch, "run", "metrics.json").read_text(encoding="utf-8"))
        return {**json.loads(done.stdout), "epochs": epochs, "wire": self.sent() - before}

    @property
    def _switch(self) -> str:
        return f"{self.prefix}-bridge"

    def _name(self, k: int) -> str:
        return f"{self.prefix}-{k}"

    def _make(self) -> None:
        _do("ip", "netns", "add", self._switch)
        _do("ip", "-n", self._switch, "link", "add", "name", "bridge", "type", "bridge")
        _do("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for k, address in enumerate(self.addresses):
            name, port = self._name(k), f"port{k}"
            _do("ip", "netns", "add", name)
            pair = ["type", "veth", "peer", "name", port, "netns", self._switch]
            _do("ip", "link", "add", "name", "wire", "netns", name, *pair)
            _do("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            for device in ("lo", "wire"):
                _do("ip", "-n", name, "link", "set", device, "up")
            _do("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")


def _do(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
