"""QM9: small organic molecules as graphs of atoms and bonds, each with its dipole moment.

The molecules and figures are of Ramakrishnan et al. (Scientific Data 1, 140022, 2014; CC0): up to nine C, N,
O and F atoms, and the hydrogen that saturates them. A line of the file holds gdb_id, mu, atoms and bonds,
with tabs between:

    29  0.0     C3 C0 C0 C3     0-1:1 1-2:3 2-3:1

mu is in Debye. An atom is its element, the number of its hydrogen atoms and, where it has one, its charge
(`O0-1`). A bond `i-j:t` joins the atoms i and j, counted from 0; t is 1 single, 2 double, 3 triple and 4
aromatic. Hydrogen atoms become nodes of the graph here, behind the others: 18 nodes on average, 29 at most.

The file's 23,663 molecules (of QM9's 133,885) stand in the order of GDB, smallest first. They are shuffled,
always in the same way, and split into 20,000 to train on, 1,000 to validate on and 2,663 to test on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from amphw.data.cache import DataError, DataFile, is_local, read_data

ELEMENTS = ("H", "C", "N", "O", "F")
BOND_TYPES = ("single", "double", "triple", "aromatic")
MAX_HYDROGENS = 4
CHARGES = (-1, 0, 1)
BONDINGS = ("single", "double", "linear", "aromatic")
"""What the bonds make of an atom: sp3, sp2, sp (a triple bond, or two double ones) or aromatic."""

KINDS = len(ELEMENTS) * (MAX_HYDROGENS + 1) * len(CHARGES) * len(BONDINGS)
"""Kinds of atoms: element, attached hydrogen atoms, charge and bonding together; few of them occur.

Of the features of Gilmer et al. (ICML 2017, table 1) these are the element, the atomic number, the number of
hydrogen atoms, aromatic, and hybridization; acceptor and donor follow from them in all but rare cases.
"""

FILE = DataFile(
    "qm9/qm9_mu_graphs.tsv",
    "",  # an extract that no public address holds in this form
    "sha256:2cbf9ab633a1d23f52c16f0aeb762e7b61aee9b7cfa57888d37f36b64edde110",
)
MAX_DIPOLE = 1000
"""Dipole moments stay below this many Debye; the largest of the file is 20."""

TRAINING, VALIDATION = 20_000, 1_000
_SPLIT_SEED = 0

_ATOM = re.compile(r"([CNOF])([0-4])([+-]1)?", re.ASCII)
_BOND = re.compile(r"(\d{1,4})-(\d{1,4}):([1-4])", re.ASCII)

Integers = npt.NDArray[np.int32]
Split = Literal["train", "valid", "test"]


class Molecule(NamedTuple):
    """kinds: int32 [atoms], each below KINDS; bonds: int32 [bonds, 3], two atoms and a type (0 single, ...),
    each bond once; dipole: mu in Debye, NaN where it is not known."""

    kinds: Integers
    bonds: Integers
    dipole: float


def kind(element: str, hydrogens: int, charge: int, bonding: str = "single") -> int:
    """The number of a kind of atom: of ELEMENTS, 0 to 4 hydrogen atoms, charge -1 to 1, of BONDINGS."""
    number = ELEMENTS.index(element) * (MAX_HYDROGENS + 1) + hydrogens
    number = number * len(CHARGES) + CHARGES.index(charge)
    return number * len(BONDINGS) + BONDINGS.index(bonding)


def bonding(types: Sequence[int]) -> str:
    """Of BONDINGS, for the types of an atom's bonds."""
    if BOND_TYPES.index("aromatic") in types:
        return "aromatic"
    if BOND_TYPES.index("triple") in types or list(types).count(BOND_TYPES.index("double")) > 1:
        return "linear"
    return "double" if BOND_TYPES.index("double") in types else "single"


HYDROGEN = kind("H", 0, 0)


def load_qm9(split: Split) -> list[Molecule]:
    """The molecules of a split. Raises DataError without the file, which cannot be downloaded."""
    if split not in ("train", "valid", "test"):
        raise ValueError(f"QM9 has no split {split!r}; it has 'train', 'valid' and 'test'")
    if not is_local(FILE):
        raise DataError(
            f"{FILE.name} is not at hand, and no public address holds it. Set AMPHW_DATA to a folder that "
            "holds it, or use generated molecules with --set sample=true."
        )
    lines = read_data(FILE).decode("utf-8").splitlines()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(lines))
    begin, end = {
        "train": (0, TRAINING),
        "valid": (TRAINING, TRAINING + VALIDATION),
        "test": (TRAINING + VALIDATION, len(lines)),
    }[split]
    return [parse_line(lines[i], where=f"{FILE.name}, line {i + 1}") for i in order[begin:end]]


def parse_line(line: str, where: str) -> Molecule:
    """The molecule of a line of the file. Raises DataError, which names it as `where`."""
    parts = line.split("\t")
    if len(parts) != 4:
        raise DataError(f"{where}: {len(parts)} columns, expected 4 (gdb_id, mu, atoms, bonds).")
    _, dipole, atoms, bonds = parts
    try:
        return parse_molecule(atoms, bonds, dipole)
    except ValueError as error:
        raise DataError(f"{where}: {error}.") from error


def parse_molecule(atoms: str, bonds: str, dipole: str | None = None) -> Molecule:
    """`C3 C2 O1`, `0-1:1 1-2:1`, `1.4131` -> the molecule with its hydrogen atoms as nodes.

    Raises ValueError saying what is wrong.
    """
    mu = math.nan if dipole is None else _dipole(dipole)
    found = [_atom(text) for text in atoms.split()]
    if not found:
        raise ValueError("there are no atoms")
    joined = [_bond(text, len(found)) for text in bonds.split()]
    pairs = {(i, j) if i < j else (j, i) for i, j, _ in joined}
    if len(pairs) < len(joined):
        raise ValueError("two atoms are joined twice")
    return _with_hydrogens(found, joined, mu)


def _dipole(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < MAX_DIPOLE:
        raise ValueError(f"the dipole moment '{text}' is no number from 0 to below {MAX_DIPOLE}")
    return value


def _atom(text: str) -> tuple[str, int, int]:
    """(element, attached hydrogen atoms, charge)."""
    match = _ATOM.fullmatch(text)
    if match is None:
        raise ValueError(
            f"'{text}' is no atom; expected C, N, O or F, the number of its hydrogen atoms, 0 to 4, and "
            "a charge +1 or -1 where it has one, such as C3 or O0-1"
        )
    return match[1], int(match[2]), int(match[3] or 0)


def _bond(text: str, atoms: int) -> tuple[int, int, int]:
    match = _BOND.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is no bond; expected i-j:t with t from 1 to 4, such as 0-1:2")
    i, j, order = int(match[1]), int(match[2]), int(match[3])
    if i == j or max(i, j) >= atoms:
        raise ValueError(f"the bond '{text}' does not join two of the atoms 0 to {atoms - 1}")
    return i, j, order - 1


def _with_hydrogens(
    atoms: Sequence[tuple[str, int, int]], bonds: Sequence[tuple[int, int, int]], mu: float
) -> Molecule:
    owners = [i for i, (_, hydrogens, _) in enumerate(atoms) for _ in range(hydrogens)]
    added = [(owner, len(atoms) + k, 0) for k, owner in enumerate(owners)]
    types: list[list[int]] = [[] for _ in atoms]
    for i, j, type in bonds:
        types[i].append(type)
        types[j].append(type)
    known = [kind(*atom, bonding(own)) for atom, own in zip(atoms, types, strict=True)]
    kinds = [*known, *[HYDROGEN] * len(owners)]
    return Molecule(np.array(kinds, np.int32), np.array([*bonds, *added], np.int32).reshape(-1, 3), mu)


# --- generated molecules -------------------------------------------------------------------------

_VALENCE = {"C": 4, "N": 3, "O": 2, "F": 1}
_NEGATIVITY = {"H": 2.20, "C": 2.55, "N": 3.04, "O": 3.44, "F": 3.98}  # Pauling's scale
_MAX_SAMPLE_ATOMS = 9


def sample_qm9(n: int, seed: int) -> list[Molecule]:
    """Generated molecules, for use without the data; the same `n` and `seed` give the same.

    **This is not QM9** and errors on it mean nothing beyond it. Up to nine atoms are joined to a tree by
    single and double bonds, as their valences allow, and saturated with hydrogen. The "dipole moment" is half
    the sum over the bonds of order times difference in electronegativity: it follows from the graph.
    """
    if n < 0:
        raise ValueError(f"the number of molecules must be 0 or more, got {n}")
    rng = np.random.default_rng(seed)
    return [_sample(rng) for _ in range(n)]


def _sample(rng: np.random.Generator) -> Molecule:
    elements = ["C"]
    free = [_VALENCE["C"]]
    bonds: list[tuple[int, int, int]] = []
    for _ in range(int(rng.integers(_MAX_SAMPLE_ATOMS))):
        open_atoms = [i for i, left in enumerate(free) if left]
        if not open_atoms:
            break
        at = open_atoms[int(rng.integers(len(open_atoms)))]
        element = str(rng.choice(list(_VALENCE), p=(0.6, 0.15, 0.2, 0.05)))
        order = int(rng.integers(1, min(2, free[at], _VALENCE[element]) + 1))
        bonds.append((at, len(elements), order - 1))
        free[at] -= order
        elements.append(element)
        free.append(_VALENCE[element] - order)
    molecule = _with_hydrogens([(e, left, 0) for e, left in zip(elements, free, strict=True)], bonds, 0.0)
    named = elements + ["H"] * sum(free)
    polarity = sum(
        (order + 1) * abs(_NEGATIVITY[named[i]] - _NEGATIVITY[named[j]])
        for i, j, order in molecule.bonds.tolist()
    )
    return molecule._replace(dipole=polarity / 2)
