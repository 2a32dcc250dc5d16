"""A gated graph network on basic deduction, bAbI task 15 (AMPNet, arXiv 1705.09786, section 6).

Li et al. (ICLR 2016), section 5.1: a node's state begins as a mark of whether the question is about it. In
each of two steps every node sends its state along its edges, through a linear layer for their type, adds up
what it receives, and takes it in with a GRU. Every node gets a score, and the answer is the node with the
largest: a softmax over the nodes of the graph.

All nodes of a graph travel in one message, as its rows, which the edges of a type take apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from amphw import frontend as fe
from amphw.data.babi import FACTS, NODES, Question, inflate, load_babi, parse_question, sample_babi
from amphw.ir.device import Report
from amphw.ir.errors import InstanceError
from amphw.ir.graph import Graph
from amphw.ir.instance import Instance
from amphw.models.base import Instances, Model, ModelError, Remembered, at_least, knob, limited

_SAMPLES = (10_000, 1_000)  # generated questions to train and to validate on


@dataclass(frozen=True)
class Babi15Config:
    """Section [model] of the graph network on bAbI 15."""

    hidden: int = knob(5, "width of a node's state")
    steps: int = knob(2, "rounds of messages between the nodes")
    nodes: int = knob(NODES, "nodes of a graph; above 8, others are added that the question is not about")
    fresh: int = knob(100, "questions in an epoch; the next epoch has others, until all have been asked")
    sample: bool = knob(False, "use generated stories, which need no download, instead of bAbI's")

    def __post_init__(self) -> None:
        at_least(1, hidden=self.hidden, steps=self.steps, fresh=self.fresh)
        at_least(NODES, nodes=self.nodes)


class Babi15(Model[Babi15Config]):
    """The graph network; throughput counts questions."""

    name = "babi15"
    summary = "a gated graph network that deduces who is afraid of what"
    config = Babi15Config
    # Intervals are gradient rows: at update, 50 are three graphs of 8 nodes in 2 steps, or half of one of 54.
    defaults = {
        "train": {"epochs": 30, "target": 1.0, "max_active_keys": 16},
        "update": {"optimizer": "adam", "lr": 0.03, "min_update_interval": 50},
    }
    counted = "questions"

    def graph(self, cfg: Babi15Config) -> Graph:
        return compiled(cfg).graph

    def prepare(self, cfg: Babi15Config, seed: int) -> None:
        for part in (0, 1):
            _load(part, cfg.sample, seed)

    def training(self, cfg: Babi15Config, seed: int, epoch: int, limit: int = 0) -> Instances:
        """100 of the 10,000 questions, others in every epoch, and always among other nodes."""
        questions = _load(0, cfg.sample, seed)
        count, model = limited(cfg.fresh, limit), compiled(cfg)
        order = np.random.default_rng(seed).permutation(len(questions))

        def build(i: int) -> Instance:
            question = questions[order[((epoch - 1) * cfg.fresh + i) % len(order)]]
            rng = np.random.default_rng([seed, epoch, i])
            return model.encode(_plain(inflate(question, cfg.nodes, rng)), i)

        return Instances(count, build)

    def validation(self, cfg: Babi15Config, seed: int, limit: int = 0) -> Instances:
        """The 1,000 questions of the test set (as many generated ones)."""
        return _validation(cfg, seed if cfg.sample else 0).in_order(limit)

    def parse(self, cfg: Babi15Config, text: str) -> Instance:
        """Facts and a question in one line, as in bAbI's stories."""
        try:
            question = parse_question(text)
            instance = compiled(cfg).encode(_plain(question))
        except (ValueError, InstanceError) as error:
            raise ModelError(f"{error}; {_EXPECTED}") from None
        return _Named(instance.attrs, instance.tables, instance.data, names=question.names)

    def explain(self, cfg: Babi15Config, instance: Instance, report: Report) -> dict[str, Any]:
        """The predicted node and the one that follows from the facts, and the probability of the latter."""
        outputs = report.outputs[self.loss_node]
        told: dict[str, Any] = {
            "prediction": int(outputs["prediction"][0, 0]),
            "label": int(instance.tables["answer"][0]),
        }
        if isinstance(instance, _Named):
            told = {key: instance.names[node] for key, node in told.items()}
        return told | {"probability_of_label": float(np.exp(-float(outputs["loss"][0, 0])))}


_EXPECTED = (
    "expected facts and a question, such as "
    "'Emily is a cat. Cats are afraid of mice. What is emily afraid of?'"
)


@dataclass
class _Named(Instance):
    """An instance that was written as a text; names: of its nodes."""

    names: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def compiled(cfg: Babi15Config) -> fe.Compiled:
    """The model of a configuration."""
    embed = fe.Embedding(2, cfg.hidden, init="normal:0.5", name="embed")
    edges = [fe.Linear(cfg.hidden, name=fact) for fact in FACTS]
    update, score = fe.GRU(cfg.hidden, name="update"), fe.Linear(1, bias=False, name="score")

    def model(x: Any) -> None:
        story = x.story
        h0 = embed(story.asked)
        h = fe.message_passing(h0, story, edges, update, steps=cfg.steps, form="rows")
        _answer(score(h, h0), story, x.answer, cfg.nodes)

    graph = fe.Graph({"asked": fe.Int(2)}, most_nodes=cfg.nodes, most_edges=cfg.nodes, types=len(FACTS))
    return fe.compile(model, fe.Record(story=graph, answer=fe.Int(cfg.nodes)), Babi15.name)


def _answer(score: fe.Tensor, story: Any, answer: fe.Integer, most: int) -> None:
    """Cross-entropy of the answer under a softmax over the nodes; the prediction is the first of the best."""
    best = fe.stop_gradient(fe.reduce(score, "max", over=story.nodes))
    total = fe.reduce(fe.exp(score - best), over=story.nodes)
    # Of equal scores the first is the prediction: the one that the most nodes come behind.
    behind = most - fe.number(story.position)
    prediction = most - fe.reduce((1.0 - fe.above(best - score)) * behind, "max", over=story.nodes)
    right = fe.above(0.5 - fe.absolute(prediction - fe.number(answer)))
    loss = best + fe.log(total) - fe.pick(score, answer, over=story.nodes)
    fe.loss(loss, accuracy=right, prediction=prediction)


def _plain(question: Question) -> dict[str, Any]:
    asked = np.zeros(len(question.names), np.int32)
    asked[question.asked] = 1
    story = {"edges": question.edges, "type": question.types, "asked": asked}
    return {"story": story, "answer": question.answer}


@lru_cache(maxsize=4)
def _load(part: int, sample: bool, seed: int) -> list[Question]:
    """The training set (part 0) or the validation set (part 1); generated ones differ by seed and part."""
    if sample:
        return sample_babi(_SAMPLES[part], 2 * seed + part)
    return load_babi("test" if part else "train")


@lru_cache(maxsize=4)
def _validation(cfg: Babi15Config, seed: int) -> Remembered:
    questions = _load(1, cfg.sample, seed)

    def build(i: int) -> Instance:
        plain = _plain(inflate(questions[i], cfg.nodes, np.random.default_rng([0, 0, i])))
        return compiled(cfg).encode(plain, i)

    return Remembered(len(questions), build)
