"""A decoder-only Transformer (Vaswani et al., NIPS 2017) that goes on with what it has seen before.

In a sequence of up to twelve letters every position is to say which letter followed the last time that its
own letter occurred, or that it has not occurred before. Two blocks of causal attention suffice: the first
lets a position know the letter before it, the second finds the position whose letter before it is the own one
(induction heads, Olsson et al. 2022).

`amphw train examples/transformer.py` stops at 97 % of all positions; saying that none has occurred is right
for 65 %.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

LETTERS, MOST = 8, 12


@dataclass(frozen=True)
class Config:
    width: int = knob(32, "width of a position")
    heads: int = knob(2, "heads of attention, each with as many columns")


class Transformer(PlainModel[Config]):
    name, config, summary = "transformer", Config, "a decoder-only Transformer that finds what came before"
    defaults = {
        "train": {"epochs": 40, "max_active_keys": 16, "target": 0.97},
        "update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 128, "clip": 1.0},
    }

    def write(self, cfg):
        w, heads = cfg.width, cfg.heads
        embed, place = fe.Embedding(LETTERS, w, init="normal:0.3"), fe.Embedding(MOST, w, init="normal:0.3")
        last, head = fe.LayerNorm(), fe.Linear(LETTERS + 1)

        def block():
            before, after, inner, outer = fe.LayerNorm(), fe.LayerNorm(), fe.Linear(2 * w), fe.Linear(w)
            query, key, value, mix = (fe.Linear(w) for _ in range(4))

            def compute(h, over):
                n = before(h)
                seen = fe.attention(query(n), key(n), value(n), over=over, heads=heads, causal=True)
                h = h + mix(seen)
                return h + outer(fe.gelu(inner(after(h))))

            return compute

        blocks = [block() for _ in range(2)]

        def model(x):
            h = embed(x.text.letter) + place(x.text.position)
            for each in blocks:
                h = each(h, x.text)
            fe.classify(head(last(h)), x.text.followed)

        letter = fe.Record(letter=fe.Int(LETTERS), followed=fe.Int(LETTERS + 1))
        return model, fe.Record(text=fe.Sequence(letter, MOST))

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 6000 if part == "train" else 500
        return [{"text": text(rng.integers(0, LETTERS, rng.integers(2, MOST + 1)))} for _ in range(count)]


def text(letters: np.ndarray) -> dict:
    followed = [LETTERS] * len(letters)
    for at, letter in enumerate(letters):
        before = [k for k in range(at) if letters[k] == letter]
        followed[at] = int(letters[before[-1] + 1]) if before else LETTERS
    return {"letter": letters, "followed": followed}
