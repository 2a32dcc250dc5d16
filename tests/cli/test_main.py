"""The program as a whole: help, version, exit codes, and what goes to which stream."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import amphw as package
from amphw.cli import errors
from amphw.models import MODELS


@pytest.mark.parametrize(
    "command",
    [
        *("", "train", "predict", "replay", "demo", "graph", "models", "devices", "check", "opencl", "flash"),
        *("estimate", "place", "rtl", "bench", "join", "ranks", "ledger"),
    ],
)
def test_every_command_has_help(amphw, command: str) -> None:
    done = amphw(*command.split(), "--help")
    assert done.exit_code == 0
    assert "Usage: " in done.stdout


def test_version(amphw) -> None:
    done = amphw("--version")
    assert (done.exit_code, done.stdout) == (0, f"amphw {package.__version__}\n")


def test_an_unknown_command_or_option_is_a_usage_error(amphw) -> None:
    for arguments in (["trian"], ["models", "--nosuch"], ["train"], ["train", "x", "--seeds", "0"]):
        done = amphw(*arguments)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert "Usage: " in done.stderr


def test_an_error_is_one_message_on_stderr(spawn) -> None:
    done = spawn("train", "list-reducton")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "amphw: there is no model 'list-reducton'. Did you mean list-reduction? "
        f"Models: {', '.join(MODELS)}, or a file of yours.\n"
    )


def test_debugging_shows_the_traceback(spawn) -> None:
    done = spawn("train", "nosuch", AMPHW_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ModelError" in done.stderr


def test_what_nobody_expected_keeps_its_traceback(amphw, monkeypatch) -> None:
    """It is a bug of amphw, and a message without a place would hide it."""
    monkeypatch.setattr("amphw.models.get_model", lambda name: 1 / 0)
    done = amphw("train", "mnist")
    assert isinstance(done.exception, ZeroDivisionError)


def test_ctrl_c_anywhere_ends_with_130(amphw, monkeypatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("amphw.models.get_model", interrupted)
    done = amphw("graph", "mnist")
    assert done.exit_code == errors.INTERRUPTED
    assert done.stderr == "amphw: interrupted\n"


def test_every_deliberate_error_is_expected() -> None:
    from amphw.data.cache import DataError
    from amphw.host.checkpoint import CheckpointError
    from amphw.host.run_folder import RunFolderError, WriteError
    from amphw.ir.config_fields import ConfigError
    from amphw.ir.errors import GraphError, NonFiniteError
    from amphw.models.base import ModelError

    for kind in (
        DataError,
        CheckpointError,
        ConfigError,
        RunFolderError,
        WriteError,
        GraphError,
        NonFiniteError,
        ModelError,
    ):
        assert issubclass(kind, errors.expected_errors())


def test_help_loads_no_numerics(environment) -> None:
    """A mistyped option is answered at once; numpy and matplotlib take the better part of a second."""
    code = "import sys, amphw.cli.main; print({'numpy', 'matplotlib', 'safetensors'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_blas_has_one_thread_once_pinned(environment) -> None:
    code = """
from amphw.cli.blas import pin_blas
pin_blas()
import threadpoolctl
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout in ("{1}\n", "set()\n"), done.stderr  # a numpy without BLAS has no pools


@pytest.mark.parametrize("message", ["Unable to allocate 104. GiB", ""])
def test_too_little_memory_is_one_message(amphw, monkeypatch, message: str) -> None:
    def full(name: str) -> None:
        raise MemoryError(message)

    monkeypatch.setattr("amphw.models.get_model", full)
    done = amphw("graph", "mnist")
    assert done.exit_code == errors.FAILED
    assert done.stderr.startswith("amphw: not enough memory (") and message in done.stderr
    assert "lower max_active_keys" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("command", [["models"], ["models", "--json"]])
def test_a_full_disk_behind_stdout_is_one_message(program, environment, command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*program, *command], env=environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == errors.FAILED
    assert done.stderr.startswith("amphw: cannot write the output: ")
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_no_error(program, environment) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *program, "models"]
    done = subprocess.run(closing, env=environment, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
