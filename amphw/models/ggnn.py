"""A gated graph network on the dipole moments of molecules (AMPNet, arXiv 1705.09786, section 6).

    atoms - embed - apart (k, v) - phi - fork -- has_T? - yes - edge_T - send_T (e) - merge
                                    |      |        `---- no - no_T                     |
                                    |      `------- update (v, all e into it) <---------'
                                    `- next <- no - last?
                                                      `- yes - leave - readout (all v) - loss

(T stands for each of single, double, triple and aromatic; `update` leads to `last?`.)

Li et al. (ICLR 2016): in each of `steps` rounds, every atom sends its h along its bonds, through a linear
layer for the type of bond, adds up what it receives, and takes it in with a GRU. Gilmer et al. (ICML 2017),
section 3: the result is a linear function of the sum over the atoms of sigmoid(i(h, h0)) * tanh(j(h)), where
h0 is the atom's embedding.

What an atom sends is the same for all its bonds of one type. So it goes once through the layer of each type
that it has, and the result is copied to the bonds: 20 products of a row and a matrix for a molecule instead
of 37, and 72 if every atom went through all four layers.

h0 depends on the kind of atom alone, and i is linear in it: its share in i is a table by kind of atom, which
spares the readout a message an atom.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from amphw.data.qm9 import BOND_TYPES, KINDS, MAX_DIPOLE, Molecule, load_qm9, parse_molecule, sample_qm9
from amphw.ir.behaviour import MEMBER, StateMap
from amphw.ir.device import Report
from amphw.ir.expr import ROW, Attr, Const, Field, lift, table
from amphw.ir.functions import absolute, columns, linear, number, sigmoid, split, sum_rows, take, tanh
from amphw.ir.graph import Graph
from amphw.ir.grouping import Group
from amphw.ir.instance import Axiom, Instance, Schema, TableType
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import Params, ParamSpec, Program, Value, ValueType, trace
from amphw.ir.routing import Bcast, Cond, Discard, Flatmap, Isu, Phi, Ungroup
from amphw.ir.state import state_field
from amphw.models.base import Instances, Model, ModelError, at_least, knob, limited
from amphw.models.classify import Unlabelled

MAX_ATOMS, MAX_EDGES = 64, 256
_SAMPLES = (3000, 500)  # generated molecules to train and to validate on

# Dipole moments in Debye: mean and deviation over the training set, by which the network's output is scaled;
# the unit of `error`, the accuracy that chemistry asks for; and that of the table, which holds integers.
_MEAN, _DEVIATION = 2.668, 1.477
_CHEMICAL_ACCURACY = 0.1
_TICK = 1e-4

v, a, k, e, c, j = (Field(name) for name in "vakecj")
atoms, edges = Attr("atoms"), Attr("edges")
degree, out_off, src, dst = table("degree"), table("out_off"), table("src"), table("dst")
in_degree, in_off, in_edge, place = table("in_degree"), table("in_off"), table("in_edge"), table("place")

V = state_field("v", atoms, MAX_ATOMS)
A = state_field("a", atoms, MAX_ATOMS)
E = state_field("e", edges, MAX_EDGES)
TYPE = state_field("c", len(BOND_TYPES))


@dataclass(frozen=True)
class GGNNConfig:
    """Section [model] of the gated graph network."""

    hidden: int = knob(100, "width of an atom's state")
    steps: int = knob(4, "rounds of messages between the atoms")
    sample: bool = knob(False, "use generated molecules, which need no data, instead of QM9")

    def __post_init__(self) -> None:
        at_least(1, hidden=self.hidden, steps=self.steps)


class GGNN(Model[GGNNConfig]):
    """The gated graph network; throughput counts molecules, `error` is the mean absolute one in 0.1 Debye."""

    name = "ggnn"
    summary = "a gated graph network on the dipole moments of molecules"
    config = GGNNConfig
    # Intervals are gradient rows: an atom in a step each, at update and, where it has such bonds, at edge_*.
    # At the readout, which a molecule's atoms reach together, they are molecules.
    defaults = {
        "train": {"epochs": 30, "max_active_keys": 16},
        "update": {
            "optimizer": "adam",
            "lr": 0.001,
            "min_update_interval": 1000,
            "nodes": {
                "embed": {"min_update_interval": 300},
                "edge_double": {"min_update_interval": 200},
                "edge_triple": {"min_update_interval": 200},
                "edge_aromatic": {"min_update_interval": 200},
                "readout": {"min_update_interval": 16},
            },
        },
    }
    metric = "error"
    metrics = ("loss", "error")
    counted = "molecules"

    def graph(self, cfg: GGNNConfig) -> Graph:
        """Attributes atoms and edges (bonds in one direction); tables as `_instance` makes them."""
        g = Graph(self.name, _schema())
        step = state_field("k", cfg.steps)
        g.add(Source("atoms", rows=atoms))
        g.add(PPT("embed", _embedding(cfg.hidden)))
        with g.region("steps", "loop", "k", "v", "a"):
            g.add(Ungroup("apart", A, StateMap(drop={"a": v}, add=((step, Const(0)), (V, a)))))
            g.add(Phi("phi", ("first", "next")))
            _messages(g, cfg.hidden)
            g.add(Cond("last?", k.eq(cfg.steps - 1)))
            g.add(Isu("next", StateMap(set={"k": k + 1})))
            g.add(Isu("leave", StateMap(drop={"k": None})))
            together = StateMap(drop={"v": Field(MEMBER)})
            g.add(Group("readout", together, member=v, count=atoms, program=_readout(cfg.hidden)))
        g.add(_loss())
        g.connect("atoms", "embed", "apart", "phi.first")
        g.connect("phi", "fork")
        g.connect("update", "last?")
        g.connect("last?.no", "next", "phi.next")
        g.connect("last?.yes", "leave", "readout", "loss")
        return g

    def prepare(self, cfg: GGNNConfig, seed: int) -> None:
        for part in (0, 1):
            _load(part, cfg.sample, seed)

    def training(self, cfg: GGNNConfig, seed: int, epoch: int, limit: int = 0) -> Instances:
        """20,000 molecules (3,000 generated ones), shuffled in every epoch."""
        molecules = _load(0, cfg.sample, seed)
        order = np.random.default_rng([seed, epoch]).permutation(limited(len(molecules), limit))
        return Instances(len(order), lambda i: _instance(molecules[order[i]]))

    def validation(self, cfg: GGNNConfig, seed: int, limit: int = 0) -> Instances:
        """1,000 other molecules (500 generated ones)."""
        molecules = _load(1, cfg.sample, seed)
        return Instances(limited(len(molecules), limit), lambda i: _instance(molecules[i]))

    def parse(self, cfg: GGNNConfig, text: str) -> Instance:
        """`atoms<TAB>bonds`, such as `C3 C2 O1<TAB>0-1:1 1-2:1`, or a whole line of the data's file."""
        parts = text.split("\t")
        if len(parts) not in (2, 4):
            raise ModelError(f"the line has {len(parts)} columns; {_EXPECTED}")
        try:
            molecule = parse_molecule(parts[-2], parts[-1], parts[1] if len(parts) == 4 else None)
        except ValueError as error:
            raise ModelError(f"{error}; {_EXPECTED}") from None
        for what, count, most in (
            ("atoms", len(molecule.kinds), MAX_ATOMS),
            ("bonds", len(molecule.bonds), MAX_EDGES // 2),
        ):
            if count > most:
                raise ModelError(f"with its hydrogen the molecule has {count} {what}, allowed are {most}")
        return _instance(molecule)

    def explain(self, cfg: GGNNConfig, instance: Instance, report: Report) -> dict[str, Any]:
        """The dipole moment in Debye; where the true one is known also that."""
        told = {"prediction": round(float(report.outputs[self.loss_node]["dipole"][0, 0]), 4)}
        if not isinstance(instance, Unlabelled):
            told["dipole"] = round(int(instance.tables["mu"][0]) * _TICK, 4)
        return told


_EXPECTED = r"expected atoms, a tab and bonds, such as 'C3 C2 O1\t0-1:1 1-2:1'"


def _schema() -> Schema:
    edge, by_type = TableType((edges,), edges), (lift(len(BOND_TYPES)), atoms)
    tables = {
        "kind": TableType((atoms,), lift(KINDS)),
        "degree": TableType(by_type, edges + 1),
        "out_off": TableType(by_type, edges + 1),
        "src": TableType((edges,), atoms),
        "dst": TableType((edges,), atoms),
        "in_degree": TableType((atoms,), edges + 1),
        "in_off": TableType((atoms,), edges + 1),
        "in_edge": edge,
        "place": edge,
        "mu": TableType((lift(1),), lift(round(MAX_DIPOLE / _TICK) + 1)),
    }
    sent = state_field("j", degree(c, v), MAX_EDGES)
    axioms = (
        Axiom("out_off, degree csr_of src", (TYPE, V, sent), src(out_off(c, v) + j), v),
        Axiom("in_off csr_of in_edge", (E,), in_edge(in_off(dst(e)) + place(e)), e),
    )
    return Schema({"atoms": MAX_ATOMS, "edges": MAX_EDGES}, tables, axioms=axioms)


def _messages(g: Graph, hidden: int) -> None:
    """From each atom through the layers of its bonds' types into the atoms at their other ends."""
    g.add(Bcast("fork", len(BOND_TYPES) + 1))
    with g.region("bonds", "map", "e"):
        layer = trace(lambda p, h: linear(h, p.W, p.b), {"h": hidden}, _affine("", hidden, hidden))
        for number, name in enumerate(BOND_TYPES):
            sent = state_field("j", degree(number, v), MAX_EDGES)
            # The way back: an edge knows its atom, and the atom where its edges begin.
            to_edge = StateMap(
                drop={"v": src(e), "j": e - out_off(number, src(e))}, add=((E, out_off(number, v) + j),)
            )
            g.add(Cond(f"has_{name}?", degree(number, v) > 0))
            g.add(Discard(f"no_{name}"))
            g.add(PPT(f"edge_{name}", layer))
            g.add(Flatmap(f"send_{name}", sent, to_edge))
        g.add(Phi("merge", BOND_TYPES))
        arrive = StateMap(drop={"e": in_edge(in_off(v) + Field(MEMBER))}, add=((V, dst(e)),))
        g.add(Group("update", arrive, place(e), in_degree(v), init=True, program=_gru(hidden)))
    for number, name in enumerate(BOND_TYPES):
        g.connect(f"fork.out{number}", f"has_{name}?")
        g.connect(f"has_{name}?.no", f"no_{name}")
        g.connect(f"has_{name}?.yes", f"edge_{name}", f"send_{name}", f"merge.{name}")
    g.connect(f"fork.out{len(BOND_TYPES)}", "update.init")
    g.connect("merge", "update.in")


def _affine(suffix: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...] | ParamSpec]:
    return {f"W{suffix}": (inputs, outputs), f"b{suffix}": ParamSpec(f"b{suffix}", (outputs,), "zeros")}


def _embedding(hidden: int) -> Program:
    params = {"E": ParamSpec("E", (KINDS, hidden), "normal:0.3")}
    return trace(lambda p, x: take(p.E, table("kind")(ROW)), {"x": 0}, params)


def _gru(hidden: int) -> Program:
    """h (init) and what arrived (in) -> the next h. As PyTorch's GRUCell, weights transposed."""

    def function(p: Params, h: Value, messages: Value) -> Value:
        gi = linear(sum_rows(messages), p.Wi, p.bi)
        gh = linear(h, p.Wh, p.bh)
        reset, keep = split(sigmoid(columns(gi, 0, 2 * hidden) + columns(gh, 0, 2 * hidden)), 2)
        new = tanh(columns(gi, 2 * hidden, hidden) + reset * columns(gh, 2 * hidden, hidden))
        return new + keep * (h - new)

    inputs: dict[str, int | ValueType] = {"init": hidden, "in": ValueType("float", "members", hidden)}
    return trace(function, inputs, _affine("i", hidden, 3 * hidden) | _affine("h", hidden, 3 * hidden))


def _readout(hidden: int) -> Program:
    """h of all atoms -> one figure."""

    def function(p: Params, h: Value) -> Value:
        gate, value = split(linear(h, p.W, p.b), 2)
        gate = gate + take(p.T, table("kind")(ROW), "members")
        return linear(sum_rows(sigmoid(gate) * tanh(value)), p.Wy, p.by)

    params = {
        **_affine("", hidden, 2 * hidden),
        "T": ParamSpec("T", (KINDS, hidden), "zeros"),
        **_affine("y", hidden, 1),
    }
    return trace(function, {"in": ValueType("float", "members", hidden)}, params)


def _loss() -> Loss:
    """Squared error in standard deviations; absolute error in 0.1 D; and the dipole moment in Debye."""

    def values(y: Value) -> tuple[Value, Value, Value]:
        dipole = number(y, table("mu")(0)) * _TICK
        off = y - (dipole - _MEAN) * (1 / _DEVIATION)
        return off * off, absolute(off) * (_DEVIATION / _CHEMICAL_ACCURACY), y * _DEVIATION + _MEAN

    return Loss("loss", trace(values, {"y": 1}), ("loss", "error", "dipole"))


@lru_cache(maxsize=4)
def _load(part: int, sample: bool, seed: int) -> list[Molecule]:
    """The training set (part 0) or the validation set (part 1); generated ones differ by seed and part."""
    if sample:
        return sample_qm9(_SAMPLES[part], 2 * seed + part)
    return load_qm9("valid" if part else "train")


def _instance(molecule: Molecule) -> Instance:
    """A bond makes two edges, numbered by type and then by the atom they come from.

    degree, out_off [types, atoms]: how many of a type an atom has, and its first; in_edge [edges]: the edges
    by the atom that they lead to, of which an atom has in_degree from in_off on; place [edges]: which of
    those an edge is.
    """
    count, types = len(molecule.kinds), len(BOND_TYPES)
    i, j, order = molecule.bonds.T
    src, dst, kind = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([order, order])
    sorted_ = np.argsort(kind * count + src, kind="stable")
    src, dst, kind = src[sorted_], dst[sorted_], kind[sorted_]
    degree = np.bincount(kind * count + src, minlength=types * count)
    in_degree = np.bincount(dst, minlength=count)
    in_off = np.cumsum(in_degree) - in_degree
    in_edge = np.argsort(dst, kind="stable")
    position = np.empty(len(dst), np.int64)
    position[in_edge] = np.arange(len(dst))
    known = not np.isnan(molecule.dipole)
    tables = {
        "kind": molecule.kinds,
        "degree": degree.reshape(types, count),
        "out_off": (np.cumsum(degree) - degree).reshape(types, count),
        "src": src,
        "dst": dst,
        "in_degree": in_degree,
        "in_off": in_off,
        "in_edge": in_edge,
        "place": position - in_off[dst],
        "mu": np.array([round(molecule.dipole / _TICK) if known else 0]),
    }
    return (Instance if known else Unlabelled)({"atoms": count, "edges": len(dst)}, tables)
