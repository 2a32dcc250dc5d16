"""The peers: the same models in other frameworks, each in a process of its own.

This folder is run by an interpreter that need not have amphw (`python benchmarks/peers SPEC.json`), so its
files import one another relatively, numpy, the framework, and nothing else but two files of `amphw/bench`
that need nothing themselves: `forms`, the list of forms, and `serving`, the protocol of measured processes.
"""

import os
from pathlib import Path

__path__.append(os.environ.get("AMPHW_BENCH") or str(Path(__file__).resolve().parents[2] / "amphw" / "bench"))
