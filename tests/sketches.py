"""Files of plots without their rendering, for tests of runs that do not look at the pictures."""

from __future__ import annotations

import base64
from pathlib import Path

from matplotlib.figure import Figure

from amphw.host.run_folder import write_atomic

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1" viewBox="0 0 1 1"><defs></defs></svg>'
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)


def saved(figure: Figure, *paths: Path) -> None:
    """Write an empty picture into files of plots, as `amphw.host.canvas.saved` writes a drawn one."""
    for path in map(Path, paths):
        write_atomic(path, {".svg": SVG, ".png": PNG}[path.suffix.lower()])
