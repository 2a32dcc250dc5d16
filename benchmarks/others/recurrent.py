"""A recurrent language model of `transformers`; cells and an encoder of `torch.nn`. Weights are random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from amphw import frontend as fe
from benchmarks.others.language import (
    HEADS,
    LAYERS,
    MOST,
    SENTENCES,
    TEXTS,
    WIDTH,
    WORDS,
    next_token_loss,
    sentences,
    texts,
)
from benchmarks.others.whole import Case, Data, Pieces, counted

# --- RWKV -------------------------------------------------------------------------------------------


def rwkv() -> torch.nn.Module:
    return transformers.RwkvForCausalLM(
        transformers.RwkvConfig(
            vocab_size=WORDS,
            context_length=MOST,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            attention_hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            bos_token_id=0,
            eos_token_id=0,
            rescale_every=0,
            use_cache=False,
        )
    )


def rwkv_mixed(m: Any, x: Any, before: Any) -> Any:
    """What `extract_key_value` computes, of a position and the one before it."""

    def mixed(share: Any) -> Any:
        return x * share.view(-1) + before * (1 - share.view(-1))

    receptance = torch.sigmoid(m.receptance(mixed(m.time_mix_receptance)))
    return receptance, m.key(mixed(m.time_mix_key)), m.value(mixed(m.time_mix_value))


def rwkv_seen(m: Any, key: Any, value: Any, above: Any, below: Any, most: Any) -> Any:
    """A turn of the loop in `rwkv_linear_attention_cpu`: what is seen, and the next state."""
    here = torch.maximum(most, key + m.time_first)
    old, new = torch.exp(most - here), torch.exp(key + m.time_first - here)
    seen = (old * above + new * value) / (old * below + new)
    later = most - torch.exp(m.time_decay)
    then = torch.maximum(later, key)
    old, new = torch.exp(later - then), torch.exp(key - then)
    return seen, old * above + new * value, old * below + new, then


def rwkv_inner(m: Any, x: Any, before: Any) -> Any:
    """What the feed-forward part computes, of a position and the one before it."""

    def mixed(share: Any) -> Any:
        return x * share.view(-1) + before * (1 - share.view(-1))

    inner = torch.square(torch.relu(m.key(mixed(m.time_mix_key))))
    return torch.sigmoid(m.receptance(mixed(m.time_mix_receptance))) * m.value(inner)


def rwkv_ours(of: Pieces) -> Callable[[Any], None]:
    word, start = of("rwkv.embeddings"), of("rwkv.blocks.0.pre_ln")
    layers = []
    for k in range(LAYERS):
        at = f"rwkv.blocks.{k}"
        layers.append(
            {
                "first": of(f"{at}.ln1"),
                "mixed": of(f"{at}.attention", rwkv_mixed, "mixed"),
                "seen": of(f"{at}.attention", rwkv_seen, "seen"),
                "out": of(f"{at}.attention.output"),
                "second": of(f"{at}.ln2"),
                "inner": of(f"{at}.feed_forward", rwkv_inner),
            }
        )
    norm, top = of("rwkv.ln_out"), of("head")

    def block(layer: dict[str, Any]) -> Any:
        def step(state: Any, h: Any) -> Any:
            before, above, below, most, before_inner = state
            x = layer["first"](h)
            receptance, key, value = layer["mixed"](x, before)
            seen, above, below, most = layer["seen"](key, value, above, below, most)
            h = h + layer["out"](receptance * seen)
            y = layer["second"](h)
            return (x, above, below, most, y), h + layer["inner"](y, before_inner)

        return step

    def model(x: Any) -> None:
        h = start(word(x.token))
        for layer in layers:
            _, h = fe.scan(block(layer), tuple(fe.constant(WIDTH) for _ in range(5)), h)
        fe.classify(top(norm(h)), x.following.item)

    return model


# --- Recurrent cells of torch.nn, one above the other, in both directions ---------------------------


class Tagger(torch.nn.Module):
    """A container: the loop over `torch.nn`'s cells is not in the package."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.below, self.above = nn.LSTMCell(WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.back, self.norm, self.top = (
            nn.RNNCell(WIDTH, WIDTH),
            nn.RMSNorm(2 * WIDTH, 1e-5),
            nn.Linear(2 * WIDTH, 3),
        )
        self.act = nn.LeakyReLU(0.1)


def cells_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    words = m.embed(torch.tensor(x["words"]["token"]))
    h = c = g = back = words.new_zeros(1, WIDTH)
    for word in words:
        h, c = m.below(word[None], (h, c))
        g = m.above(h, g)
    for word in reversed(words):
        back = m.back(word[None], back)
    return counted(m.top(m.norm(m.act(torch.cat([g, back], 1)))), x["label"])


def cells_ours(of: Pieces) -> Callable[[Any], None]:
    embed, below, above, back = of("embed"), of("below"), of("above"), of("back")
    norm, act, top = of("norm"), of("act"), of("top")

    def model(x: Any) -> None:
        def step(state: Any, word: Any) -> Any:
            h, c, g = state
            h, c = below(word, h, c)
            return h, c, above(h, g)

        words, zero = embed(x.words.token), fe.constant(WIDTH)
        _, _, g = fe.fold(step, (zero, zero, zero), words)
        last = fe.fold(lambda h, word: back(word, h), zero, words, reverse=True)
        fe.classify(top(norm(act(fe.concat(g, last)))), x.label)

    return model


# --- An encoder of torch.nn -------------------------------------------------------------------------


def encoder() -> torch.nn.Module:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    parts = {
        "embed": nn.Embedding(WORDS, WIDTH),
        "encoder": nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False),
        "top": nn.Linear(WIDTH, WORDS),
    }
    return nn.ModuleDict(parts)


def encoder_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    words = m["embed"](torch.tensor(x["token"]))[None]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(words.shape[1], dtype=words.dtype)
    return counted(m["top"](m["encoder"](words, mask=mask, is_causal=True)), x["following"])


def encoder_ours(of: Pieces) -> Callable[[Any], None]:
    def projected(m: Any, x: Any) -> Any:
        y = torch.nn.functional.linear(m.norm1(x), m.self_attn.in_proj_weight, m.self_attn.in_proj_bias)
        return y.chunk(3, -1)

    def inner(m: Any, x: Any) -> Any:
        return x + m.linear2(m.dropout(m.activation(m.linear1(m.norm2(x)))))

    layers = []
    for k in range(LAYERS):
        at = f"encoder.layers.{k}"
        attention = of(at, projected, "projected"), of(f"{at}.self_attn.out_proj")
        layers.append((*attention, of(at, inner, "inner")))
    embed, norm, top = of("embed"), of("encoder.norm"), of("top")

    def model(x: Any) -> None:
        h = embed(x.token)
        for projections, mix, rest in layers:
            q, k, v = projections(h)
            h = rest(h + mix(fe.attention(q, k, v, over=x.token, heads=HEADS, causal=True)))
        fe.classify(top(norm(h)), x.following.item)

    return model


def from_zero(count: int, seed: int) -> Data:
    """Sentences with a word that is padding, whose row is not trained."""
    made = sentences(count, seed)
    for x in made:
        x["words"]["token"] = x["words"]["token"] % 10
    return made


CASES = {
    "rwkv": Case("transformers.RwkvForCausalLM", rwkv, next_token_loss, rwkv_ours, TEXTS, texts),
    "cells": Case(
        "torch.nn: LSTMCell, GRUCell, RNNCell, RMSNorm", Tagger, cells_loss, cells_ours, SENTENCES, from_zero
    ),
    "encoder": Case("torch.nn.TransformerEncoder", encoder, encoder_loss, encoder_ours, TEXTS, texts),
}
