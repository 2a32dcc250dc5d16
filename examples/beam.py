"""Beam search: the most probable sentence of a language model, which the most probable words need not give.

The model guesses the next word from those before. Its sentences are drawn from a grammar in which the likely
first word goes on in many ways and others in one: "the" may be any animal, "every" is a bird. Who always says
the likeliest word ends with a sentence of probability 0.125, where another one has 0.3. `beam_search` keeps
the best beginnings instead; all it needs of a model is what it thinks of the next word, for several
beginnings at once.

    run = amphw.train("examples/beam.py")
    beam_search(next_words(run), width=5)[0]    # (its log probability, its words)

`amphw train examples/beam.py` stops when 75 % of all words are guessed, of which 78 % can be.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

WORDS = ("", "the", "every", "no", "cat", "dog", "bird", "fish", "sleeps", "runs", "sings", ".")
END, MOST = WORDS.index("."), 5


@dataclass(frozen=True)
class Config:
    width: int = knob(24, "width of a word and of the state")


class Sentences(PlainModel[Config]):
    name, config, summary = "beam", Config, "a language model, with a beam search for its best sentence"
    defaults = {
        "train": {"epochs": 10, "max_active_keys": 16, "target": 0.75},
        "update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 64, "clip": 1.0},
    }

    def write(self, cfg):
        embed, cell, head = fe.Embedding(len(WORDS), cfg.width), fe.GRU(cfg.width), fe.Linear(len(WORDS))

        def model(x):
            _, h = fe.scan(cell.step, fe.constant(cfg.width), embed(x.words.before))
            scores = fe.log_softmax(head(h))
            right = fe.is_best(scores, x.words.word)
            fe.loss(-fe.column(scores, x.words.word), accuracy=right, next=scores)

        words = {"before": fe.Int(len(WORDS)), "word": fe.Int(len(WORDS))}
        return model, fe.Record(words=fe.Sequence(fe.Record(**words), most=MOST))

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 4000 if part == "train" else 500
        return [instance(sentence(rng)) for _ in range(count)]


def sentence(rng):
    first = rng.choice(["the", "every", "no"], p=[0.5, 0.3, 0.2])
    who = {"the": rng.choice(["cat", "dog", "bird", "fish"]), "every": "bird", "no": "fish"}[first]
    does = {"cat": "sleeps", "dog": "runs", "bird": "sings", "fish": "sleeps"}[who]
    return [WORDS.index(word) for word in (first, who, does, ".")]


def instance(words):
    return {"words": [{"before": a, "word": b} for a, b in zip([0, *words], words, strict=False)]}


def next_words(run):
    """For each of several beginnings the log probabilities of the next word."""
    return lambda beginnings: [
        told["next"][-1] for told in run.predict([instance([*b, 0]) for b in beginnings])
    ]


def beam_search(next_words, width, end=END, most=MOST):
    """The `width` best sentences that it finds, the best first: pairs (log probability, words)."""
    going, ended = [(0.0, [])], []
    for _ in range(most):
        found = [
            (score + float(p), [*words, word])
            for (score, words), scores in zip(going, next_words([w for _, w in going]), strict=True)
            for word, p in enumerate(scores)
        ]
        best = sorted(found, reverse=True)[:width]
        ended += [x for x in best if x[1][-1] == end]
        going = [x for x in best if x[1][-1] != end]
        if not going:
            break
    return sorted(ended, reverse=True)[:width]
