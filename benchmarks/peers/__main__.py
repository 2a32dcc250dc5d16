"""Runs the folder as a program, under a name that clashes with nothing the interpreter has installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

NAME = "amphw_bench_peers"


def main() -> None:
    here = Path(__file__).resolve().parent
    # The folder itself is no place to import from: its modules have plain names.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != here]
    spec = importlib.util.spec_from_file_location(
        NAME, here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    importlib.import_module(f"{NAME}.server").main(sys.argv[1:])


if __name__ == "__main__":
    main()
