"""Going on with a run: how far it is, and with which settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amphw.host.checkpoint import CheckpointError
from amphw.host.checkpointing import BEST, CHECKPOINT
from amphw.host.config import RunConfig
from amphw.host.devices import make_device
from amphw.host.placed import fitting, nowhere, saved_for_others
from amphw.host.run_folder import CONFIG, SUMMARY, RunFolder, RunFolderError
from amphw.ir.config_fields import ConfigError
from amphw.ir.device import Places
from amphw.library.running import opened_checkpoint
from amphw.models import MODELS


def how_far(folder: RunFolder, model: str, tell: Callable[[str], None]) -> tuple[int, Path | None]:
    """Epochs that the run in `folder` has had, and the checkpoint to go on from; None: it begins afresh.

    Raises CheckpointError where `model` cannot go on with it, and where a run that has ended kept nothing.
    """
    path = next((path for name in (CHECKPOINT, BEST) if (path := folder.file(name)).exists()), None)
    best, why = folder.file(BEST), f"there is no {CHECKPOINT}"
    try:
        header = opened_checkpoint(path, tell) if path is not None else None
    except CheckpointError as error:
        if path == best or not best.exists():
            raise
        path, header, why = best, opened_checkpoint(best, tell), str(error)
    saved_by = folder.model() if header is None else header["model"]
    if saved_by not in (None, model):
        named = saved_by if saved_by in MODELS else f"FILE.py, with the file of {saved_by},"
        raise CheckpointError(
            f"the run in {folder.path} is one of the model {saved_by}; "
            f"write amphw train {named} --resume {folder.path}"
        )
    if path is not None and header is not None:
        had = int(header["counters"].get("epoch", 0))
        if path.name == BEST:
            tell(f"{why}; going on from {path}, of epoch {had}")
        return had, path
    if folder.file(SUMMARY).exists():
        raise CheckpointError(
            f"the run in {folder.path} has ended and saved no checkpoint to go on from; for the same again: "
            f"--config {folder.file(CONFIG)} --out another folder"
        )
    tell(f"the run in {folder.path} was ended before its first checkpoint; it begins afresh")
    return 0, None


def on_these_devices(
    cfg: RunConfig[Any], device: str, saved: RunFolder, tell: Callable[[str], None]
) -> RunConfig[Any]:
    """The settings of a run that goes on, without what they say of other devices where this is just one.

    Raises ConfigError where it is several, which may be placed otherwise.
    """
    made = make_device(device)
    had = saved_settings(saved).get("device", {})
    if any(getattr(cfg.device, setting) != had.get(setting) for setting in nowhere(cfg, made)):
        return cfg  # it has been set for this run: what is wrong with it is said there
    if isinstance(made, Places):
        if wrong := saved_for_others(cfg, made):
            raise ConfigError(wrong)
        return cfg
    cfg, notes = fitting(cfg, made)
    for note in notes:
        tell(note)
    return cfg


def saved_settings(folder: RunFolder) -> dict[str, Any]:
    """The settings that the run in `folder` was resolved to."""
    path = folder.file(CONFIG)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"cannot read the settings of the run in {folder.path} ({error}); start a new run in another "
            "folder"
        ) from error
