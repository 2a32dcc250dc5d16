"""A language model of the package `transformers` that decides itself which expert computes a position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from amphw import frontend as fe
from benchmarks.others import language
from benchmarks.others.language import HEADS, LAYERS, WIDTH, turned
from benchmarks.others.whole import Case, Pieces

EXPERTS = 4


def olmoe() -> torch.nn.Module:
    """One expert for each position, whose result is weighted with the probability that it was chosen with."""
    made = transformers.OlmoeForCausalLM(
        transformers.OlmoeConfig(
            vocab_size=language.WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=2 * HEADS,
            intermediate_size=WIDTH,
            max_position_embeddings=language.MOST,
            num_experts=EXPERTS,
            num_experts_per_tok=1,
            initializer_range=0.3,
            eos_token_id=None,
        )
    ).eval()
    made.set_experts_implementation("eager")  # the other ones do not compute in double precision
    return made


def expert(k: int) -> Callable[[Any, Any], Any]:
    def forward(m: Any, h: Any) -> Any:
        linear = torch.nn.functional.linear
        gate, up = linear(h, m.gate_up_proj[k]).chunk(2, dim=-1)
        return linear(m.act_fn(gate) * up, m.down_proj[k])

    return forward


def scores(m: Any, h: Any) -> Any:
    """What the router has before it looks for the largest."""
    return torch.softmax(torch.nn.functional.linear(h, m.weight), -1)


def olmoe_ours(of: Pieces) -> Callable[[Any], None]:
    word, norm, top = of("model.embed_tokens"), of("model.norm"), of("lm_head")
    layers = []
    for k in range(LAYERS):
        at = f"model.layers.{k}"
        names = ("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj")
        attention = [of(f"{at}.self_attn.{name}") for name in names]
        experts = [of(f"{at}.mlp.experts", expert(e), str(e), part=e) for e in range(EXPERTS)]
        norms = of(f"{at}.input_layernorm"), of(f"{at}.post_attention_layernorm")
        layers.append((attention, norms, of(f"{at}.mlp.gate", scores), experts))

    def model(x: Any) -> None:
        h = word(x.token)
        for (query, query_norm, key, key_norm, value, mix), (before, between), gate, experts in layers:
            n = before(h)
            q, k = (turned(y, x, 2 * HEADS) for y in (query_norm(query(n)), key_norm(key(n))))
            h = h + mix(fe.attention(q, k, value(n), over=x.token, heads=2 * HEADS, causal=True))
            n = between(h)
            p = gate(n)
            h = h + fe.switch(p, experts, n) * fe.largest(p)
        fe.classify(top(norm(h)), x.following.item)

    return model


CASES = {
    "olmoe": Case(
        "transformers.OlmoeForCausalLM",
        olmoe,
        language.next_token_loss,
        olmoe_ours,
        language.TURNS,
        language.turns,
    ),
}
