"""Gradients of models that others wrote, taken from installed packages, beside those of autograd.

    python benchmarks/models_of_others.py [--instances 8] [--json FILE]

Each model of `benchmarks/others` is run whole, by its own forward function, and by amphw with the layers that
`fe.from_torch` makes of its pieces. The table of docs/models-of-others.md comes from here.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Any

from record import save

from benchmarks.others.cases import CASES
from benchmarks.others.whole import Case, differences

PACKAGES = ("torch", "torch_geometric", "transformers")


def measured(case: Case, instances: int) -> dict[str, Any]:
    made = case.made()
    data = case.data(instances, 0)
    ours, theirs = made.ours(data), made.theirs(data)
    found = differences(made.gradients(data))
    worst = max(found, key=lambda path: found[path])
    return {
        "source": case.source,
        "tensors": len(found),
        "parameters": sum(p.numel() for p in made.module.parameters()),
        "loss": theirs,
        "loss_difference": abs(ours - theirs) / abs(theirs),
        "largest_difference": found[worst],
        "of": worst,
        "differences": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instances", type=int, default=8, help="whose gradients are added up")
    parser.add_argument("--json", type=Path, help="where the record is written")
    args = parser.parse_args()
    models = {}
    for name, case in CASES.items():
        found = models[name] = measured(case, args.instances)
        print(
            f"{name:10} {found['source']:60} {found['tensors']:3} tensors, {found['parameters']:6} numbers, "
            f"largest difference {found['largest_difference']:.1e} of {found['of']}"
        )
    if args.json:
        versions = {package: version(package) for package in PACKAGES}
        save({"versions": versions, "instances": args.instances, "models": models}, args.json)


if __name__ == "__main__":
    main()
