"""A gated graph network on the dipole moments of molecules (AMPNet, arXiv 1705.09786, section 6).

    atoms - embed - apart (k, v) - phi - fork -- spread (b) - type? - edge_* - merge - deliver (e)
                                    |      `------------------- update (v, all e into it) <-'
                                    `- next <- no - last? <-------'
                                                      `- yes - leave - readout (all v) - loss

Li et al. (ICLR 2016): in each of `steps` rounds, every atom sends its h along its bonds, through a linear
layer for the type of bond, adds up what it receives, and takes it in with a GRU. Gilmer et al. (ICML 2017),
section 3: the result is a linear function of the sum over the atoms of sigmoid(i(h, h0)) * tanh(j(h)), where
h0 is the atom's embedding.

What an atom sends is the same for all its bonds of one type. So the layers work on *bundles* b, the pairs of
an atom and a type, and only their results are copied to the bonds e: 20 products of a row and a matrix for a
molecule instead of 37, and 72 if every atom went through all four layers at once.

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
from amphw.ir.instance import Axiom, Instance, Schema, TableType, csr_of, permutation
from amphw.ir.nodes import PPT, Loss, Source
from amphw.ir.program import Params, ParamSpec, Program, Value, ValueType, trace
from amphw.ir.routing import Bcast, Cond, Flatmap, Isu, Phi, Ungroup
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

v, a, k, b, e, j = (Field(name) for name in "vakbej")
atoms, bundles, edges = Attr("atoms"), Attr("bundles"), Attr("edges")
bundle_off, bundle_atom, bundle_type = table("bundle_off"), table("bundle_atom"), table("bundle_type")
edge_off, edge_bundle, dst = table("edge_off"), table("edge_bundle"), table("dst")
in_off, in_edge, in_pos = table("in_off"), table("in_edge"), table("in_pos")

in_degree = in_off(v + 1) - in_off(v)
V = state_field("v", atoms, MAX_ATOMS)
A = state_field("a", atoms, MAX_ATOMS)
B = state_field("b", bundles, MAX_EDGES)
E = state_field("e", edges, MAX_EDGES)
OF_ATOM = state_field("j", bundle_off(v + 1) - bundle_off(v), len(BOND_TYPES))
OF_BUNDLE = state_field("j", edge_off(b + 1) - edge_off(b), MAX_EDGES)
INTO_ATOM = state_field("j", in_degree, MAX_EDGES)


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
    # Intervals are gradient rows: bundles at edge_*, atoms at update, both in each of the 4 steps. At the
    # readout, which a molecule's atoms reach together, they are molecules.
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
        """Attributes atoms, bundles and edges (bonds in one direction); tables as `_instance` makes them."""
        g = Graph(self.name, _schema())
        step = state_field("k", cfg.steps)
        g.add(Source("atoms", rows=atoms))
        g.add(PPT("embed", _embedding(cfg.hidden)))
        with g.region("steps", "loop", "k", "v", "a"):
            g.add(Ungroup("apart", A, StateMap(drop={"a": v}, add=((step, Const(0)), (V, a)))))
            g.add(Phi("phi", ("first", "next")))
            g.add(Bcast("fork"))
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
    edge = TableType((edges,), edges)
    tables = {
        "kind": TableType((atoms,), lift(KINDS)),
        "bundle_off": TableType((atoms + 1,), bundles + 1),
        "bundle_atom": TableType((bundles,), atoms),
        "bundle_type": TableType((bundles,), lift(len(BOND_TYPES))),
        "edge_off": TableType((bundles + 1,), edges + 1),
        "edge_bundle": TableType((edges,), bundles),
        "dst": TableType((edges,), atoms),
        "in_off": TableType((atoms + 1,), edges + 1),
        "in_edge": edge,
        "in_pos": edge,
        "mu": TableType((lift(1),), lift(round(MAX_DIPOLE / _TICK) + 1)),
    }
    axioms = (
        csr_of("bundle_off", "bundle_atom", V, OF_ATOM),
        csr_of("edge_off", "edge_bundle", B, OF_BUNDLE),
        permutation("in_pos", "in_edge", E),
        Axiom("in_off csr_of dst[in_edge]", (V, INTO_ATOM), dst(in_edge(in_off(v) + j)), v),
    )
    return Schema({"atoms": MAX_ATOMS, "bundles": MAX_EDGES, "edges": MAX_EDGES}, tables, axioms=axioms)


def _messages(g: Graph, hidden: int) -> None:
    """From each atom through the layers of its bonds' types into the atoms at their other ends."""
    with g.region("bonds", "map", "b", "e"):
        to_bundle = StateMap(
            drop={"v": bundle_atom(b), "j": b - bundle_off(bundle_atom(b))}, add=((B, bundle_off(v) + j),)
        )
        to_edge = StateMap(
            drop={"b": edge_bundle(e), "j": e - edge_off(edge_bundle(e))}, add=((E, edge_off(b) + j),)
        )
        g.add(Flatmap("spread", OF_ATOM, to_bundle))
        g.add(Cond("type?", bundle_type(b), BOND_TYPES))
        layer = trace(lambda p, h: linear(h, p.W, p.b), {"h": hidden}, _affine("", hidden, hidden))
        for name in BOND_TYPES:
            g.add(PPT(f"edge_{name}", layer))
        g.add(Phi("merge", BOND_TYPES))
        g.add(Flatmap("deliver", OF_BUNDLE, to_edge))
        # The way back: a member's position counts from the first edge into the atom.
        arrive = StateMap(drop={"e": in_edge(in_off(v) + Field(MEMBER))}, add=((V, dst(e)),))
        position = in_pos(e) - in_off(dst(e))
        g.add(Group("update", arrive, position, in_degree, init=True, program=_gru(hidden)))
    g.connect("spread", "type?")
    for name in BOND_TYPES:
        g.connect(f"type?.{name}", f"edge_{name}", f"merge.{name}")
    g.connect("fork.out0", "spread")
    g.connect("merge", "deliver", "update.in")
    g.connect("fork.out1", "update.init")


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
    """A bond makes two edges. Edges are numbered by their atom and, within it, by type: a bundle's are
    neighbours. in_edge lists them by the atom that they lead to."""
    count = len(molecule.kinds)
    i, j, order = molecule.bonds.T
    src, dst, type = np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([order, order])
    bundle = src * len(BOND_TYPES) + type
    by_bundle = np.argsort(bundle, kind="stable")
    bundle, dst = bundle[by_bundle], dst[by_bundle]
    found, edge_bundle, in_bundle = np.unique(bundle, return_inverse=True, return_counts=True)
    in_edge = np.argsort(dst, kind="stable")
    known = not np.isnan(molecule.dipole)
    tables = {
        "kind": molecule.kinds,
        "bundle_off": _offsets(found // len(BOND_TYPES), count),
        "bundle_atom": found // len(BOND_TYPES),
        "bundle_type": found % len(BOND_TYPES),
        "edge_off": np.concatenate([[0], np.cumsum(in_bundle)]),
        "edge_bundle": edge_bundle,
        "dst": dst,
        "in_off": _offsets(dst, count),
        "in_edge": in_edge,
        "in_pos": np.argsort(in_edge, kind="stable"),
        "mu": np.array([round(molecule.dipole / _TICK) if known else 0]),
    }
    attrs = {"atoms": count, "bundles": len(found), "edges": len(dst)}
    return (Instance if known else Unlabelled)(attrs, tables)


def _offsets(column: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(column, minlength=count))])
