"""The file in a run's folder that says what the model is, where its source need not be."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from amphw.frontend.saved import compiled_from_json, compiled_to_json
from amphw.host.run_folder import MODEL, RunFolder, RunFolderError
from amphw.library.function_model import FunctionModel
from amphw.models import MODELS, Model, ModelError, get_model


class Scratch:
    """A folder that goes when nobody has this object any more, or the program ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="amphw-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def written_model(model: Model[Any]) -> str:
    """What goes into the file: of a function its graph and specification; other models are made by their
    names, and have none. Raises FrontendError for what cannot be written."""
    if not isinstance(model, FunctionModel):
        return ""
    return json.dumps(compiled_to_json(model.compiled(model.config())), allow_nan=False) + "\n"


def read_model(folder: RunFolder, given: str | Model[Any] | None) -> Model[Any]:
    """The model of a run's folder, or the one that is given for it. Raises ModelError where neither is there,
    and RunFolderError for a damaged file."""
    if given is not None:
        return get_model(given) if isinstance(given, str) else given
    if folder.file(MODEL).exists():
        try:
            return FunctionModel(compiled_from_json(folder.read_json(MODEL)))
        except ValueError as error:
            raise RunFolderError(f"{folder.file(MODEL)}: {error}") from error
    name = folder.model()
    if name is not None and name in MODELS:
        return get_model(name)
    raise ModelError(
        f"the run in {folder.path} trained the model {name}, which is in a file; name it: "
        f"amphw.load({str(folder.path)!r}, model='FILE.py')"
    )


def copied(source: Path, target: Path) -> None:
    """A run's folder into a new one. Raises RunFolderError where there is one, and WriteError."""
    from amphw.host.run_folder import WriteError, write_atomic
    from amphw.host.run_lock import LOCK

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunFolderError(f"{target} is there already, and not empty; choose another folder")
    try:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.name != LOCK:
                (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(target / path.relative_to(source), path.read_bytes())
    except OSError as error:
        raise WriteError(f"cannot save the run in {target}: {error.strerror}", error.errno) from error
