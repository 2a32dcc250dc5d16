"""bAbI task 15, basic deduction: what is Winona afraid of, if she is a sheep and sheep are afraid of mice?

Weston et al. (2015), task 15 of 20. A story has eight facts about four animals and four names: what each
animal is afraid of, and which animal a name belongs to; four questions follow. A line begins with its number
in the story, and a question with its answer and the facts that lead to it behind tabs:

    3 Winona is a sheep.
    2 Sheep are afraid of mice.
    10 What is winona afraid of?	mouse	3 2

As a graph (Li et al., ICLR 2016) a question has a node for each animal and each name, an edge for each fact,
and the answer is a node. There are 10,000 questions to train on and 1,000 to test on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from amphw.data.cache import DataError, DataFile, read_data

FACTS = ("is", "fears")
"""Types of edges, from who the fact is about to the animal in it."""

NODES = 8
"""Animals and names of a story."""

# All 20 tasks in one archive, as Keras distributes them.
_URL = "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"
_SHA256 = {
    "train": "0a86673f7fafa484f8ee394048f03de19405bdc40b58f21086969efad2862010",
    "test": "32b77e117fe9acf5f94906684e3b5206de0108e646c76e1da3e022896ec7ee94",
}
_IS = re.compile(r"(\w+) is an? (\w+)\.?")
_FEARS = re.compile(r"(\w+) are afraid of (\w+)\.?")
_ASKS = re.compile(r"what is (\w+) afraid of\?")
_SINGULAR = {"wolves": "wolf", "mice": "mouse", "sheep": "sheep"}

Integers = npt.NDArray[np.int32]


class Question(NamedTuple):
    """names: of the nodes; edges: int32 [facts, 2], from whom the fact is about to the animal in it; types:
    int32 [facts], indices into FACTS; asked, answer: nodes."""

    names: tuple[str, ...]
    edges: Integers
    types: Integers
    asked: int
    answer: int


def babi_file(split: Literal["train", "test"]) -> DataFile:
    """The file of a split, from the larger one of the two versions of the data ("en-10k")."""
    if split not in _SHA256:
        raise ValueError(f"bAbI has no split {split!r}; it has 'train' and 'test'")
    name = f"qa15_basic-deduction_{split}.txt"
    member = f"tasks_1-20_v1-2/en-10k/{name}"
    return DataFile(f"babi15/en-10k.{name}", _URL, f"sha256:{_SHA256[split]}", member)


def load_babi(split: Literal["train", "test"]) -> list[Question]:
    """The questions of a split, in the order of the file. Raises DataError if it cannot be had."""
    file = babi_file(split)
    return parse_stories(read_data(file).decode("utf-8"), where=file.name)


def parse_stories(text: str, where: str) -> list[Question]:
    """The questions of all stories. `where` names the file in errors; raises DataError naming the line."""
    questions: list[Question] = []
    facts = _Facts()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        count, _, sentence = line.partition(" ")
        if count == "1":
            facts = _Facts()
        sentence, *solution = sentence.split("\t")
        try:
            question = facts.read(sentence)
        except ValueError as error:
            raise DataError(f"{where}, line {number}: {error}.") from error
        if question is None:
            continue
        if solution[:1] != [question.names[question.answer]]:
            found = solution[0] if solution else "missing"
            raise DataError(
                f"{where}, line {number}: the answer is {found}, but the facts say "
                f"{question.names[question.answer]}."
            )
        questions.append(question)
    return questions


def parse_question(text: str) -> Question:
    """Facts and a question in one line: `Winona is a sheep. Sheep are afraid of mice. What is winona ...?`

    Raises ValueError saying what is wrong.
    """
    facts = _Facts()
    question = None
    for sentence in re.findall(r"[^.?]+[.?]?", text):
        if question is not None and sentence.strip():
            raise ValueError(f"'{sentence.strip()}' stands behind the question")
        if sentence.strip():
            question = facts.read(sentence)
    if question is None:
        raise ValueError("there is no question")
    return question


class _Facts:
    """The facts of a story so far; its nodes are numbered as they are named first."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.edges: list[tuple[int, int]] = []
        self.types: list[int] = []

    def read(self, sentence: str) -> Question | None:
        """Take in a fact, or answer a question."""
        said = sentence.strip().lower()
        if asks := _ASKS.fullmatch(said):
            return self._answered(asks[1])
        if fact := _IS.fullmatch(said):
            subject, animal, kind = fact[1], fact[2], 0
        elif fact := _FEARS.fullmatch(said):
            subject, animal, kind = _singular(fact[1]), _singular(fact[2]), 1
        else:
            raise ValueError(f"'{sentence.strip()}' is neither a fact nor a question")
        start, end = (self.nodes.setdefault(name, len(self.nodes)) for name in (subject, animal))
        self.edges.append((start, end))
        self.types.append(kind)
        return None

    def _answered(self, name: str) -> Question:
        at = self._follow(self._follow(self.nodes.get(name), name, 0), name, 1)
        edges, types = np.array(self.edges, np.int32), np.array(self.types, np.int32)
        return Question(tuple(self.nodes), edges, types, self.nodes[name], at)

    def _follow(self, node: int | None, name: str, kind: int) -> int:
        facts = zip(self.edges, self.types, strict=True)
        ends = [end for (start, end), found in facts if (start, found) == (node, kind)]
        if len(ends) != 1:
            what = f"which animal {name} is" if kind == 0 else f"what {name} is afraid of"
            raise ValueError(f"the facts say {len(ends)} times {what}, expected once")
        return ends[0]


def _singular(animals: str) -> str:
    return _SINGULAR.get(animals, animals.removesuffix("s"))


def inflate(question: Question, nodes: int, rng: np.random.Generator) -> Question:
    """The question among more animals and names, as many of both, of whom the same kinds of facts are told.

    Facts and nodes are shuffled. What is told of the nodes that were there stays as it is, and every new fact
    is about a new one, so the answer stays the same (arXiv 1705.09786 inflates graphs to 54 nodes).
    """
    count = len(question.names)
    if nodes < count:
        raise ValueError(f"a story of {count} nodes has no room in {nodes}")
    animals = sorted(set(question.edges[:, 1].tolist()))
    new_animals = list(range(count, count + (nodes - count + 1) // 2))
    animals += new_animals
    edges, types = question.edges.tolist(), question.types.tolist()
    for node in range(count, nodes):
        fears = node in new_animals
        others = [a for a in animals if a != node]
        edges.append((node, others[int(rng.integers(len(others)))]))
        types.append(FACTS.index("fears" if fears else "is"))
    names = [
        *question.names,
        *(f"animal{i}" if i in new_animals else f"name{i}" for i in range(count, nodes)),
    ]
    facts, place = rng.permutation(len(edges)), rng.permutation(nodes)
    return Question(
        tuple(names[i] for i in np.argsort(place)),
        place[np.array(edges)][facts].astype(np.int32),
        np.array(types, np.int32)[facts],
        int(place[question.asked]),
        int(place[question.answer]),
    )


# --- generated stories ---------------------------------------------------------------------------

_ANIMALS = ("wolves", "mice", "cats", "sheep")
_NAMES = ("Winona", "Gertrude", "Jessica", "Emily")


def sample_babi(n: int, seed: int | Sequence[int]) -> list[Question]:
    """Generated questions, for use without the data; the same `n` and `seed` give the same.

    They follow the rule of the task, but are not its data: each of four names is one of four animals, each
    animal is afraid of another one, and the facts are shuffled.
    """
    if n < 0:
        raise ValueError(f"the number of questions must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    return [_sample(rng) for _ in range(n)]


def _sample(rng: np.random.Generator) -> Question:
    facts = [f"{name} is a {_singular(_ANIMALS[int(rng.integers(4))])}." for name in _NAMES]
    for i, animal in enumerate(_ANIMALS):
        feared = _ANIMALS[(i + int(rng.integers(1, 4))) % 4]
        facts.append(f"{animal} are afraid of {feared}.")
    told = " ".join(facts[i] for i in rng.permutation(len(facts)))
    return parse_question(f"{told} What is {_NAMES[int(rng.integers(4))]} afraid of?")
