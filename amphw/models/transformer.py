"""A Transformer encoder (Vaswani et al., NIPS 2017) that compares counts, in sequences of different lengths.

At every position of a sequence of letters it says which letter, other than the one there, occurs most often.
Each position has to look at all others, on both sides, and to leave out its own letter. Layers are normalised
behind their residual connections, as in the paper. Queries, keys and values are the three parts of one layer,
which reads each position once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.ir.device import Report
from amphw.ir.instance import Instance
from amphw.models.base import ModelError, at_least, knob
from amphw.models.plain import Part, PlainModel

LETTERS = len(ascii_lowercase)
LEAST = 4  # letters of a sequence
_VALID = 500  # sequences to validate on


@dataclass(frozen=True)
class TransformerConfig:
    """Section [model] of the Transformer encoder."""

    layers: int = knob(2, "layers, each of attention and of a perceptron")
    width: int = knob(128, "width of a position")
    heads: int = knob(4, "heads of attention, each with as many columns")
    inner: int = knob(256, "width within the perceptrons")
    length: int = knob(48, "letters of the longest sequences; the shortest have 4")
    sequences: int = knob(20_000, "generated sequences to train on")

    def __post_init__(self) -> None:
        names = ("layers", "width", "heads", "inner", "sequences")
        at_least(1, **{name: getattr(self, name) for name in names})
        at_least(LEAST, length=self.length)
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}, expected a divisor of width, which is {self.width}")


class Transformer(PlainModel[TransformerConfig]):
    """The encoder; throughput counts sequences, loss and accuracy are means over positions."""

    name = "transformer"
    summary = "a Transformer encoder that says which other letter of a sequence occurs most often"
    config = TransformerConfig
    # Intervals are gradient rows, which are positions.
    defaults = {
        "train": {"epochs": 10, "max_active_keys": 8, "target": 0.95},
        "update": {"optimizer": "adam", "lr": 0.001, "min_update_interval": 800},
        # What a few sequences need from layer to layer still fits into a core's cache.
        "device": {"frame_rows": 64},
    }
    counted = "sequences"

    def write(self, cfg: TransformerConfig) -> tuple[Callable[[Any], None], fe.Spec]:
        """The function, and a sequence of letters with the answer at each."""
        letters = fe.Embedding(LETTERS, cfg.width, init="normal:0.3", name="embed")
        places = fe.Embedding(cfg.length, cfg.width, init="normal:0.3", name="place")
        layers = [_layer(cfg, str(number)) for number in range(cfg.layers)]
        head = fe.Linear(LETTERS, name="head")

        def model(x: Any) -> None:
            h = letters(x.text.letter) + places(x.text.position)
            for each in layers:
                h = each(h, x.text)
            fe.classify(head(h), x.text.other)

        letter = fe.Record(letter=fe.Int(LETTERS), other=fe.Int(LETTERS))
        return model, fe.Record(text=fe.Sequence(letter, cfg.length))

    def data(self, cfg: TransformerConfig, seed: int, part: Part) -> list[Any]:
        """Sequences of all lengths equally likely, each over 2 to 26 letters of its own."""
        rng = np.random.default_rng([seed, part == "valid"])
        return [_drawn(rng, cfg.length) for _ in range(cfg.sequences if part == "train" else _VALID)]

    def parse(self, cfg: TransformerConfig, text: str) -> Instance:
        """A word of small letters, no longer than the longest sequence."""
        word = text.strip()
        if not 1 <= len(word) <= cfg.length or not set(word) <= set(ascii_lowercase):
            raise ModelError(
                f"'{word}' is no word of 1 to {cfg.length} letters from a to z, such as 'banana'"
            )
        numbers = np.array([ascii_lowercase.index(letter) for letter in word])
        return self.compiled(cfg).encode({"text": _answered(numbers)})

    def explain(self, cfg: TransformerConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """The letters that are said to be the most frequent other ones, and those that are, as words."""
        said = super().explain(cfg, instance, report)["prediction"]
        return {"prediction": _word(said), "label": _word(instance.tables["text_other"])}


def _layer(cfg: TransformerConfig, number: str) -> Callable[[Any, Any], Any]:
    """A layer of the encoder, whose nodes have its number behind their names."""
    w = cfg.width
    parts, mix = fe.Linear(3 * w, name="parts" + number), fe.Linear(w, name="mix" + number)
    inner, outer = fe.Linear(cfg.inner, name="inner" + number), fe.Linear(w, name="outer" + number)
    seen, thought = (fe.LayerNorm(name=name + number) for name in ("seen", "thought"))

    def compute(h: Any, over: Any) -> Any:
        query, key, value = fe.split(parts(h), 3)
        looked = fe.attention(query, key, value, over=over, heads=cfg.heads)
        h = seen(h + mix(looked))
        return thought(h + outer(fe.relu(inner(h))))

    return compute


def _drawn(rng: np.random.Generator, most: int) -> dict[str, Any]:
    own = rng.permutation(LETTERS)[: rng.integers(2, LETTERS + 1)]
    return {"text": _answered(rng.choice(own, rng.integers(LEAST, most + 1)))}


def _answered(letters: np.ndarray) -> dict[str, np.ndarray]:
    """Letters by number, and the most frequent other one of each: of several the first in the alphabet, and
    the letter itself where there is no other."""
    occurs = np.bincount(letters, minlength=LETTERS)
    others = np.where(np.arange(LETTERS) == letters[:, None], 0, occurs)
    return {"letter": letters, "other": np.where(others.any(1), others.argmax(1), letters)}


def _word(numbers: Iterable[float]) -> str:
    return "".join(ascii_lowercase[int(number)] for number in numbers)
