"""Graphs of SMILES strings, with the atom and bond features of the Open Graph Benchmark."""

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from sliceformer_lab.errors import DataError

# Values of each feature in OGB's order; any other value is 'misc', numbered after the last one.
ATOM_FEATURES: dict[str, tuple[Any, ...]] = {
    "atomic_number": tuple(range(1, 119)),
    "chirality": ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER"),
    "degree": tuple(range(11)),  # bonds, including those to explicit hydrogens
    "formal_charge": tuple(range(-5, 6)),
    "hydrogens": tuple(range(9)),
    "radical_electrons": tuple(range(5)),
    "hybridization": ("SP", "SP2", "SP3", "SP3D", "SP3D2"),
    "aromatic": (False, True),
    "in_ring": (False, True),
}
BOND_FEATURES: dict[str, tuple[Any, ...]] = {
    "type": ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC"),
    "stereo": ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY"),
    "conjugated": (False, True),
}

MAX_ATOMS = 2**15  # the ends of bonds are int16


class TooManyAtomsError(Exception):
    """A molecule has more atoms than are wanted."""


@dataclass(frozen=True)
class Molecule:
    """The graph of a molecule: each bond is two consecutive directed edges."""

    atoms: np.ndarray  # (n, 9) uint8, positions in the values of ATOM_FEATURES
    edges: np.ndarray  # (2, e) int16, source and target
    bonds: np.ndarray  # (e, 3) uint8, positions in the values of BOND_FEATURES
    smiles: str = ""

    def __len__(self) -> int:
        return len(self.atoms)


def values_of(features: dict[str, tuple[Any, ...]]) -> tuple[int, ...]:
    """Number of values of each feature, including 'misc'."""
    return tuple(len(values) + 1 for values in features.values())


def molecule(smiles: str, most_atoms: int = MAX_ATOMS) -> Molecule | None:
    """The graph of a SMILES string with only the hydrogens that it writes as atoms; None if it does not parse.

    Raises TooManyAtomsError above `most_atoms`, and DataError if RDKit is not installed.
    """
    chem, most = _import_rdkit(), min(most_atoms, MAX_ATOMS)
    if len(smiles) > most:  # an atom takes a character; the rings of a large molecule can take RDKit minutes
        unchecked = chem.MolFromSmiles(smiles, sanitize=False)
        if unchecked is not None and unchecked.GetNumHeavyAtoms() > most:
            raise TooManyAtomsError
    parsed = chem.MolFromSmiles(smiles)
    if parsed is None:
        return None
    if parsed.GetNumAtoms() > most:
        raise TooManyAtomsError
    atoms = [_list_positions(ATOM_FEATURES, _atom_row(atom)) for atom in parsed.GetAtoms()]
    ends, bonds = [], []
    for bond in parsed.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        row = _list_positions(BOND_FEATURES, (str(bond.GetBondType()), str(bond.GetStereo()), bond.GetIsConjugated()))
        ends += [(i, j), (j, i)]
        bonds += [row, row]
    return Molecule(
        np.array(atoms, dtype=np.uint8).reshape(-1, len(ATOM_FEATURES)),
        np.array(ends, dtype=np.int16).reshape(-1, 2).T,
        np.array(bonds, dtype=np.uint8).reshape(-1, len(BOND_FEATURES)),
        smiles,
    )


def canonical_smiles(smiles: str) -> str:
    """RDKit's one SMILES of the molecule of a SMILES string that parses."""
    return str(_import_rdkit().CanonSmiles(smiles))


def rdkit_version() -> str:
    """The version of RDKit, which decides what parses and the features. Raises DataError if it is not installed."""
    _import_rdkit()
    from rdkit import rdBase

    return str(rdBase.rdkitVersion)


def _atom_row(atom: Any) -> tuple[Any, ...]:
    return (
        atom.GetAtomicNum(),
        str(atom.GetChiralTag()),
        atom.GetTotalDegree(),
        atom.GetFormalCharge(),
        atom.GetTotalNumHs(),
        atom.GetNumRadicalElectrons(),
        str(atom.GetHybridization()),
        atom.GetIsAromatic(),
        atom.IsInRing(),
    )


def _list_positions(features: dict[str, tuple[Any, ...]], row: tuple[Any, ...]) -> list[int]:
    return [
        values.index(value) if value in values else len(values)
        for values, value in zip(features.values(), row, strict=True)
    ]


@cache
def _import_rdkit() -> ModuleType:
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise DataError("reading SMILES needs RDKit: pip install 'sliceformer-lab[graph]'") from error
    rdBase.DisableLog("rdApp.*")  # the caller reports a SMILES that does not parse
    chem: ModuleType = Chem
    return chem
