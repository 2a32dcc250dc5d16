"""A shift-reduce parser that learns to build a tree while it reads (after SPINN, Bowman et al., ACL 2016).

Sentences are digits; a reader joins two neighbours whenever the next digit is below 5 or there is none. The
meaning of a join is (2 left + right) mod 3. The network gets the words, their meaning, and the reader's
actions to learn from. In each step it scores both actions, does the better one that is possible, and goes on
from there: the stack travels with the loop, and no two sentences do the same at the same time.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

MOST = 6  # words


@dataclass(frozen=True)
class Config:
    width: int = knob(24, "width of a word and of a phrase")


class Parser(PlainModel[Config]):
    name, config, summary = "parser", Config, "a shift-reduce parser that decides its own actions"
    defaults = {
        "train": {"epochs": 15, "max_active_keys": 16},
        "update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 64},
    }

    def write(self, cfg):
        w = cfg.width
        embed, track, act = fe.Embedding(10, w, init="normal:0.5"), fe.Linear(2 * w), fe.Linear(2)
        inside, join, head = fe.Linear(2 * w), fe.Linear(w), fe.Linear(3)

        def shift(stack, words, deep, left):
            rest = fe.concat(words[w:], fe.constant(w))
            return fe.concat(words[:w], stack[:-w]), rest, deep + 1.0, left - 1.0

        def reduce(stack, words, deep, left):
            phrase = fe.tanh(join(fe.relu(inside(stack[: 2 * w]))))
            return fe.concat(phrase, stack[2 * w :], fe.constant(w)), words, deep - 1.0, left

        def step(carry, action):
            stack, words, deep, left = carry
            none, two = 1.0 - fe.minimum(left, 1.0), fe.minimum(fe.relu(deep - 1.0), 1.0)
            scores = act(fe.tanh(track(fe.concat(words[:w], stack[: 2 * w], none, two))))
            possible = fe.concat(none * -100.0, (two - 1.0) * 100.0)
            return fe.switch(scores + possible, [shift, reduce], *carry), scores + possible

        def model(x):
            put = lambda all, v: fe.concat(v, all[:-w])  # noqa: E731
            words = fe.fold(put, fe.constant(MOST * w), embed(x.words), reverse=True)
            begin = (fe.constant(MOST * w), words, fe.constant(1), fe.number(x.words.length))
            (stack, *_), scores = fe.scan(step, begin, x.actions)
            fe.classify(scores, x.actions, name="parse")
            fe.classify(head(stack[:w]), x.meaning)

        words, actions = fe.Sequence(fe.Int(10), MOST), fe.Sequence(fe.Int(2), 2 * MOST - 1)
        return model, fe.Record(words=words, actions=actions, meaning=fe.Int(3))

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 4000 if part == "train" else 500
        return [read(rng.integers(0, 10, rng.integers(1, MOST + 1))) for _ in range(count)]


def read(words):
    stack, actions, rest = [], [], list(words)
    while rest or len(stack) > 1:
        reduce = len(stack) > 1 and (not rest or rest[0] < 5)
        actions.append(int(reduce))
        if reduce:
            right, left = stack.pop(), stack.pop()
            stack.append((2 * left + right) % 3)
        else:
            stack.append(rest.pop(0) % 3)
    return {"words": words, "actions": actions, "meaning": int(stack[0])}
