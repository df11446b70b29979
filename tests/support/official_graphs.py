"""Writes miniature sets of molecules in their official formats."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

# ring, chain, single atom, disconnected, charged, stereo, triple bond, halogen
SMILES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "CCCO",
    "C",
    "[Na+].[Cl-]",
    "C[N+](C)(C)CC([O-])=O",
    "C/C=C\\C[C@H](N)O",
    "CC#N",
    "FC(F)(Cl)Br",
    "c1ccncc1",
    "OCC1OC(O)C(O)C1O",
)
COUNT = 40
FOLDS = (
    *(f"Inertia_{kind}_{axis}" for kind in ("mass", "valence") for axis in "abc"),
    *("length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit"),
)


def smiles_of(row: int) -> str:
    return SMILES[row % len(SMILES)]


def gap_of(row: int) -> float:
    return 0.25 + 0.01 * (row % len(SMILES))


def qm9(root: Path) -> None:
    """MoleculeNet's table, energies in Hartree."""
    folder = root / "qm9"
    folder.mkdir(parents=True)
    rows = [{"mol_id": f"gdb_{i}", "smiles": smiles_of(i), "homo": -0.2, "gap": gap_of(i)} for i in range(COUNT)]
    (folder / "qm9.csv").write_text(_table(rows))


def pcqm4m(root: Path) -> None:
    """The folder of the second version; the secret gaps of the test molecules are empty."""
    folder = root / "pcqm4m-v2"
    (folder / "raw").mkdir(parents=True)
    rows = [{"idx": i, "smiles": smiles_of(i), "homolumogap": gap_of(i) if i < 32 else ""} for i in range(COUNT)]
    (folder / "raw" / "data.csv.gz").write_bytes(gzip.compress(_table(rows).encode()))
    split = {"train": np.arange(24), "valid": np.arange(24, 32), "test-dev": np.arange(32, COUNT)}
    torch.save(split, folder / "split_dict.pt")


def molecules(root: Path) -> Path:
    """A user's table with two targets; the second has empty fields."""
    root.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "smiles": smiles_of(i),
            "target": gap_of(i),
            "other": "" if i % 3 else i,
            "part": "test" if i % 5 == 4 else "train",
        }
        for i in range(COUNT)
    ]
    path = root / "molecules.csv"
    path.write_text(_table(rows))
    return path


def zinc(root: Path) -> None:
    """The pickles that torch-geometric reads: atom types, a matrix of bond types, and the target."""
    folder = root / "ZINC" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 24), ("val", 8), ("test", 8)):
        graphs = []
        for i in range(count):
            size = 3 + i % 4
            bonds = torch.diag(torch.ones(size - 1), 1).int()
            graphs.append(
                {
                    "num_atom": size,
                    "atom_type": torch.arange(size) % 28,
                    "bond_type": bonds + bonds.T,
                    "logP_SA_cycle_normalized": torch.tensor([float(i)]),
                }
            )
        (folder / f"{part}.pickle").write_bytes(pickle.dumps(graphs))
        (folder / f"{part}.index").write_text(",".join(map(str, range(count))) + "\n")


def mutag(root: Path, count: int = 30) -> None:
    """A small set in the text format of TU Dortmund: rings of three to five atoms, whose class is their parity."""
    folder = root / "TUDataset" / "MUTAG" / "raw"
    folder.mkdir(parents=True)
    edges, owners, atoms, bonds, labels = [], [], [], [], []
    for graph in range(count):
        size, first = 3 + graph % 3, len(owners) + 1
        owners += [graph + 1] * size
        atoms += [(graph + place) % 7 for place in range(size)]
        for place in range(size):
            ends = (first + place, first + (place + 1) % size)
            edges += [ends, ends[::-1]]
            bonds += [place % 4] * 2
        labels.append(1 if size % 2 else -1)
    parts = {"A": [f"{a}, {b}" for a, b in edges], "graph_indicator": owners, "node_labels": atoms}
    parts |= {"edge_labels": bonds, "graph_labels": labels}
    for name, rows in parts.items():
        (folder / f"MUTAG_{name}.txt").write_text("\n".join(map(str, rows)) + "\n")


def peptides(root: Path) -> None:
    """Both sets of the Long Range Graph Benchmark: a table with an index column, and rows in a pickle of arrays."""
    labels = {"labels": lambda i: f'"{[int((i + j) % 4 == 0) for j in range(10)]}"'}
    numbers = {name: lambda i: round(0.1 * (i % 7) - 0.3, 1) for name in FOLDS}
    split = {"train": np.arange(24), "val": np.arange(24, 32), "test": np.arange(32, COUNT)}
    for kind, columns, table, parts in (
        ("functional", labels, "peptide_multi_class_dataset", "splits_random_stratified_peptide"),
        ("structural", numbers, "peptide_structure_normalized_dataset", "splits_random_stratified_peptide_structure"),
    ):
        folder = root / "lrgb" / f"peptides-{kind}"
        (folder / "raw").mkdir(parents=True)
        rows: list[dict[str, object]] = [
            {"": i, "smiles": smiles_of(i)} | {name: value(i) for name, value in columns.items()} for i in range(COUNT)
        ]
        (folder / "raw" / f"{table}.csv.gz").write_bytes(gzip.compress(_table(rows).encode()))
        (folder / f"{parts}.pickle").write_bytes(pickle.dumps(split))


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    lines = [",".join(rows[0])]
    lines += [",".join(str(value) for value in row.values()) for row in rows]
    return "\n".join(lines) + "\n"
