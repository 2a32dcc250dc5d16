"""The reader of molecules on lines written here, the real file where it is at hand, generated molecules."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from amphw.data import qm9
from amphw.data.cache import DataError, is_local
from amphw.data.qm9 import HYDROGEN, KINDS, kind, load_qm9, parse_line, parse_molecule, sample_qm9


def test_hydrogen_atoms_become_nodes_behind_the_others():
    ethanol = parse_molecule("C3 C2 O1", "0-1:1 1-2:1", "1.4131")
    assert ethanol.kinds.tolist() == [kind("C", 3, 0), kind("C", 2, 0), kind("O", 1, 0)] + [HYDROGEN] * 6
    hydrogen = [[0, 3, 0], [0, 4, 0], [0, 5, 0], [1, 6, 0], [1, 7, 0], [2, 8, 0]]
    assert ethanol.bonds.tolist() == [[0, 1, 0], [1, 2, 0], *hydrogen]
    assert ethanol.dipole == 1.4131
    assert ethanol.kinds.dtype == ethanol.bonds.dtype == np.int32


def test_charges_types_and_an_unknown_dipole():
    molecule = parse_molecule("N3+1 C0 O0-1", "0-1:4 2-1:3")
    assert molecule.kinds[:3].tolist() == [
        kind("N", 3, 1, "aromatic"),
        kind("C", 0, 0, "aromatic"),
        kind("O", 0, -1, "linear"),
    ]
    assert molecule.bonds[:2].tolist() == [[0, 1, 3], [2, 1, 2]]
    assert np.isnan(molecule.dipole)


@pytest.mark.parametrize(
    ("bonds", "expected"),
    [
        ("", "single"),
        ("0-1:1 0-2:1", "single"),
        ("0-1:2 0-2:1", "double"),
        ("0-1:2 0-2:2", "linear"),
        ("0-1:3 0-2:1", "linear"),
        ("0-1:4 0-2:4", "aromatic"),
        ("0-1:4 0-2:2", "aromatic"),
    ],
)
def test_bonds_make_a_kind(bonds, expected):
    assert parse_molecule("C0 C0 C0", bonds).kinds[0] == kind("C", 0, 0, expected)


def test_a_lone_atom_is_a_molecule():
    lone = parse_molecule("C0", "")
    assert (len(lone.kinds), lone.bonds.shape) == (1, (0, 3))
    methane = parse_molecule("C4", "")
    assert (len(methane.kinds), len(methane.bonds)) == (5, 4)


def test_kinds_are_numbered_apart():
    numbers = {kind(*parts) for parts in product(qm9.ELEMENTS, range(5), qm9.CHARGES, qm9.BONDINGS)}
    assert numbers == set(range(KINDS))


@pytest.mark.parametrize(
    ("atoms", "bonds", "dipole", "message"),
    [
        ("", "", "1", "there are no atoms"),
        ("C4", "", "one", "the dipole moment 'one' is no number from 0 to below 1000"),
        ("C4", "", "nan", "the dipole moment 'nan' is no number"),
        ("C4", "", "-1", "the dipole moment '-1' is no number"),
        ("C4", "", "1000", "the dipole moment '1000' is no number"),
        ("C4 S2", "", "1", "'S2' is no atom; expected C, N, O or F, the number of its hydrogen atoms"),
        ("C", "", "1", "'C' is no atom"),
        ("C5", "", "1", "'C5' is no atom"),
        ("O0-2", "", "1", "'O0-2' is no atom"),
        ("C3 C3", "0-1", "1", "'0-1' is no bond; expected i-j:t with t from 1 to 4, such as 0-1:2"),
        ("C3 C3", "0-1:5", "1", "'0-1:5' is no bond"),
        ("C3 C3", "0-2:1", "1", "the bond '0-2:1' does not join two of the atoms 0 to 1"),
        ("C3 C3", "1-1:1", "1", "the bond '1-1:1' does not join two of the atoms 0 to 1"),
        ("C3 C3", "0-1:1 1-0:2", "1", "two atoms are joined twice"),
    ],
)
def test_another_text_is_refused(atoms, bonds, dipole, message):
    with pytest.raises(ValueError) as caught:
        parse_molecule(atoms, bonds, dipole)
    assert str(caught.value).startswith(message)


def test_errors_in_a_file_name_the_line():
    with pytest.raises(DataError, match=r"^x, line 3: 3 columns, expected 4 \(gdb_id, mu, atoms, bonds\)\.$"):
        parse_line("1\t0.0\tC4", where="x, line 3")
    with pytest.raises(DataError, match=r"^x, line 7: there are no atoms\.$"):
        parse_line("1\t0.0\t\t", where="x, line 7")


def test_load_splits_the_shuffled_file(tmp_path, monkeypatch):
    content = "".join(f"{k}\t{k / 10}\tC4\t\n" for k in range(20)).encode()
    (tmp_path / "qm9").mkdir()
    (tmp_path / "qm9" / "qm9_mu_graphs.tsv").write_bytes(content)
    monkeypatch.setenv("AMPHW_DATA", str(tmp_path))
    monkeypatch.setattr(
        qm9, "FILE", replace(qm9.FILE, checksum=f"sha256:{hashlib.sha256(content).hexdigest()}")
    )
    monkeypatch.setattr(qm9, "TRAINING", 10)
    monkeypatch.setattr(qm9, "VALIDATION", 4)
    dipoles = {split: [m.dipole for m in load_qm9(split)] for split in ("train", "valid", "test")}
    assert [len(found) for found in dipoles.values()] == [10, 4, 6]
    assert sorted(sum(dipoles.values(), [])) == [k / 10 for k in range(20)]
    assert dipoles["train"] != sorted(dipoles["train"])
    assert dipoles["valid"] == [m.dipole for m in load_qm9("valid")]


def test_without_the_file_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("AMPHW_DATA", raising=False)
    monkeypatch.setenv("AMPHW_CACHE", str(tmp_path))
    with pytest.raises(
        DataError, match="Set AMPHW_DATA to a folder that holds it, or use generated molecules"
    ):
        load_qm9("train")


def test_unknown_split():
    with pytest.raises(ValueError, match=r"^QM9 has no split 'dev'; it has 'train', 'valid' and 'test'$"):
        load_qm9("dev")


def test_real_file():
    if not is_local(qm9.FILE):
        pytest.skip("QM9's dipole moments are not at hand: set AMPHW_DATA")
    sets = {split: load_qm9(split) for split in ("valid", "test")}
    assert {split: len(found) for split, found in sets.items()} == {"valid": 1000, "test": 2663}
    molecules = sum(sets.values(), [])
    assert max(len(m.kinds) for m in molecules) <= 29
    assert np.mean([len(m.kinds) for m in molecules]) == pytest.approx(18.06, abs=0.1)
    dipoles = np.array([m.dipole for m in molecules])
    assert 0 <= dipoles.min() and dipoles.mean() == pytest.approx(2.667, abs=0.1)


def test_samples_are_saturated_and_follow_their_rule():
    kinds = {kind(e, h, 0, b): e for e, h, b in product(qm9.ELEMENTS, range(5), qm9.BONDINGS)}
    negativity = {k: qm9._NEGATIVITY[e] for k, e in kinds.items()}
    valence = {k: {**qm9._VALENCE, "H": 1}[e] for k, e in kinds.items()}
    molecules = sample_qm9(200, seed=3)
    assert {int(order) for m in molecules for order in m.bonds[:, 2]} == {0, 1}
    for m in molecules:
        taken = np.zeros(len(m.kinds), int)
        for i, j, order in m.bonds:
            taken[[i, j]] += order + 1
        assert taken.tolist() == [valence[k] for k in m.kinds.tolist()]
        ends = [(negativity[int(m.kinds[i])], negativity[int(m.kinds[j])]) for i, j, _ in m.bonds]
        polarity = sum((order + 1) * abs(a - b) for (a, b), order in zip(ends, m.bonds[:, 2], strict=True))
        assert m.dipole == pytest.approx(polarity / 2)


def test_samples_are_a_function_of_the_seed():
    def described(seed):
        return [(m.kinds.tolist(), m.bonds.tolist(), m.dipole) for m in sample_qm9(20, seed)]

    assert described(1) == described(1)
    assert described(1) != described(2)
    assert sample_qm9(0, 1) == []
    with pytest.raises(ValueError, match=r"^the number of molecules must be 0 or more, got -1$"):
        sample_qm9(-1, 0)
