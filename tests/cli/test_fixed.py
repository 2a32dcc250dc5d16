"""`amphw train --device fixed:...`: what it prints and leaves, and how it says no."""

from __future__ import annotations

import json
import tomllib
import warnings

import pytest

from amphw.cli.errors import plain_warnings
from amphw.rtl.numbers.formats import DEFAULT

SMALL = ["optimizer=momentum", "lr=0.05", "valid_instances=100"]


@pytest.fixture
def small(tiny: list[str]) -> list[str]:
    return [*tiny, *(word for setting in SMALL for word in ("--set", setting))]


@pytest.mark.usefixtures("drawn")
def test_a_run_leaves_what_the_formats_lose(amphw, small, tmp_path) -> None:
    done = amphw("train", "list-reduction", "--device", "fixed:q4.12", *small, "--out", "run")
    assert done.exit_code == 0, done.stderr
    record = json.loads((tmp_path / "run" / "formats.json").read_text())
    assert record["formats"] == "q4.12" and {"head", "cell"} <= {t["node"] for t in record["tensors"]}
    assert (tmp_path / "run" / "formats.png").read_bytes().startswith(b"\x89PNG")
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Magnitudes of numbers against the range of their formats" in report
    few = f"formats: none are suggested after {record['updates']} updates"
    assert few in report and record["suggested"] is None and record["updates"] > 0
    assert "<h2>What the formats lose</h2>" in report and '<th scope="col">vanished</th>' in report
    assert '<th scope="row">cell: update' in report
    (take,) = (t["operation"] for t in record["tensors"] if t["tensor"] == "forward take E")
    assert " = take(" in take and "param=E" in take
    for words in (
        "on fixed:q4.12",
        "what the formats lose:",
        "vanished",
        "none are suggested",
        "formats.png",
    ):
        assert words in done.stdout


def test_the_files_are_named_in_the_json(amphw, small) -> None:
    done = amphw("train", "list-reduction", "--device", "fixed:q4.12", *small, "--json")
    answer = json.loads(done.stdout)
    assert {"formats.json", "formats.png"} <= answer["files"].keys()
    assert answer["device"] == "fixed:q4.12"


@pytest.mark.thorough
def test_a_run_goes_on_on_another_device_and_comes_back(amphw, small, tmp_path) -> None:
    for device, epochs in (("fixed:q4.12", 1), ("cpu", 2), ("fixed:q4.12", 3)):
        where = ("--out",) if epochs == 1 else ("--resume",)
        given = small if epochs == 1 else ["--set", f"epochs={epochs}"]
        done = amphw("train", "list-reduction", "--device", device, *given, *where, "run")
        assert done.exit_code == 0, done.stderr
    assert len(json.loads((tmp_path / "run" / "metrics.json").read_text())) == 3


def test_a_model_trained_elsewhere_predicts_in_integers(amphw, tiny) -> None:
    """Its optimiser, which the hardware does not have, is not needed."""
    assert amphw("train", "list-reduction", *tiny, "--out", "run").exit_code == 0
    answers = []
    for device in ("cpu", "fixed:q4.12"):
        done = amphw(
            "predict", "list-reduction", "--checkpoint", "run", "--device", device, "--json", "mean 3 4 4"
        )
        assert done.exit_code == 0, done.stderr
        answers.append(json.loads(done.stdout)["predictions"][0])
    floats, integers = (a["probability_of_label"] for a in answers)
    assert integers == pytest.approx(floats, rel=0.01) and integers != floats


def test_what_the_hardware_cannot_do_leaves_no_run_behind(amphw, tiny, tmp_path) -> None:
    adam = ("--set", "optimizer=adam")
    done = amphw("train", "list-reduction", "--device", "fixed:q4.12", *tiny, *adam, "--out", "run")
    assert done.exit_code == 1
    assert done.stderr == (
        "amphw: node 'cell': the hardware updates with sgd or momentum, not with adam: "
        "set update.optimizer=momentum (and a rate that suits it)\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_model_has_settings_for_devices_without_its_optimiser(amphw, tiny, tmp_path) -> None:
    rules = {}
    for device in ("fixed:q4.12", "cpu"):
        done = amphw(
            "train", "list-reduction", "--device", device, *tiny, "--set", "lr=0.02", "--out", device
        )
        assert done.exit_code == 0, done.stderr
        rules[device] = tomllib.loads((tmp_path / device / "config.toml").read_text())["update"]
    assert (rules["cpu"]["optimizer"], rules["cpu"]["warmup"], rules["cpu"]["lr"]) == ("adam", 0, 0.02)
    fixed = rules["fixed:q4.12"]
    assert (fixed["optimizer"], fixed["warmup"], fixed["lr"]) == ("momentum", 400, 0.02)
    assert fixed["schedule"] == rules["cpu"]["schedule"] == "cosine"


@pytest.mark.thorough
def test_a_strict_run_refuses_weights_that_are_clipped_otherwise(amphw, small) -> None:
    command = ("train", "list-reduction", "--device", "fixed:q4.12,w=q-3.19", *small)
    with pytest.warns(UserWarning, match="weights of '[EW]' lie outside q-3.19, which holds -0.0625"):
        clipped = amphw(*command, "--out", "clipped")
    assert clipped.exit_code == 0, clipped.stderr
    refused = amphw(*command, "--strict", "--out", "refused")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("amphw: node 'cell': ")
    assert "in the number formats holds them" in refused.stderr
    with pytest.warns(UserWarning):
        again = amphw(*command, "--out", "refused")
    assert again.exit_code == 0, "the refused run has left its folder free"


def test_a_warning_reads_like_a_remark() -> None:
    with plain_warnings():
        text = warnings.formatwarning("x is large", UserWarning, "arithmetic.py", 7)  # type: ignore[arg-type]
    assert text == "amphw: WARNING: x is large\n"
    assert "arithmetic.py" in warnings.formatwarning("x", UserWarning, "arithmetic.py", 7)  # type: ignore[arg-type]


def test_formats_that_are_none_are_told_at_once(amphw) -> None:
    done = amphw("train", "list-reduction", "--device", "fixed:q4.13")
    assert done.exit_code == 1
    assert done.stderr.startswith("amphw: 'q4.13' is no number format; write qM.N with M + N = 16")


def test_the_device_is_listed(amphw) -> None:
    listed = json.loads(amphw("devices", "--json").stdout)["devices"]
    (mine,) = [each for each in listed if each["name"] == "fixed"]
    assert mine["usable"] and mine["formats"] == [DEFAULT]
