"""`amphw predict`: what a trained model says of lines of text."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from amphw.cli.blas import pin_blas
from amphw.cli.options import DeviceOption, JsonOption, ModelArgument
from amphw.cli.output import emit_json, remark, results
from amphw.page.numbers import number


def predict(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Inputs, each in quotes; - or none: one per line of stdin."),
    ] = None,
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="PATH", help="A run folder, or a checkpoint file.")
    ] = ...,  # type: ignore[assignment]  # typer's way to say that the option is required
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Load a trained model and print what it predicts for each input, one line each."""
    pin_blas()
    from amphw.host.config import resolve
    from amphw.host.devices import DeviceError
    from amphw.host.placed import fitting
    from amphw.host.prediction import predict as run
    from amphw.library.running import opened
    from amphw.models import get_model

    found = get_model(model)
    path, settings = _checkpoint(checkpoint, found.name)
    cfg = resolve(found.config, settings)
    lines = _lines(texts or ["-"])
    instances = [found.parse(cfg.model, line) for line in lines]
    runner = opened(device, remark)
    cfg, notes = fitting(cfg, runner)
    for note in notes:
        remark(note)
    try:
        reports = run(found, cfg, runner, path, instances)
    finally:
        runner.close()
    if not all(found.loss_node in report.outputs for report in reports):
        raise DeviceError(f"the device {device} computes no outputs to predict with; choose another --device")
    answers = [
        {"input": line} | found.explain(cfg.model, instance, report)
        for line, instance, report in zip(lines, instances, reports, strict=True)
    ]
    if as_json:
        emit_json({"model": found.name, "checkpoint": str(path), "predictions": answers})
        return
    for answer in answers:
        results().print(_sentence(answer))


def _checkpoint(given: Path, model: str) -> tuple[Path, dict[str, Any]]:
    """The checkpoint file that `given` stands for, and the settings of the run that saved it."""
    from amphw.host.checkpoint import CheckpointError
    from amphw.host.prediction import find_checkpoint
    from amphw.library.running import opened_checkpoint

    path = find_checkpoint(given)
    header = opened_checkpoint(path, remark)
    if header["model"] != model:
        raise CheckpointError(
            f"{path} was saved by the model {header['model']}; write amphw predict {header['model']} ..."
        )
    try:
        return path, tomllib.loads(header["config"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged: its settings cannot be read ({error}); use an earlier checkpoint"
        ) from error


def _lines(texts: list[str]) -> list[str]:
    """The inputs, with stdin's lines in the place of `-`; empty lines stand for nothing."""
    lines: list[str] = []
    for text in texts:
        lines += [line.rstrip("\r\n") for line in sys.stdin if line.strip()] if text == "-" else [text]
    return lines


def _sentence(answer: dict[str, Any]) -> str:
    rest = ", ".join(
        f"{name.replace('_', ' ')} {number(value) if isinstance(value, float) else value}"
        for name, value in answer.items()
        if name not in ("input", "prediction")
    )
    text = answer["input"] if len(answer["input"]) <= 60 else answer["input"][:57] + "..."
    if "prediction" not in answer:  # of a model whose loss reports something else
        return f"{text} -> {rest or 'it reports nothing but losses; in the model, fe.report(y=y) does'}"
    return f"{text} -> {answer['prediction']}" + (f"  ({rest})" if rest else "")
