"""The folder that a run writes, and the atomic file write that everything in it goes through.

A run may die at any moment, most likely while the disk is filling up. So no file is ever changed in place:
the new contents go to a temporary file in the same directory (a rename across file systems is a copy), are
synced, and replace the old file in one rename. A reader sees the old file or the new one, whole.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from amphw.host.records import json_safe
from amphw.host.run_lock import LOCK, locked
from amphw.ir.errors import AmphwError

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.json"
MODEL = "model.json"
"""What the model is, where its source need not be."""
SUMMARY = "summary.json"

# Any of these in a directory means that it belongs to a run already.
_MARKS = (CONFIG, ENVIRONMENT, METRICS, SUMMARY)

_HELD = (
    "{root} already holds a run ({mark} is there); choose another run folder, "
    "or continue that run with --resume (resume=True in Python)"
)

_ADVICE = {
    errno.ENOSPC: "free space on that disk, or choose a place on another one",
    errno.EDQUOT: "free space within your quota, or choose another place",
    errno.EFBIG: "raise the file size limit (ulimit -f), or choose a file system without one",
    errno.EACCES: "give yourself write permission there, or choose another place",
    errno.EPERM: "give yourself write permission there, or choose another place",
    errno.EROFS: "choose a place on a writable file system",
    errno.ENOTDIR: "a part of that path is a file; choose another place",
    errno.EEXIST: "a file is in the way; choose another place",
    errno.ENAMETOOLONG: "choose a shorter path",
}


class RunFolderError(AmphwError):
    """A run folder cannot be used; the message names it and says what to do."""


class WriteError(RunFolderError):
    """A file could not be replaced. `errno` is the system's; the file is as it was before, and no temporary
    is left.

    The one exception is a failed sync of the directory after the rename; the message then says so.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        # Without a default, unpickling would fail, which has the message alone here and sets the rest after.
        super().__init__(message)
        self.errno = code


def write_atomic(path: Path, *data: bytes | memoryview) -> None:
    """Replace `path` by all of `data`, so that a crash leaves the old contents or the new. Makes parent
    directories.

    Raises WriteError naming the file, the cause and the remedy; the old file is then untouched.
    """
    path = Path(path)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                for part in data:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            # Also on Ctrl-C: a half-written temporary on a full disk is what keeps it full.
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        kept = "the previous version is untouched" if path.exists() else "nothing was left behind"
        raise WriteError(
            f"cannot write {path}: {_reason(error)}; {kept}. To go on, {_advice(error)}.", error.errno
        ) from error
    _sync_directory(path)


def make_writable(folder: Path) -> None:
    """Make `folder` and see that a file can be written into it, for a caller that has long work to do first.

    Raises WriteError naming the folder, the cause and the remedy.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise WriteError(
            f"cannot write into {folder}: {_reason(error)}. To go on, {_advice(error)}.", error.errno
        ) from error


def _sync_directory(path: Path) -> None:
    """Make the rename itself durable: Windows cannot open a directory, some network disks cannot sync one."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            return
        raise WriteError(
            f"{path} was written, but its directory could not be synced: {_reason(error)}; "
            f"a power cut may undo it. To go on, {_advice(error)}.",
            error.errno,
        ) from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, "check that disk and its permissions, or choose another place")


@dataclass(frozen=True)
class RunFolder:
    """One run's directory: config.toml, environment.json, metrics.json, summary.json, checkpoints, plots.

    new: whether it was made here for a new run, rather than found.
    """

    path: Path
    new: bool = False

    @classmethod
    def create(cls, root: Path | None, model: str, config: str | None = None) -> RunFolder:
        """Claim a directory for a new run and record the environment in it, with the model's name.

        `root` is the directory itself; it may exist, but may not hold a run. None means `runs/<model>-<UTC
        stamp>` under the current directory, with a number added if two runs start in one second. `config` is
        the TOML text of the run's configuration, so that it can be begun again if it is killed before it
        begins; None for a folder that holds the folders of other runs. Raises RunFolderError (another run is
        there, or it is a file) and WriteError.
        """
        if root is None:
            folder = cls(claim_folder(model), new=True)
        else:
            root = Path(root)
            if root.exists() and not root.is_dir():
                raise RunFolderError(f"{root} is a file, not a folder; choose another run folder")
            held = [name for name in _MARKS if (root / name).exists()]
            if held:
                if (root / LOCK).exists():
                    with contextlib.suppress(WriteError), cls(root).held():
                        pass  # one that is under way is told as such
                raise RunFolderError(_HELD.format(root=root, mark=held[0]))
            folder = cls(root, new=True)
        folder._claim(model, config)
        return folder

    def _claim(self, model: str, config: str | None) -> None:
        """Record the environment; of two runs that start in one folder at the same moment, one is refused."""
        recorded = environment() | {"model": model, "run": secrets.token_hex(8)}
        mark = self.file(ENVIRONMENT)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            mark.open("xb").close()  # fails if it exists
        except FileExistsError:
            raise RunFolderError(_HELD.format(root=self.path, mark=ENVIRONMENT)) from None
        except OSError:
            pass  # the write below fails for the same reason, and says it better
        try:
            if config is not None:
                self.write_text(CONFIG, config)
            self.write_json(ENVIRONMENT, recorded)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give a new folder up where its run was refused before it began: another one may claim it."""
        if not self.new:
            return
        # The lock comes last: where an open file cannot be removed, what marks a run is gone all the same.
        for name in (CONFIG, MODEL, ENVIRONMENT, LOCK):
            with contextlib.suppress(OSError):
                self.file(name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()  # unless somebody else has files in it

    @contextmanager
    def held(self) -> Iterator[RunFolder]:
        """Keep other runs out of the folder while inside. Raises RunFolderError where one is in it."""
        with contextlib.ExitStack() as inside:
            try:
                inside.enter_context(locked(self.path))
            except BlockingIOError as error:
                raise RunFolderError(
                    f"a run is under way in {self.path} ({error.strerror}); wait for its end, or stop it "
                    "with Ctrl-C, which saves it"
                ) from error
            except OSError as error:
                raise WriteError(
                    f"cannot write {self.file(LOCK)}: {_reason(error)}. To go on, {_advice(error)}.",
                    error.errno,
                ) from error
            yield self

    def model(self) -> str | None:
        """The name of the run's model; None where it was not recorded."""
        with contextlib.suppress(RunFolderError, AttributeError):
            return self.read_json(ENVIRONMENT).get("model")
        return None

    @classmethod
    def open(cls, root: Path) -> RunFolder:
        """The folder of an earlier run, to resume or to report on. Raises RunFolderError if there is none."""
        root = Path(root)
        if not root.is_dir():
            raise RunFolderError(f"there is no run folder {root}; check the path, or start a new run")
        if not any((root / name).exists() for name in _MARKS):
            raise RunFolderError(f"{root} holds no run (none of {', '.join(_MARKS)}); check the path")
        return cls(root)

    def single(self) -> RunFolder:
        """Itself. Raises RunFolderError, naming the folders within, where it holds several runs, not one."""
        if self.file(CONFIG).exists():
            return self
        runs = sorted(path.parent.name for path in self.path.glob(f"*/{CONFIG}"))
        if runs:
            raise RunFolderError(
                f"{self.path} holds several runs: {', '.join(runs)}; name one of them, such as "
                f"{self.file(runs[0])}"
            )
        return self

    def file(self, name: str) -> Path:
        """The path of the file `name` in this folder; `name` may have directories in it."""
        return self.path / name

    def write_text(self, name: str, text: str) -> Path:
        """Replace the file `name` by `text` (UTF-8), atomically. Returns its path. Raises WriteError."""
        target = self.file(name)
        write_atomic(target, text.encode("utf-8"))
        return target

    def write_json(self, name: str, value: Any) -> Path:
        """Replace the file `name` by `value` as strict, indented JSON (NaN and inf become null), atomically.

        Records and other dataclasses are accepted. Returns the path. Raises WriteError; TypeError for what
        JSON cannot hold, before anything is written.
        """
        text = json.dumps(json_safe(value), indent=2, allow_nan=False, ensure_ascii=False)
        return self.write_text(name, text + "\n")

    def read_json(self, name: str) -> Any:
        """The contents of the JSON file `name`. Raises RunFolderError if it is absent or not JSON."""
        target = self.file(name)
        try:
            return json.loads(target.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunFolderError(
                f"cannot read {target}: {_reason(error)}; is {self.path} a finished run?"
            ) from error
        except ValueError as error:
            raise RunFolderError(
                f"{target} is not JSON ({error}); it was changed since the run wrote it"
            ) from error


def claim_folder(model: str) -> Path:
    """Make a run's folder as `RunFolder.create` does without a root -> its path. Raises WriteError."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "run"
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{stem}-{stamp}"
    for attempt in range(1, 1000):
        path = Path("runs") / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(parents=True)  # fails if it exists: two runs never share a folder
            return path
        except FileExistsError:
            if not Path("runs").is_dir():
                raise RunFolderError("'runs' is a file, not a folder; choose a run folder yourself") from None
        except OSError as error:
            raise WriteError(
                f"cannot make the run folder {path}: {_reason(error)}. To go on, {_advice(error)}.",
                error.errno,
            ) from error
    raise RunFolderError(f"runs/{name} and 998 numbered after it exist; choose a run folder yourself")


def environment() -> dict[str, Any]:
    """What a figure depends on besides the config: command, versions, platform, processor. Names no user, no
    host. commit: of the checkout that amphw lies in; empty where it is installed."""
    return {
        "command": _command(),
        "amphw": _version("amphw"),
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "platform": platform.platform(),
        "cpu": {**named_processor(), "count": os.cpu_count(), "usable": _usable_cpus()},
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _command() -> str:
    """The command line of this process: the program's name alone, and ~ for the folder of the user."""
    home = str(Path.home())
    arguments = sys.argv[1:] if home == "/" else [each.replace(home, "~") for each in sys.argv[1:]]
    return shlex.join([Path(sys.argv[0]).name, *arguments])


def _commit() -> str:
    """Of the checkout, with -dirty behind it where files differ; what other repositories say is not asked."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    ask = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _usable_cpus() -> int | None:
    """The CPUs that this process may run on, which a container or taskset makes fewer than the machine's."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def processor_flags() -> set[str]:
    """What the processor's instructions are called in /proc/cpuinfo; nothing where there is none."""
    told = _first_processor()
    return set((told.get("flags") or told.get("Features") or "").split())


def _first_processor() -> dict[str, str]:
    """What /proc/cpuinfo has of the first processor."""
    told: dict[str, str] = {}
    # platform.processor() is empty or just the architecture on Linux.
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            what, _, value = line.partition(":")
            told.setdefault(what.strip(), value.strip())
    return told


def named_processor() -> dict[str, Any]:
    """Its name; and family and model where they are told, since processors of several share a name."""
    told = _first_processor()
    names = [told[what] for what in ("model name", "Hardware", "cpu model") if what in told]
    name = names[0] if names else platform.processor() or platform.machine() or "unknown"
    numbers = {"family": told.get("cpu family", ""), "model": told.get("model", "")}
    return {"name": name} | {what: int(n) for what, n in numbers.items() if n.isdigit()}
