"""The tagger in DyNet: a sentence at a time as it is written down, whose operations DyNet batches itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .dynet_task import DynetTask, dy
from .sentences import WAYS, Sentence, sentences
from .stored import Arrays, StoredInstances

FORGET = 1.0
"""What DyNet's cell adds to the bias of the forget gate of its own accord."""


class DynetTaggers(DynetTask):
    """Our nodes are embed, letter, spell_ahead, spell_back, read_ahead, read_back, hidden and head.

    Cells are DyNet's fused ones, those of its CompactVanillaLSTMBuilder; its gates lie as ours: i, f, o and
    the candidate.
    """

    def load(self, stored: StoredInstances) -> None:
        self._sentences = sentences(stored)

    @property
    def units(self) -> int:
        return len(self._sentences)

    def collate(self, chosen: Sequence[int]) -> list[Sentence]:
        return [self._sentences[i] for i in chosen]

    def theirs(self, node: str, values: Arrays) -> Arrays:
        if not node.endswith(WAYS):
            return super().theirs(node, values)
        hidden = values["W"].shape[1] // 4
        b = values["b"].copy()
        b[hidden : 2 * hidden] -= FORGET
        return {"b": b, "Wx": values["W"][:-hidden].T, "Wh": values["W"][-hidden:].T}

    def ours(self, gradients: Arrays) -> Arrays:
        out: Arrays = {}
        for x in [name for name in gradients if name.endswith("/Wx")]:
            node = x.removesuffix("/Wx")
            both = gradients.pop(x), gradients.pop(f"{node}/Wh")
            out[f"{node}/W"] = np.concatenate(both, 1).T
        return super().ours(gradients) | out

    def outputs(self, batch: list[Sentence]) -> tuple[list[Any], list[int]]:
        logits, labels = [], []
        for sentence in batch:
            spelled = iter(sentence.letters)
            words = [
                self.row("embed", word) if word else self._spell(next(spelled))
                for word in sentence.word.tolist()
            ]
            for ahead, back in zip(*self._run("read", words), strict=True):
                both = dy.concatenate([ahead, back])
                logits.append(self.affine("head", dy.tanh(self.affine("hidden", both))))
            labels += sentence.tag.tolist()
        return logits, labels

    def _spell(self, letters: np.ndarray) -> Any:
        """A word from its letters: what each direction ends with."""
        ahead, back = self._run("spell", [self.row("letter", letter) for letter in letters.tolist()])
        return dy.concatenate([ahead[-1], back[0]])

    def _run(self, kind: str, x: list[Any]) -> tuple[list[Any], list[Any]]:
        """The states h of both directions at every position."""
        return self._states(f"{kind}_ahead", x), self._states(f"{kind}_back", x[::-1])[::-1]

    def _states(self, node: str, xs: list[Any]) -> list[Any]:
        """The states h of a cell behind every input."""
        wx, wh, b = (self._own[f"{node}/{name}"] for name in ("Wx", "Wh", "b"))
        h = c = dy.zeros((wh.shape()[1],))
        out = []
        for x in xs:
            gates = dy.vanilla_lstm_gates(x, h, wx, wh, b)
            c = dy.vanilla_lstm_c(c, gates)
            h = dy.vanilla_lstm_h(c, gates)
            out.append(h)
        return out
