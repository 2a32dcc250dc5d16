"""Products of long builds, kept by the hash of everything that they depend on.

They lie in `$AMPHW_CACHE/rtl` or `~/.cache/amphw/rtl`, one folder a product. A folder gets its name only when
it is complete, so that a build that is broken off leaves nothing that looks like a product, and so that
several processes may build the same product at once: the first to finish wins.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from amphw.rtl.toolchain.environment import ToolchainError


def cache_root() -> Path:
    """The folder of all products. It need not exist yet."""
    configured = os.environ.get("AMPHW_CACHE")
    root = Path(configured).expanduser() if configured else Path.home() / ".cache" / "amphw"
    return root.absolute() / "rtl"


def key(*parts: str) -> str:
    """The name of the product that depends on `parts` and on nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()[:32]


def cached(kind: str, name: str, build: Callable[[Path], None]) -> Path:
    """The folder of product `name` of a kind; `build` fills it, given an empty folder, unless it exists.

    Raises ToolchainError where the cache cannot be written, and whatever `build` raises.
    """
    target = cache_root() / kind / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{name[:8]}-", dir=target.parent))
    except OSError as error:
        raise ToolchainError(
            f"{target.parent} cannot be written ({error.strerror}). Set AMPHW_CACHE to a folder that can."
        ) from error
    try:
        build(work)
        work.chmod(0o755)  # temporary folders are private, a cache may be shared
        try:
            work.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
