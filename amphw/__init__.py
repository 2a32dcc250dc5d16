"""Asynchronous model-parallel (AMP) training of dynamic neural networks.

A model is a static graph whose control flow is dynamic: every message carries the state that says where
in the computation it stands. The same description runs on a multi-core CPU, on OpenCL devices and on FPGAs.

>>> import amphw
>>> from amphw import frontend as fe
>>> embed, cell, head = fe.Embedding(2, 4), fe.GRU(8), fe.Linear(2)
>>> def parity(x):
...     fe.classify(head(fe.fold(cell, fe.constant(8), embed(x.bits))), x.odd)
>>> spec = fe.Record(bits=fe.Sequence(fe.Int(2), most=12), odd=fe.Int(2))
>>> data = [{"bits": [1, 0, 1], "odd": 0}, {"bits": [1, 1, 1, 0], "odd": 1}]
>>> run = amphw.train(parity, data * 10, spec=spec, epochs=2, progress=False)
>>> len(run.predict([{"bits": [1, 0]}]))
1
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from amphw.host.records import EpochRecord
    from amphw.ir.errors import AmphwError
    from amphw.library.estimating.ask import estimated, placed
    from amphw.library.estimating.results import Estimate, Placement
    from amphw.library.run import Run, load
    from amphw.library.train import Callback, Epoch, train

_WHERE = {
    "AmphwError": "amphw.ir.errors",
    "Callback": "amphw.library.train",
    "Epoch": "amphw.library.train",
    "EpochRecord": "amphw.host.records",
    "Estimate": "amphw.library.estimating.results",
    "Placement": "amphw.library.estimating.results",
    "Run": "amphw.library.run",
    "estimated": "amphw.library.estimating.ask",
    "load": "amphw.library.run",
    "placed": "amphw.library.estimating.ask",
    "train": "amphw.library.train",
}
"""What this package hands out, by name; imported when it is first asked for, as most need little of it."""

__all__ = [
    "AmphwError",
    "Callback",
    "Epoch",
    "EpochRecord",
    "Estimate",
    "Placement",
    "Run",
    "estimated",
    "load",
    "placed",
    "train",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _WHERE:
        raise AttributeError(f"module 'amphw' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
