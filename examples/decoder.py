"""A decoder that learns with the right letter before each one, and then reads what it says itself.

A word of up to six letters is to be said backwards, and then an end. In training every step is given the
letter before the one to say, an Integer of the instance (teacher forcing). Beside that the same cell, table
and head go on from the letter that they chose themselves, until that is the end: `accuracy` is the share of
words of which every letter is right so, `forced.accuracy` the share of letters with the right one before.
Both attend to the letters of the word.

`amphw train examples/decoder.py` stops when 97 % of all words are right.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

LETTERS, MOST, START, END = 10, 6, 10, 11


@dataclass(frozen=True)
class Config:
    width: int = knob(32, "width of a letter and of the states")


class Decoder(PlainModel[Config]):
    name, config, summary = "decoder", Config, "a decoder that reads what it says itself"
    defaults = {
        "train": {"epochs": 12, "max_active_keys": 16, "target": 0.97},
        "update": {"optimizer": "adam", "lr": 0.005, "min_update_interval": 64, "clip": 1.0},
    }

    def write(self, cfg):
        w = cfg.width
        embed, read, cell = fe.Embedding(LETTERS + 2, w), fe.GRU(w), fe.GRU(w)
        look, head = fe.Linear(w), fe.Linear(LETTERS + 2)

        def model(x):
            last, states = fe.scan(read.step, fe.constant(w), embed(x.word))

            def step(h, letter):
                h = cell(h, embed(letter))
                return h, head(h, fe.attention(look(h), states, states, over=x.word))

            def turn(carry):
                h, logits = step(carry["h"], carry["letter"])
                letter = fe.argmax(logits)
                return {"h": h, "letter": letter, "said": fe.concat(carry["said"][1:], letter)}

            _, logits = fe.scan(lambda h, pair: step(h, pair.before), last, x.backwards)
            fe.classify(logits, x.backwards.item.letter, name="forced")
            begin = {"h": last, "letter": fe.constant(1, START), "said": fe.constant(MOST + 1)}
            going = lambda c: fe.absolute(c["letter"] - END) - 0.5  # noqa: E731
            said = fe.while_loop(going, turn, begin, most=MOST + 1)["said"]
            shift = lambda s, pair: fe.concat(s[1:], fe.number(pair.letter))  # noqa: E731
            wanted = fe.fold(shift, fe.constant(MOST + 1), x.backwards)
            right = fe.above(-fe.sum_columns(fe.absolute(said - wanted)), -0.5)
            fe.loss(1.0 - right, said=said, accuracy=right)

        pair = fe.Record(before=fe.Int(LETTERS + 2), letter=fe.Int(LETTERS + 2))
        return model, fe.Record(
            word=fe.Sequence(fe.Int(LETTERS), MOST), backwards=fe.Sequence(pair, MOST + 1)
        )

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 6000 if part == "train" else 500
        return [backwards(rng.integers(0, LETTERS, rng.integers(1, MOST + 1)).tolist()) for _ in range(count)]


def backwards(word):
    pairs = zip([START, *word[::-1]], [*word[::-1], END], strict=True)
    return {"word": word, "backwards": [{"before": a, "letter": b} for a, b in pairs]}
