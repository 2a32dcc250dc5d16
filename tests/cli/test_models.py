"""`amphw models` and the listing of settings."""

from __future__ import annotations

import json

from amphw.models import MODELS


def test_all_models_are_listed(amphw) -> None:
    done = amphw("models")
    assert done.exit_code == 0
    assert all(name in done.stdout and model.summary in done.stdout for name, model in MODELS.items())
    listed = json.loads(amphw("models", "--json").stdout)["models"]
    assert {each["name"] for each in listed} == set(MODELS)


def test_every_setting_is_listed_with_the_models_own_default(amphw) -> None:
    done = amphw("train", "list-reduction", "--help-config", "--json")
    settings = {(each["section"], each["key"]): each for each in json.loads(done.stdout)["settings"]}
    keys = settings[("train", "max_active_keys")]
    assert keys["default"] == MODELS["list-reduction"].defaults["train"]["max_active_keys"]
    assert keys["allowed"] == "an integer from 1 to 4096"
    assert keys["help"] == "instances in flight while training"
    assert settings[("update", "min_update_interval")]["aliases"] == ["min_update_frequency"]
    assert {section for section, _ in settings} == {"model", "train", "update", "device", "replicas"}


def test_the_listing_reads_as_text(amphw) -> None:
    text = amphw("train", "list-reduction", "--help-config").stdout
    assert "[model]\n  hidden = 128\n      width of the recurrent state\n      an integer\n" in text
    assert "  embedding = none\n" in text
    assert "  trace = true\n" in text


def test_no_run_is_started_by_asking_for_settings(amphw, tmp_path) -> None:
    amphw("train", "list-reduction", "--help-config")
    assert not list(tmp_path.iterdir())
