"""Adaptive computation time (Graves 2016): a recurrent network that thinks as long as it wants.

Each step reads a row of zeros and ones and must say whether all ones so far are odd in number. The cell runs
until its halting unit has spent 1, at most `most` times; the answer is the mean of its states by what each
spent, and thinking costs `price` a turn.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel


@dataclass(frozen=True)
class Config:
    hidden: int = knob(32, "width of the recurrent state")
    most: int = knob(5, "turns for one number, at most")
    price: float = knob(0.01, "cost of a turn")


class Ponder(PlainModel[Config]):
    name, config, summary = "ponder", Config, "a recurrent network that decides how long it thinks"
    metrics = ("loss", "accuracy", "turns")
    defaults = {
        "train": {"epochs": 12, "max_active_keys": 8},
        "update": {"optimizer": "adam", "lr": 0.01, "min_update_interval": 16},
    }

    def write(self, cfg):
        cell, halt, head = fe.GRU(cfg.hidden), fe.Linear(1), fe.Linear(2)

        def think(h, row):
            def turn(carry):
                s, answer, spent, turns = carry
                s = cell(s, row)
                p = fe.sigmoid(halt(s))
                p = p - fe.relu(spent + p - 1.0)  # no more than what is left of 1
                return s, answer + s * p, spent + p, turns + 1.0

            begin = (h, fe.constant(cfg.hidden), fe.constant(1), fe.constant(1))
            s, answer, spent, turns = fe.while_loop(lambda c: 0.99 - c[2], turn, begin, most=cfg.most)
            return answer + s * (1.0 - spent), turns

        def model(x):
            h, turns = fe.scan(think, fe.constant(cfg.hidden), x.rows)
            fe.loss_of(scored, head(h), fe.reduce(turns, "mean"), x.odd, reported=("accuracy", "turns"))

        def scored(y, turns, odd):
            return [fe.cross_entropy(y, odd) + turns * cfg.price, fe.is_best(y, odd), turns]

        return model, fe.Record(rows=fe.Sequence(fe.Floats(2), most=4), odd=fe.Int(2))

    def data(self, cfg, seed, part):
        rng = np.random.default_rng([seed, part == "valid"])
        found = [rng.integers(0, 2, (rng.integers(1, 5), 2)) for _ in range(4000 if part == "train" else 400)]
        return [{"rows": rows, "odd": int(rows.sum() % 2)} for rows in found]
