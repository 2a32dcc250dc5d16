"""What a user types wrongly at `amphw estimate`: each is refused by the name of what was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from amphw.cli.estimate.options import REFUSED
from amphw.cli.main import app
from amphw.cpu_runtime import planes

SMALL = ["list-reduction", "--set", "hidden=8", "--set", "batch=5", "--instances", "4"]


def estimate(*arguments: str) -> tuple[int, str]:
    """The exit status, and what was said on stderr, on one line."""
    done = CliRunner().invoke(app, ["estimate", *SMALL, *arguments])
    return done.exit_code, " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        # Nothing that says how fast devices are, and something that needs it.
        (["--utilisation", "0.5"], "--utilisation is for --flops: --like has times as they are"),
        (["--clock", "50MHz"], "--clock is for --lanes"),
        (["--formats", "q4.12"], "--formats is for --lanes"),
        (["--method", "sleep"], "say how fast a device is, as in --flops 1TFLOPS"),
        (["--like", ""], "Devices: cpu, opencl"),
        (["--flops", ""], "--flops: '' is no number of operations a second: write it as 1TFLOPS"),
        (["--flops", "1TFLOPS", "--like", "cpu"], "a device has either --flops or --like"),
        (["--flops", "1TFLOPS", "--budget", ""], "--budget: a budget has no ''"),
        (["--flops", "1TFLOPS", "--case", ""], "no case '' of the model list-reduction"),
        (["--flops", "1TFLOPS", "--ful"], "No such option"),
    ],
)
def test_what_is_typed_wrongly_is_named(arguments: list[str], complaint: str) -> None:
    status, said = estimate(*arguments)
    assert status != 0 and complaint in said


VALUES = {"lanes": "4", "credits": "4", "keys": "2", "replicas": "2", "devices": "2", "epochs": "2"}


@pytest.mark.parametrize(
    "what, field", [(what, each) for what, refused in REFUSED.items() for each in refused]
)
def test_what_a_way_to_estimate_does_not_look_at_is_refused(what: str, field: str) -> None:
    option = {"listed": "--network"}.get(field, f"--{field}")
    value = [] if field in ("compare", "grow") else [VALUES.get(field, "1")]
    needs = {"--target": ["1/s"], "--budget": ["1/s"], "--case": ["1/s"], "--ranks": ["2"]}
    asked = [*what.split(), *needs.get(what, [])]
    status, said = estimate("--flops", "1TFLOPS", *asked, option, *value)
    assert status == 2 and f"{option} is not for {what}" in said


@pytest.mark.parametrize("place", ("folder", "folder/none.toml"))
def test_a_network_that_is_no_file(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    status, said = estimate("--network", str(tmp_path / place))
    assert status == 1 and str(tmp_path / place) in said


@pytest.mark.skipif(not planes.built(), reason="the C++ data plane is not built")
def test_a_folder_where_the_report_should_be(tmp_path: Path) -> None:
    status, said = estimate("--flops", "1TFLOPS", "--html", str(tmp_path))
    assert status == 1 and f"cannot write {tmp_path}: Is a directory" in said
