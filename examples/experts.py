"""Top-1 mixture of experts (Shazeer et al., ICLR 2017): a gate sends each point to one small network.

The points lie on the arms of a spiral. Only the chosen expert is computed. Its answer is multiplied by the
probability of the choice, which is what gives the gate its gradient; `balance` keeps all experts in use.
"""

from dataclasses import dataclass

import numpy as np

from amphw import frontend as fe
from amphw.models.base import knob
from amphw.models.plain import PlainModel


@dataclass(frozen=True)
class Config:
    experts: int = knob(4, "small networks to choose from")
    hidden: int = knob(16, "width of a small network")
    balance: float = knob(0.01, "weight of the gate's entropy")


class Experts(PlainModel[Config]):
    name, config, summary = "experts", Config, "a mixture of experts, each point to one of them"
    defaults = {
        "train": {"epochs": 20, "max_active_keys": 8},
        "update": {"optimizer": "adam", "lr": 0.01, "min_update_interval": 64},
    }

    def write(self, cfg):
        gate = fe.Linear(cfg.experts)
        inside = [fe.Linear(cfg.hidden) for _ in range(cfg.experts)]
        outside = [fe.Linear(3) for _ in range(cfg.experts)]

        def expert(k):
            return lambda x: outside[k](fe.tanh(inside[k](x)))

        def model(x):
            p = fe.softmax(gate(x.point))
            y = fe.switch(p, [expert(k) for k in range(cfg.experts)], x.point) * fe.largest(p) * 4.0
            even = fe.sum_columns(p * fe.log(p + 1e-6)) * cfg.balance
            fe.classify(y, x.arm)
            fe.loss(even, name="balance")

        return model, fe.Record(point=fe.Floats(2), arm=fe.Int(3))

    def data(self, cfg, seed, part):
        rng = np.random.default_rng([seed, part == "valid"])
        count = 3000 if part == "train" else 600
        arm, far = rng.integers(0, 3, count), rng.random(count)
        turn = 2 * np.pi * (arm / 3 + 0.6 * far) + rng.normal(0, 0.1, count)
        points = 3 * far[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
        return [{"point": p, "arm": int(a)} for p, a in zip(points, arm, strict=True)]
