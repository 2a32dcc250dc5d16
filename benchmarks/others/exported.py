"""A model of `transformers` whose encoder comes as a program that `torch.export` has saved."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from amphw import frontend as fe
from benchmarks.others.language import MOST, SENTENCES, WIDTH, bert, bert_loss, sentences
from benchmarks.others.whole import Case, Pieces


def saved(module: torch.nn.Module, folder: str) -> Path:
    """The encoder as a program of sentences of any length."""
    length = torch.export.Dim("n", min=1, max=MOST)
    path = Path(folder) / "encoder.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch does itself
        program = torch.export.export(
            module, (torch.randn(1, 3, WIDTH),), dynamic_shapes={"hidden_states": {1: length}}, strict=False
        )
        torch.export.save(program, path)
    return path


def ours(of: Pieces) -> Callable[[Any], None]:
    embeddings = "bert.embeddings"
    word, place, kind = (of(f"{embeddings}.{name}_embeddings") for name in ("word", "position", "token_type"))
    norm = of(f"{embeddings}.LayerNorm")
    with tempfile.TemporaryDirectory() as folder:
        bert_encoder = fe.from_export(saved(of.module.get_submodule("bert.encoder"), folder))
    of.paths["bert_encoder"] = "bert.encoder"
    pool, top = of("bert.pooler", lambda m, h: m.activation(m.dense(h))), of("classifier")

    def model(x: Any) -> None:
        h = norm(word(x.words.token) + place(x.words.position) + kind(x.words.kind))
        fe.classify(top(pool(fe.pick(bert_encoder(h), 0))), x.label)

    return model


CASES = {
    "exported": Case(
        "transformers.BertForSequenceClassification, its BertEncoder from a saved .pt2",
        *(bert, bert_loss, ours, SENTENCES, sentences),
    )
}
