"""A memory network that looks at its facts as often as it takes: attention in a learned number of hops.

A story is a shuffled list of facts "whoever asks a is sent to b". The question is where somebody who begins
at a given place ends up: at the place that sends everybody to itself, one to five facts away. Each hop is an
attention over the facts, whose query is what the last hop found (Sukhbaatar et al., NIPS 2015); the network
spends 1 on halting, as in adaptive computation time (Graves 2016), and hops cost `price` each.

`amphw train examples/hops.py` answers all questions of the validation after one epoch (guessing hits 8 %),
and after five with 4.1 hops on average. It takes 4: the way, and one more to see that it has ended.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel

PLACES = 12


@dataclass(frozen=True)
class Config:
    width: int = knob(32, "width of a place")
    most: int = knob(6, "hops for one question, at most")
    price: float = knob(0.02, "cost of a hop")


class Hops(PlainModel[Config]):
    name, config, summary = "hops", Config, "a memory network that decides how often it looks"
    metrics = ("loss", "hops", "accuracy")
    defaults = {
        "train": {"epochs": 5, "max_active_keys": 16},
        "update": {"optimizer": "adam", "lr": 0.003, "min_update_interval": 64, "clip": 1.0},
    }

    def write(self, cfg):
        w = cfg.width
        asked, sent = fe.Embedding(PLACES, w), fe.Embedding(PLACES, w)
        look, halt, head = fe.Linear(w), fe.Linear(1), fe.Linear(PLACES)

        def model(x):
            keys, values = asked(x.facts.item.asked), sent(x.facts.item.sent)

            def hop(carry):
                here, answer, spent, hops, late = carry
                found = fe.attention(look(here), keys, values, over=x.facts)
                p = fe.sigmoid(halt(fe.absolute(found - here)))
                p = p - fe.relu(spent + p - 1.0)  # no more than what is left of 1
                return found, answer + found * p, spent + p, hops + 1.0, late + p * hops

            begin = (sent(x.question), fe.constant(w), fe.constant(1), fe.constant(1), fe.constant(1))
            here, answer, spent, hops, late = fe.while_loop(lambda c: 0.99 - c[2], hop, begin, most=cfg.most)
            y = head(answer + here * (1.0 - spent))
            cost = (late + hops * (1.0 - spent)) * cfg.price
            fe.loss(fe.cross_entropy(y, x.answer) + cost, hops=hops, accuracy=fe.is_best(y, x.answer))

        facts = fe.Sequence(fe.Record(asked=fe.Int(PLACES), sent=fe.Int(PLACES)), most=6)
        return model, fe.Record(facts=facts, question=fe.Int(PLACES), answer=fe.Int(PLACES))

    def data(self, cfg, seed, part):
        rng, count = np.random.default_rng([seed, part == "valid"]), 8000 if part == "train" else 1000
        return [story(rng) for _ in range(count)]


def story(rng):
    way = rng.permutation(PLACES)[: rng.integers(2, 7)].tolist()
    facts = [{"asked": a, "sent": b} for a, b in zip(way, [*way[1:], way[-1]], strict=True)]
    return {"facts": [facts[i] for i in rng.permutation(len(facts))], "question": way[0], "answer": way[-1]}
