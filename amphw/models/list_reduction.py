"""A recurrent network on list reduction (AMPNet, arXiv 1705.09786, section 6): the loop of the papers.

    start - h0 - enter - phi - cell(t) - relu - last? - yes - leave - head - loss
                          `--- next (t + 1) --- no ---'

One instance is a batch of sequences of equal length, so that a message carries a row for each of them and
nothing is padded. `h_t = relu([e_t, h_{t-1}] W + b)` with h_{-1} = 0; the last h is classified into the ten
results. With `cell=gru` a GRU is in the place of this cell and its ReLU. The cell looks the token up itself:
e_t is a row of its table E and no message, so a device may multiply the table with the weights once for each
update, not for each token. The cell may have replicas, among which the instance's number chooses (the paper's
Figure 4b).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from amphw.data.list_reduction import (
    CLASSES,
    FIRST_OPERATION,
    MAX_TOKENS,
    OPERATIONS,
    VOCABULARY,
    ListReduction,
    batches,
    datasets,
    true_result,
)
from amphw.ir.behaviour import StateMap
from amphw.ir.device import Report
from amphw.ir.expr import ROW, Attr, Const, Field, lift, table
from amphw.ir.functions import concat, gru, linear, relu, take, zeros
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance, Schema, TableType
from amphw.ir.nodes import NPT, PPT, Source
from amphw.ir.passes import replicate
from amphw.ir.program import ParamSpec, Program, trace
from amphw.ir.routing import Cond, Isu, Phi
from amphw.ir.state import state_field
from amphw.models.base import Instances, Model, ModelError, at_least, knob, limited
from amphw.models.classify import classification_loss, explained


@dataclass(frozen=True)
class ListReductionConfig:
    """Section [model] of the list-reduction RNN."""

    hidden: int = knob(128, "width of the recurrent state")
    embedding: int | None = knob(None, "width of a token's embedding; none: as wide as hidden")
    batch: int = knob(100, "sequences of equal length in an instance; 1: single sequences")
    cell: Literal["rnn", "gru"] = knob("rnn", "the recurrent cell: a linear layer with a ReLU, or a GRU")
    replicas: Literal[1, 2, 4, 8] = knob(1, "copies of the recurrent cell, averaged after every epoch")

    def __post_init__(self) -> None:
        at_least(1, hidden=self.hidden, embedding=self.embedding, batch=self.batch)


class ListReductionRNN(Model[ListReductionConfig]):
    """The variable-length RNN; what throughput counts are sequences."""

    name = "list-reduction"
    summary = "a variable-length RNN that reads an operation and digits and predicts the result"
    config = ListReductionConfig
    # Intervals are gradient rows: two batches of 100, at the cell for each of their 6 tokens on average. The
    # rate falls to 0 over the 16 epochs, which brings runs with many active keys to the accuracy of one.
    defaults = {
        "train": {"epochs": 16, "target": 0.97, "max_active_keys": 16},
        "update": {
            "optimizer": "adam",
            "lr": 0.003,
            "min_update_interval": 1200,
            "schedule": "cosine",
            "schedule_steps": 8000,
            "nodes": {"head": {"min_update_interval": 200}},
        },
        "device": {"frame_rows": 256},
    }
    # Without Adam. Where nothing limits a step, the network explodes from a quiet state: its states grow by a
    # factor for each token, and gradients with them. A limit near the median norm of a gradient, 0.3 for W,
    # prevents that also on devices that round and reorder, and allows twice the rate.
    momentum = {
        "train": {"max_active_keys": 4, "epochs": 30},
        "update": {
            "optimizer": "momentum",
            "lr": 0.1,
            "clip": 0.3,
            "warmup": 400,
            "min_update_interval": 600,
            "schedule_steps": 30000,
        },
    }
    lean = {"model": {"batch": 8}}
    counted = "sequences"

    def graph(self, cfg: ListReductionConfig) -> Graph:
        """Attributes length (2 .. 10) and batch; tables tokens [length, batch] and label [batch]."""
        hidden, embedding = cfg.hidden, cfg.embedding or cfg.hidden
        length, batch, t = Attr("length"), Attr("batch"), Field("t")
        step = state_field("t", length, MAX_TOKENS)
        schema = Schema(
            attrs={"length": MAX_TOKENS, "batch": cfg.batch},
            tables={
                "tokens": TableType((length, batch), lift(VOCABULARY)),
                "label": TableType((batch,), lift(CLASSES)),
            },
        )
        head = trace(
            lambda p, h: linear(h, p.W, p.b),
            {"h": hidden},
            {"W": (hidden, CLASSES), "b": ParamSpec("b", (CLASSES,), "zeros")},
        )
        g = Graph(self.name, schema)
        with g.region("time", "loop", "t"):
            g.add(Isu("enter", StateMap(add=((step, Const(0)),))))
            g.add(Phi("phi"))
            g.add(PPT("cell", _cell(cfg.cell, hidden, embedding)))
            if cfg.cell == "rnn":
                g.add(NPT("relu", trace(relu, {"x": hidden})))
            g.add(Cond("last", t.eq(length - 1)))
            g.add(Isu("next", StateMap(set={"t": t + 1})))
            g.add(Isu("leave", StateMap(drop={"t": None})))
        g.add(Source("start", rows=batch))
        g.add(NPT("h0", trace(lambda x: zeros(x, hidden), {"x": 0})))
        g.add(PPT("head", head))
        g.add(classification_loss(CLASSES))
        g.connect("start", "h0", "enter", "phi.a")
        g.connect("phi", "cell", *(["relu"] if cfg.cell == "rnn" else []), "last")
        g.connect("last.no", "next", "phi.b")
        g.connect("last.yes", "leave", "head", "loss")
        return replicate(g, "cell", cfg.replicas) if cfg.replicas > 1 else g

    def prepare(self, cfg: ListReductionConfig, seed: int) -> None:
        _datasets(seed)

    def training(self, cfg: ListReductionConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """100,000 sequences, freshly shuffled and batched in every epoch."""
        return _instances(_datasets(seed)[0], cfg.batch, seed, epoch, limit)

    def validation(self, cfg: ListReductionConfig, seed: int, limit: int = 0) -> Instances:
        """10,000 sequences that are no part of the training set's stream."""
        return _instances(_datasets(seed)[1], cfg.batch, seed, 0, limit)

    def parse(self, cfg: ListReductionConfig, text: str) -> Instance:
        """An operation and 1 to 9 digits, such as `range 3 1 4 1 5` -> one sequence with its true label."""
        words = text.split()
        if not words:
            raise ModelError(f"the line is empty; {_EXPECTED}")
        operation, digits = words[0], words[1:]
        if operation not in OPERATIONS:
            raise ModelError(f"'{operation}' is no operation; {_EXPECTED}")
        if not 1 <= len(digits) < MAX_TOKENS:
            raise ModelError(f"'{text.strip()}' has {len(digits)} digits; {_EXPECTED}")
        for word in digits:
            if len(word) != 1 or word not in "0123456789":
                raise ModelError(f"'{word}' is no digit; {_EXPECTED}")
        values = [int(word) for word in digits]
        tokens = np.array([[FIRST_OPERATION + OPERATIONS.index(operation)], *([v] for v in values)], np.int32)
        label = np.array([true_result(operation, values)], np.int32)
        return _instance(tokens, label)

    def explain(self, cfg: ListReductionConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """The predicted and the true result of the first sequence, and the probability given to the truth."""
        return explained(instance, report, self.loss_node)

    def size(self, instance: Instance) -> int:
        return instance.attrs["batch"]


_EXPECTED = f"expected an operation ({', '.join(OPERATIONS)}) and 1 to 9 digits, such as 'range 3 1 4 1 5'"


def _cell(kind: str, hidden: int, embedding: int) -> Program:
    """From h and the step's token to the next h; for "rnn" before its ReLU, which is a node of its own."""
    token = table("tokens")(Field("t"), ROW)
    table_of_tokens = ParamSpec("E", (VOCABULARY, embedding), "normal:0.1")
    if kind == "rnn":
        return trace(
            lambda p, h: linear(concat(take(p.E, token), h), p.W, p.b),
            {"h": hidden},
            {
                "E": table_of_tokens,
                "W": (embedding + hidden, hidden),
                "b": ParamSpec("b", (hidden,), "zeros"),
            },
        )
    return trace(
        lambda p, h: gru(linear(take(p.E, token), p.Wi, p.bi), linear(h, p.Wh, p.bh), h),
        {"h": hidden},
        {
            "E": table_of_tokens,
            "Wi": (embedding, 3 * hidden),
            "bi": ParamSpec("bi", (3 * hidden,), "zeros"),
            "Wh": (hidden, 3 * hidden),
            "bh": ParamSpec("bh", (3 * hidden,), "zeros"),
        },
    )


@lru_cache(maxsize=2)
def _datasets(seed: int) -> tuple[ListReduction, ListReduction]:
    return datasets(seed)


def _instances(data: ListReduction, batch: int, seed: int, epoch: int, limit: int) -> Instances:
    n = limited(len(data.lengths), limit)
    rows = batches(ListReduction(*(a[:n] for a in data)), batch, seed, epoch)
    return Instances(len(rows), lambda i: _instance(*rows[i]), n)


def _instance(tokens: np.ndarray, labels: np.ndarray) -> Instance:
    """tokens [length, batch] and labels [batch]; the copy keeps every table contiguous for a device."""
    length, batch = tokens.shape
    return Instance(
        {"length": length, "batch": batch}, {"tokens": np.ascontiguousarray(tokens), "label": labels}
    )
