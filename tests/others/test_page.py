"""The page about models of others shows what its record has."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_has_the_records_figures() -> None:
    page = (ROOT / "docs/models-of-others.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "benchmarks/results/models-of-others.json").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| .* \| ([\d,]+) in (\d+) tensors \| (\de-\d+) \|$", page, re.M)
    assert [(int(count.replace(",", "")), int(tensors), float(most)) for count, tensors, most in rows] == [
        (m["parameters"], m["tensors"], float(f"{m['largest_difference']:.0e}"))
        for m in record["models"].values()
    ]
    for package, version in record["versions"].items():
        assert f"`{package}` {version.partition('+')[0]}" in page
    cpu = record["environment"]["cpu"]
    assert f"{cpu['name']} of family {cpu['family']}" in page
    assert max(m["largest_difference"] for m in record["models"].values()) < 1e-6
