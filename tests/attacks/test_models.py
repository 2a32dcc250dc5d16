"""A user's model raises, wherever amphw calls it: its own lines are shown, and none of amphw's."""

from __future__ import annotations

from pathlib import Path

import pytest

MODEL = """
import json
from amphw import frontend as fe
from amphw.models.plain import NoSettings, PlainModel

class Mine(PlainModel[NoSettings]):
    name, summary, config = "mine", "one number from another", NoSettings

    def write(self, cfg):
        write
        layer = fe.Linear(1)

        def function(x):
            function
            fe.regress(layer(x.value), x.wanted)

        return function, fe.Record(value=fe.Floats(1), wanted=fe.Floats(1))

    def data(self, cfg, seed, part):
        data
        return [dict(value=1.0, wanted=2.0)] * 4

    def size(self, instance):
        size
        return 1

    def explain(self, cfg, instance, report):
        explain
        return super().explain(cfg, instance, report)
"""
PLACES = ("write", "function", "data", "size", "explain")
FAULT = "json.loads('{')"


def written(path: Path, faulty: str = "") -> int:
    """Write the model to a file, with a fault in one place; that place's line, 0 without a fault."""
    lines = MODEL.splitlines()
    for place in PLACES:
        at = next(i for i, line in enumerate(lines) if line.strip() == place)
        lines[at] = lines[at].replace(place, FAULT if place == faulty else "pass")
    path.write_text("\n".join(lines))
    return next((i for i, line in enumerate(lines, 1) if FAULT in line), 0)


def train(path: Path) -> tuple[str, ...]:
    return ("train", str(path), "--device", "reference", "--set", "epochs=1", "--out", "run")


@pytest.mark.parametrize("faulty", PLACES)
def test_what_a_model_raises_is_told_with_the_models_lines_alone(amphw, tmp_path, faulty) -> None:
    sound, path = tmp_path / "sound.py", tmp_path / "faulty.py"
    line = written(path, faulty)
    command = train(path)
    if faulty == "explain":
        written(sound)
        assert amphw(*train(sound)).exit_code == 0
        saved = "run/checkpoint.safetensors"
        command = ("predict", str(path), '{"value": 1.0, "wanted": 2.0}', "--checkpoint", saved)
    done = amphw(*command)
    assert done.exit_code == 1 and done.stdout == ""
    said = done.stderr.strip().splitlines()
    assert "amphw: the model's file raises an error" in said
    assert f"{path}:{line}: JSONDecodeError: Expecting property name" in said[-1]
    assert FAULT in done.stderr and "json/decoder.py" in done.stderr, "its line, and what it called"
    assert not any(f"amphw/{room}/" in done.stderr for room in ("models", "host", "cli", "frontend"))


def test_a_file_that_a_model_lacks_is_told_the_same_way(amphw, tmp_path) -> None:
    """Though amphw has words of its own for what the system refuses."""
    path = tmp_path / "faulty.py"
    line = written(path, "data")
    path.write_text(path.read_text().replace(FAULT, "open('no such file')"))
    done = amphw(*train(path))
    assert done.exit_code == 1
    said = done.stderr.strip().splitlines()
    assert said[-1] == (
        f"{path}:{line}: FileNotFoundError: [Errno 2] No such file or directory: 'no such file'"
    )


def test_debugging_shows_the_whole_traceback(amphw, tmp_path, monkeypatch) -> None:
    written(tmp_path / "faulty.py", "data")
    monkeypatch.setenv("AMPHW_DEBUG", "1")
    done = amphw(*train(tmp_path / "faulty.py"))
    assert done.exit_code != 0 and "the model's file raises an error" not in done.stderr


def test_a_run_of_a_file_is_gone_on_with_by_its_file(amphw, tmp_path) -> None:
    """The model's name alone would be that of a model of amphw."""
    path = tmp_path / "sound.py"
    written(path)
    assert amphw(*train(path)).exit_code == 0
    refused = amphw("train", "list-reduction", "--resume", "run")
    assert refused.exit_code == 1
    assert "is one of the model mine; write amphw train FILE.py, with the file of mine, --resume run" in (
        refused.stderr
    )
    more = amphw("train", str(path), "--device", "reference", "--resume", "run", "--set", "epochs=2")
    assert more.exit_code == 0, more.stderr


def test_a_value_of_any_depth_that_does_not_fit_is_told_in_a_line(amphw, tmp_path) -> None:
    path = tmp_path / "sound.py"
    written(path)
    assert amphw(*train(path)).exit_code == 0
    deep = "[" * 3000 + "1" + "]" * 3000
    told = amphw("predict", str(path), "--checkpoint", "run", f'{{"value": {deep}, "wanted": 1.0}}')
    assert told.exit_code == 1
    assert "Traceback" not in told.stderr and "value" in told.stderr and len(told.stderr) < 1000
