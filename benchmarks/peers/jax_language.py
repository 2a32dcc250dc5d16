"""The language models in JAX: scans over padded sentences; tables that are read by rows are so updated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .jax_flat import lstm
from .jax_task import JaxTask, Parameters, classified, grid, padded, unique_rows, upto
from .stored import StoredInstances

NEVER = -1e4
"""Added to the score of a candidate that is the true word."""

WORDS = 64
"""Words whose scores over the vocabulary are computed at a time, in the form `scan-chunked`."""


class Sentences(JaxTask):
    """Sentences, padded, and the states of an LSTM over them. Our nodes are embed, cell and output."""

    tables: tuple[str, ...] = ("words_word", "words_next")

    def load(self, stored: StoredInstances) -> None:
        self._sentences = list(zip(*map(stored.table, self.tables), strict=True))

    @property
    def units(self) -> int:
        return len(self._sentences)

    @property
    def vocabulary(self) -> int:
        return int(self._values["embed"]["E"].shape[0])

    def rows(self, batch: Mapping[str, Any]) -> int:
        return int(batch["count"])

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        """rows: of the embedding. word, inside [longest, sentences]: which of these rows, and where there is
        a word. at, true, valid: of every word, sentence by sentence, where it is and what comes next."""
        words, following = zip(*(self._sentences[i][:2] for i in chosen), strict=True)
        rows, among = unique_rows(np.concatenate(words), 128, self.vocabulary)
        word, inside = grid(np.split(among, np.cumsum([len(each) for each in words])[:-1]), 4)
        true = np.concatenate(following)
        count = upto(len(true), WORDS)
        return {
            "rows": rows,
            "word": word,
            "inside": inside,
            "at": padded(np.flatnonzero(inside.T), count),
            "true": padded(true, count),
            "valid": padded(np.ones(len(true), np.float32), count),
            "count": len(true),
        }

    def states(self, p: Parameters, batch: Mapping[str, Array]) -> Array:
        """The state h behind each word, [longest, sentences, width]."""
        x = p["embed"]["E"][batch["word"]]
        return lstm(p["cell"]["W"], p["cell"]["b"], x, batch["inside"])[0]


class FullLanguageModels(Sentences):
    """With a dense output: every word's loss is over the whole vocabulary."""

    sparse = {("embed", "E"): "rows"}

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        h = _listed(self.states(p, batch), batch)
        w, b = p["output"]["W"], p["output"]["b"]
        if self.form.name == "scan-chunked":
            loss = chunked(h, w, b, batch["true"], batch["valid"])
        else:
            loss = classified(h @ w + b, batch["true"], batch["valid"])[0]
        return loss, loss


class LanguageModels(Sentences):
    """With a sampled softmax: the output's tables W and b are read by rows too. Instances to validate on have
    no candidates of their own, and their loss is over the whole vocabulary."""

    tables = ("words_word", "words_next", "candidates_words", "candidates_drawn")
    sparse = {("embed", "E"): "rows", ("output", "W"): "named", ("output", "b"): "named"}

    def collate(self, chosen: Sequence[int]) -> dict[str, Any]:
        """named: rows of the output. following [longest, sentences] and candidates [sentences, samples] are
        words, true_row and candidate_row where they are among these rows."""
        batch = super().collate(chosen)
        _, following, candidates, drawn = zip(*(self._sentences[i] for i in chosen), strict=True)
        if not drawn[0].item():
            return batch | {"named": np.arange(self.vocabulary, dtype=np.int32)}
        next_words, _ = grid(following, 4)
        sampled = np.stack(candidates).astype(np.int32)
        both = np.concatenate([next_words.ravel(), sampled.ravel()])
        named, among = unique_rows(both, 512, self.vocabulary)
        return batch | {
            "named": named,
            "following": next_words,
            "candidates": sampled,
            "true_row": among[: next_words.size].reshape(next_words.shape),
            "candidate_row": among[next_words.size :].reshape(sampled.shape),
        }

    def loss(self, p: Parameters, batch: Mapping[str, Array]) -> tuple[Array, Array]:
        h, w, b = self.states(p, batch), p["output"]["W"], p["output"]["b"][:, 0]
        if "candidates" not in batch:
            loss = chunked(_listed(h, batch), w.T, b, batch["true"], batch["valid"])
            return loss, loss
        true, candidates = batch["following"], batch["candidates"]
        # A word is expected in proportion to 1 / (word + 1); what all have in common cancels out.
        right = (h * w[batch["true_row"]]).sum(2) + b[batch["true_row"]] + jnp.log(true + 1.0)
        others = jnp.einsum("psw,scw->psc", h, w[batch["candidate_row"]])
        others = others + b[batch["candidate_row"]] + jnp.log(candidates + 1.0)
        hit = candidates == true[:, :, None]
        scores = jnp.concatenate([right[:, :, None], others + hit * NEVER], 2)
        loss = ((jax.nn.logsumexp(scores, 2) - right) * batch["inside"]).sum()
        return loss, loss


def _listed(h: Array, batch: Mapping[str, Array]) -> Array:
    """The states of all words, sentence by sentence, [words, width]."""
    return h.transpose(1, 0, 2).reshape(-1, h.shape[2])[batch["at"]]


@jax.custom_vjp
def chunked(h: Array, w: Array, b: Array, true: Array, valid: Array) -> Array:
    """The sum of the cross-entropies of h w + b of those words that are valid, a few words at a time.

    h [words, width], where words are a multiple of WORDS; w [width, vocabulary], b [vocabulary]. Their
    gradients are taken before the logits leave the cache.
    """
    return jax.lax.map(lambda part: _scored(w, b, *part)[0], _parts(h, true, valid)).sum()


def _chunked_forward(h: Array, w: Array, b: Array, true: Array, valid: Array) -> tuple[Array, Any]:
    def one(sums: tuple[Array, ...], part: tuple[Array, ...]) -> tuple[tuple[Array, ...], Array]:
        loss, d = _scored(w, b, *part)
        own = (loss, part[0].T @ d.T, d.sum(1))
        return tuple(s + x for s, x in zip(sums, own, strict=True)), d.T @ w.T

    start = (jnp.zeros(()), jnp.zeros_like(w), jnp.zeros_like(b))
    (loss, dw, db), dh = jax.lax.scan(one, start, _parts(h, true, valid))
    return loss, (dh.reshape(h.shape), dw, db)


def _chunked_backward(gradients: Any, share: Array) -> Any:
    return *(g * share for g in gradients), None, None


chunked.defvjp(_chunked_forward, _chunked_backward)


def _parts(*arrays: Array) -> tuple[Array, ...]:
    return tuple(x.reshape(-1, WORDS, *x.shape[1:]) for x in arrays)


def _scored(w: Array, b: Array, h: Array, true: Array, valid: Array) -> tuple[Array, Array]:
    """The sum of a few words' losses, and their gradients by the logits, [vocabulary, words]."""
    # XLA's product on CPUs is three times as fast this way round.
    logits = w.T @ h.T + b[:, None]
    at = true, jnp.arange(len(true))
    most = logits.max(0)
    e = jnp.exp(logits - most)
    total = e.sum(0)
    loss = ((jnp.log(total) + most - logits[at]) * valid).sum()
    return loss, (e * (valid / total)).at[at].add(-valid)
