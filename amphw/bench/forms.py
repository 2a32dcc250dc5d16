"""Which forms of a workload each peer has: the same model, written in the ways that practitioners write it.

Nobody knows beforehand which form is the fastest on a machine, so all are tried and the fastest one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BATCHED, PER_INSTANCE, HISTORICAL, LESS = "batched", "per-instance", "historical", "another model"
"""Kinds: a batch at once; an instance at a time, as dynamic control flow is written down. What is shown and
never counts: what the papers compared with, and a library's own layer that is a model of less work."""

FLOAT32, BFLOAT16 = "float32", "bf16"
"""What products are computed in; sums and parameters are float32 in either case."""


@dataclass(frozen=True)
class Form:
    """One way to write a workload. peer: the package. note: what is special about it. graphed: every batch's
    step is recorded once, and launched as one graph of kernels (on a GPU alone). precision: of its products;
    where ours are float32, a form of another precision is shown and does not count."""

    peer: str
    name: str
    kind: str = BATCHED
    compiled: bool = False
    note: str = ""
    graphed: bool = False
    precision: str = FLOAT32


def _both(peer: str, *names: str, note: str = "", kind: str = BATCHED) -> list[Form]:
    """Each of the forms as it is and through `torch.compile`."""
    return [
        Form(peer, f"{name}+compiled" if compiled else name, kind, compiled, note)
        for name in names
        for compiled in (False, True)
    ]


def _graphed(*names: str) -> list[Form]:
    """Forms of PyTorch as graphs of kernels."""
    note = "a graph of kernels for every batch: forward, backward and update in one launch"
    return [Form("torch", f"{name}+graph", note=note, graphed=True) for name in names]


def _halved(*names: str) -> list[Form]:
    """Forms of PyTorch whose products are of bfloat16 numbers, by autocast."""
    note = "products of bfloat16 numbers (torch.autocast)"
    return [
        Form("torch", f"{name}+bf16", compiled="+compiled" in name, note=note, precision=BFLOAT16)
        for name in names
    ]


FORMS: dict[str, tuple[Form, ...]] = {
    "mlp": (
        *_both("torch", "layers"),
        *_graphed("layers"),
        *_halved("layers", "layers+compiled"),
        Form("jax", "jit", note="one compiled step"),
    ),
    "list-reduction": (
        Form("torch", "rnn", note="nn.RNN, batches of one length"),
        *_both("torch", "folded", note="embedding times input weights folded into a table of 14 rows"),
        *_graphed("rnn", "folded"),
        *_halved("rnn", "folded", "folded+compiled"),
        Form("jax", "scan", note="lax.scan; embedding times input weights folded into a table of 14 rows"),
        Form("jax", "unrolled", note="the same with a step for each token"),
    ),
    "tree-lstm": (
        *_both("torch", "cat", note="a level at a time; states gathered from all levels so far"),
        *_both("torch", "joint", note="the same with h and c side by side"),
        *_both("torch", "inplace", note="a level at a time; states written into one buffer"),
        *_both("torch", "split", note="each level's states sent on to the levels that read them"),
        *_halved("cat", "cat+compiled"),
        Form("torch", "recursion", PER_INSTANCE, note="a recursive function over each tree"),
        Form("jax", "pieces", note="lax.scan over pieces of levels, of one size; a table updated by rows"),
        Form("dynet", "autobatch", note="a recursive function over each tree, batched by DyNet"),
    ),
    "ggnn": (
        *_both("torch", "bundles", note="a product for each atom and type of its bonds, edges gather"),
        *_both("torch", "by-type", note="edges sorted by type, a product for each edge"),
        *_both("torch", "all-types", note="every atom through the layers of all types, edges gather"),
        *_both("torch", "adjacency", note="the same, then products with padded adjacency matrices"),
        *_graphed("bundles", "all-types", "adjacency"),
        *_halved("bundles", "bundles+compiled"),
        Form("torch", "graph", PER_INSTANCE, note="a molecule at a time, in the form of bundles"),
        Form("torch", "dense-nh", HISTORICAL, note="a matrix of (atoms x hidden)^2 for each molecule"),
        Form("jax", "segments", note="bundles, padded; segment_sum of what arrives at an atom"),
        *_both("pyg", "propagate", note="a MessagePassing layer that knows the types of bonds"),
        *_both("pyg", "gated-conv", note="GatedGraphConv: less work, it knows no types of bonds", kind=LESS),
    ),
    "bilstm": (
        *_both("torch", "packed", note="nn.LSTM in both directions over packed sequences"),
        *_both(
            "torch", "padded", note="an nn.LSTM for each direction over padded ones, one of them turned round"
        ),
        *_graphed("padded"),
        *_halved("packed", "padded"),
        Form("jax", "padded-scan", note="lax.scan over padded sentences and padded spellings"),
        Form("torch", "sentence", PER_INSTANCE, note="a sentence at a time, its spelled words together"),
        Form("dynet", "autobatch", note="DyNet's fused cells over each sentence, batched by DyNet"),
    ),
    "language-model": (
        *_both("torch", "padded", note="nn.LSTM over padded sentences; tables with sparse gradients"),
        *_both("torch", "packed", note="the same over packed sentences"),
        Form("torch", "sentence", PER_INSTANCE, note="a sentence at a time; tables with sparse gradients"),
        Form("jax", "padded-scan", note="lax.scan over padded sentences; tables updated by rows"),
    ),
    "lm": (
        *_both("torch", "padded", note="nn.LSTM over padded sentences; sparse gradients of the embedding"),
        *_both("torch", "packed", note="the same over packed sentences"),
        *_both("torch", "dense", note="as padded, with a dense gradient of the embedding"),
        *_both("torch", "chunked", note="as padded; the output a few words at a time, its gradient at once"),
        *_halved("padded", "padded+compiled"),
        Form("torch", "sentence", PER_INSTANCE, note="a sentence at a time, as padded"),
        Form("jax", "padded-scan", note="lax.scan over padded sentences; the embedding updated by rows"),
        Form("jax", "scan-chunked", note="the same; the output a few words at a time, its gradient at once"),
    ),
    "transformer": (
        *_both("torch", "layers", note="nn.TransformerEncoder over padded sequences"),
        *_both("torch", "bucketed", note="the same, in batches of sequences of nearly equal lengths"),
        *_both("torch", "flat", note="the layers over the positions alone, padded for SDPA"),
        *_both("torch", "flat-bucketed", note="the same, in batches of sequences of nearly equal lengths"),
        *_halved("flat-bucketed", "flat-bucketed+compiled"),
        Form("torch", "sequence", PER_INSTANCE, note="a sequence at a time, as flat"),
        Form("jax", "padded-einsum", note="padded sequences; attention as products and a masked softmax"),
        Form("jax", "bucketed-einsum", note="the same, in batches of sequences of nearly equal lengths"),
    ),
}


def forms(workload: str, peer: str, kind: str | None = None) -> Sequence[Form]:
    """The forms of a workload that a peer has; none for a workload without peers."""
    return [f for f in FORMS.get(workload, ()) if f.peer == peer and kind in (None, f.kind)]


def base(name: str) -> str:
    """A form's name without how its text is run."""
    return name.partition("+")[0]


def form(workload: str, name: str) -> Form:
    """The form of that name; raises ValueError naming those that there are."""
    for each in FORMS.get(workload, ()):
        if each.name == name:
            return each
    known = ", ".join(f.name for f in FORMS.get(workload, ())) or "none"
    raise ValueError(f"{workload} has no form {name!r}; forms: {known}")
