"""Where a record goes: benchmarks/results/WORKLOAD-DATE-MACHINE.json, or a file by another name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amphw.host.records import json_safe
from amphw.host.run_folder import make_writable, write_atomic


def prepare(out: Path) -> None:
    """Make the folder that `save` will write into; called before anything is measured. Raises WriteError."""
    make_writable(out if _is_folder(out) else out.parent)


def save(record: Mapping[str, Any], out: Path) -> Path:
    """Write a record into the folder `out`, under a name of its own, or as the file `out`.

    Raises WriteError.
    """
    path = out / name(record) if _is_folder(out) else out
    write_atomic(path, (json.dumps(json_safe(record), indent=1, allow_nan=False) + "\n").encode("utf-8"))
    return path


def _is_folder(out: Path) -> bool:
    return out.is_dir() or out.suffix != ".json"


def name(record: Mapping[str, Any]) -> str:
    """WORKLOAD-DATE-MACHINE.json; a special mode stands behind the workload."""
    mode = record.get("mode", "throughput")
    what = record["workload"] if mode == "throughput" else f"{record['workload']}-{_slug(mode)}"
    return f"{what}-{record['date']}-{machine(record['environment'])}.json"


def machine(environment: Mapping[str, Any]) -> str:
    """The processor's name and how many of them can be used, as in amd-epyc-2."""
    cpu = environment["cpu"]
    return f"{_slug(cpu['name'])}-{cpu['usable']}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
