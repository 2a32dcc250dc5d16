"""The tagger in JAX: scans over padded sentences, and over the padded letters of words that are spelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_flat import lstm
from .jax_task import JaxTask, Parameters, classified, grid, padded, upto
from .sentences import sentences
from .stored import StoredInstances


class Taggers(JaxTask):
    """Our nodes are embed, letter, spell_ahead, spell_back, read_ahead, read_back, hidden and head."""

    def load(self, stored: StoredInstances) -> None:
        self._sentences = sentences(stored)

    @property
    def units(self) -> int:
        return len(self._sentences)

    def rows(self, batch: Mapping[str, Any]) -> int:
        return int(batch["count"])

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        words, spellings, tags = zip(*(self._sentences[i] for i in chosen), strict=True)
        word, spelled = np.concatenate(words), [letters for each in spellings for letters in each]
        unknown = np.cumsum(word == 0) - 1  # which of the spelled words it is
        many = upto(len(spelled) + 1, 128)
        letters, there = grid([*spelled, *[np.zeros(1, np.int64)] * (many - len(spelled))], 8)
        # Among what is known and what is spelled, side by side: the number of each word.
        source = np.where(word > 0, many + np.arange(len(word)), unknown)
        count = upto(len(word), 256)
        starts = np.split(np.arange(len(word)), np.cumsum([len(each) for each in words])[:-1])
        places, inside = grid(starts, 8)
        return {
            "known": padded(word, count),
            "letters": letters,
            "spelled": there,
            "source": padded(source, count),
            "places": places,
            "inside": inside,
            "at": padded(np.flatnonzero(inside.T), count),
            "tag": padded(np.concatenate(tags), count),
            "valid": padded(np.ones(len(word), np.float32), count),
            "count": len(word),
        }

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        letters = p["letter"]["E"][batch["letters"]]
        ends = [lstm(**_of(p, "spell", way), x=letters, valid=batch["spelled"])[1] for way in (False, True)]
        both = jnp.concatenate([jnp.concatenate(ends, 1), p["embed"]["E"][batch["known"]]])
        x = both[batch["source"]][batch["places"]]
        read = [lstm(**_of(p, "read", way), x=x, valid=batch["inside"])[0] for way in (False, True)]
        states = jnp.concatenate(read, 2).transpose(1, 0, 2).reshape(-1, 2 * read[0].shape[2])[batch["at"]]
        hidden = jnp.tanh(states @ p["hidden"]["W"] + p["hidden"]["b"])
        return classified(hidden @ p["head"]["W"] + p["head"]["b"], batch["tag"], batch["valid"])


def _of(p: Parameters, kind: str, backwards: bool) -> dict[str, Any]:
    node = p[f"{kind}_{'back' if backwards else 'ahead'}"]
    return {"w": node["W"], "b": node["b"], "backwards": backwards}
