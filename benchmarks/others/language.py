"""Language models of the package `transformers`, whole and with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from amphw import frontend as fe
from benchmarks.others.whole import Case, Data, Pieces, counted

WORDS, WIDTH, LAYERS, HEADS, MOST = 50, 16, 2, 2, 12

# --- BERT -------------------------------------------------------------------------------------------


def bert() -> torch.nn.Module:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=MOST,
            num_labels=3,
        )
    ).eval()


def bert_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    ids, kinds = (torch.tensor(x["words"][name])[None] for name in ("token", "kind"))
    return counted(m(input_ids=ids, token_type_ids=kinds).logits, x["label"])


def bert_ours(of: Pieces) -> Callable[[Any], None]:
    embeddings = "bert.embeddings"
    word, place, kind = (of(f"{embeddings}.{name}_embeddings") for name in ("word", "position", "token_type"))
    norm = of(f"{embeddings}.LayerNorm")
    layers = []
    for k in range(LAYERS):
        at = f"bert.encoder.layer.{k}"
        attention = [of(f"{at}.attention.self.{name}") for name in ("query", "key", "value")]
        rest = [of(f"{at}.{name}") for name in ("attention.output", "intermediate", "output")]
        layers.append((attention, rest))
    pool, top = of("bert.pooler", lambda m, h: m.activation(m.dense(h))), of("classifier")

    def model(x: Any) -> None:
        h = norm(word(x.words.token) + place(x.words.position) + kind(x.words.kind))
        for (query, key, value), (mixed, inner, outer) in layers:
            seen = fe.attention(query(h), key(h), value(h), over=x.words, heads=HEADS)
            h = mixed(seen, h)
            h = outer(inner(h), h)
        fe.classify(top(pool(fe.pick(h, 0))), x.label)

    return model


def sentences(count: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length = int(rng.integers(1, MOST + 1))
        token, kind = rng.integers(1, WORDS, length), (np.arange(length) > length // 2).astype(int)
        made.append({"words": {"token": token, "kind": kind}, "label": int(token.sum() % 3)})
    return made


SENTENCES = fe.Record(
    words=fe.Sequence(fe.Record(token=fe.Int(WORDS), kind=fe.Int(2)), most=MOST), label=fe.Int(3)
)

# --- What predicts the next token -------------------------------------------------------------------

STEPS = fe.Axis("steps", most=MOST)
TEXTS = fe.Record(token=fe.Along(STEPS, fe.Int(WORDS)), following=fe.Along(STEPS, fe.Int(WORDS)))


def texts(count: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        text = (rng.integers(WORDS) + rng.integers(1, 4) * np.arange(rng.integers(3, MOST + 2))) % WORDS
        made.append({"token": text[:-1], "following": text[1:]})
    return made


def next_token_loss(m: Any, x: dict[str, Any]) -> torch.Tensor:
    return counted(m(torch.tensor(x["token"])[None]).logits, x["following"])


def gpt2() -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            n_positions=MOST,
            tie_word_embeddings=False,
        )
    ).eval()


def gpt2_ours(of: Pieces) -> Callable[[Any], None]:
    word, place = of("transformer.wte"), of("transformer.wpe")
    names = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp")
    layers = [[of(f"transformer.h.{k}.{name}") for name in names] for k in range(LAYERS)]
    norm, top = of("transformer.ln_f"), of("lm_head")

    def model(x: Any) -> None:
        h = word(x.token) + place(x.token.position)
        for before, project, mix, between, inner in layers:
            q, k, v = fe.split(project(before(h)), 3)
            h = h + mix(fe.attention(q, k, v, over=x.token, heads=HEADS, causal=True))
            h = h + inner(between(h))
        fe.classify(top(norm(h)), x.following.item)

    return model


# --- Llama: with what a position does to queries and keys in the data -------------------------------

HEAD = WIDTH // (2 * HEADS)


def llama() -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=2 * HEADS,
            num_key_value_heads=HEADS,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=MOST,
            tie_word_embeddings=False,
        )
    ).eval()


def turns(count: int, seed: int) -> Data:
    """`texts`, and cosines and sines of their positions, which the model's own module computes."""
    turn = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(llama().config)
    made = texts(count, seed)
    for x in made:
        cos, sin = turn(torch.zeros(1), torch.arange(len(x["token"]))[None])
        x |= {"cos": cos[0].numpy(), "sin": sin[0].numpy()}
    return made


TURNS = fe.Record(**TEXTS.parts, cos=fe.Along(STEPS, fe.Floats(HEAD)), sin=fe.Along(STEPS, fe.Floats(HEAD)))


def turned(h: Any, x: Any, heads: int) -> Any:
    """Each head turned by its position: `apply_rotary_pos_emb`."""
    made = []
    for part in fe.split(h, heads):
        first, second = fe.split(part, 2)
        made.append(part * x.cos.item + fe.concat(-second, first) * x.sin.item)
    return fe.concat(*made)


def llama_ours(of: Pieces) -> Callable[[Any], None]:
    word = of("model.embed_tokens")
    names = ("input_layernorm", "post_attention_layernorm", "mlp", "self_attn.o_proj")
    layers = []
    for k in range(LAYERS):
        at = f"model.layers.{k}"
        attention = [of(f"{at}.self_attn.{name}_proj") for name in "qkv"]
        layers.append((attention, [of(f"{at}.{name}") for name in names]))
    norm, top = of("model.norm"), of("lm_head")

    def model(x: Any) -> None:
        h = word(x.token)
        for (query, key, value), (before, between, inner, mix) in layers:
            n = before(h)
            q, k = turned(query(n), x, 2 * HEADS), turned(key(n), x, HEADS)
            # A key and a value are looked at by two queries each.
            k, v = (
                fe.concat(*(part for part in fe.split(y, HEADS) for _ in range(2))) for y in (k, value(n))
            )
            h = h + mix(fe.attention(q, k, v, over=x.token, heads=2 * HEADS, causal=True))
            h = h + inner(between(h))
        fe.classify(top(norm(h)), x.following.item)

    return model


CASES = {
    "bert": Case(
        "transformers.BertForSequenceClassification", bert, bert_loss, bert_ours, SENTENCES, sentences
    ),
    "gpt2": Case("transformers.GPT2LMHeadModel", gpt2, next_token_loss, gpt2_ours, TEXTS, texts),
    "llama": Case("transformers.LlamaForCausalLM", llama, next_token_loss, llama_ours, TURNS, turns),
}
