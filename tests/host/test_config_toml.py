"""What `to_toml` writes, `resolve` reads back to an equal configuration."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hypothesis import given
from hypothesis import strategies as st

from amphw.host.config import DeviceConfig, RunConfig, TrainConfig, UpdateConfig, resolve
from amphw.host.config_toml import to_toml
from amphw.ir.config_fields import option


@dataclass(frozen=True)
class Model:
    name: str = option("x", "a name,\nany name")
    sizes: tuple[float, ...] = ()
    bound: int | None = None
    kind: Literal["a", 'b"'] = "a"


# Any text but surrogates, which no UTF-8 file can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=1e-300, allow_infinity=False)
UPDATES: dict[str, st.SearchStrategy[Any]] = {
    "min_update_interval": st.integers(1, 2**63 - 1),
    "optimizer": st.sampled_from(["sgd", "momentum", "adam", "adagrad"]),
    "lr": POSITIVE,
    "momentum": st.floats(0, 1, exclude_max=True),
}
CONFIGS = st.builds(
    RunConfig,
    st.builds(
        Model,
        TEXT,
        st.lists(NUMBERS).map(tuple),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.sampled_from(["a", 'b"']),
    ),
    st.builds(TrainConfig, target=st.none() | POSITIVE, trace=st.booleans()),
    st.builds(UpdateConfig, **UPDATES),
    st.dictionaries(TEXT, st.fixed_dictionaries({}, optional=UPDATES), max_size=3),
    st.builds(DeviceConfig, workers=st.integers(1, 64)),
)

# Recommended settings that differ from every default: reading back must not fall through to them.
RECOMMENDED = {
    "model": {"name": "y", "sizes": [1.0], "bound": 9, "kind": 'b"'},
    "train": {"target": 0.5, "trace": False, "epochs": 3},
    "update": {"lr": 3.0, "clip": 1.0},
    "device": {"workers": 7},
}


@given(CONFIGS)
def test_round_trip(config: RunConfig[Model]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_bytes(to_toml(config).encode())
        assert resolve(Model, RECOMMENDED, path) == config


def test_form() -> None:
    config = resolve(Model, {}, None, ["sizes=[1,0.5]", "workers=2", "update.nodes.a b.lr=1", 'kind=b"'])
    text = to_toml(config)
    assert text.startswith(
        '[model]\nname = "x"  # a name, any name\nsizes = [1.0, 0.5]\nbound = "none"\nkind = "b\\""\n'
        "\n[train]\n"
        "epochs = 20  # passes over the training set\n"
    )
    assert (
        '\n\n[update.nodes."a b"]\nlr = 1.0  # learning rate\n\n[device]\nworkers = 2  # on cpu: threads'
        in text
    )
