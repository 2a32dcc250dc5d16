"""Stochastic depth (Huang et al., ECCV 2016): a deep residual network whose blocks are left out at random.

A block that is left out is not computed at all, for each image on its own. In inference all blocks run.
"""

from dataclasses import dataclass

from amphw import frontend as fe
from amphw.data.mnist import load_mnist, sample_mnist
from amphw.models.base import knob
from amphw.models.plain import PlainModel


@dataclass(frozen=True)
class Config:
    hidden: int = knob(64, "width of the network")
    blocks: int = knob(6, "residual blocks")
    skip: float = knob(0.3, "how often the last block is left out; earlier ones less often")
    sample: bool = knob(False, "use generated images, which need no download, instead of MNIST")


class Depth(PlainModel[Config]):
    name, config, summary = "depth", Config, "a residual network whose blocks are left out at random"
    defaults = {
        "train": {"epochs": 3, "max_active_keys": 8},
        "update": {"optimizer": "adam", "lr": 0.001, "min_update_interval": 64},
    }

    def write(self, cfg):
        first, head = fe.Linear(cfg.hidden), fe.Linear(10)
        blocks = [fe.Linear(cfg.hidden) for _ in range(cfg.blocks)]

        def model(x):
            h = fe.relu(first(x.pixels))
            for k, block in enumerate(blocks):
                # 1 / (1 - rate) where the block is kept, 0 where not; 1 in inference.
                kept = fe.dropout(fe.constant(1, 1.0), cfg.skip * (k + 1) / cfg.blocks)
                h = fe.cond(kept, lambda h, s, b=block: h + fe.relu(b(h)) * s, lambda h, s: h, h, kept)
            fe.classify(head(h), x.digit)

        return model, fe.Record(pixels=fe.Floats(784), digit=fe.Int(10))

    def data(self, cfg, seed, part):
        valid = part == "valid"
        if cfg.sample:
            images, labels = sample_mnist(500 if valid else 3000, 2 * seed + valid)
        else:
            images, labels = load_mnist("test" if valid else "train")
        return [{"pixels": p, "digit": int(d)} for p, d in zip(images, labels, strict=True)]
