"""Molecules with numbers or labels to predict, from SMILES: the base of all sets, and your own table."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from sliceformer_lab.config.option_types import Natural
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.graphs.base import GraphEntry, SmilesData
from sliceformer_lab.data.graphs.shortest_paths import MAX_NODES, shortest_paths
from sliceformer_lab.data.graphs.smiles import Molecule, canonical_smiles
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore
from sliceformer_lab.data.own_data import OwnTable
from sliceformer_lab.data.own_targets import OwnTargets
from sliceformer_lab.data.spec import Choice, DataSpec, NewInput
from sliceformer_lab.data.splits import Stage
from sliceformer_lab.data.table_files import check_table, field_of, number_of, split_of, table_rows
from sliceformer_lab.measures.molecule_features import NUM_DESCRIPTORS, Descriptors, descriptors_of

MIN_FINGERPRINT_MOLECULES = 3000  # of a table, from which a fingerprint helps; in smaller ones it is learned by heart

MaxNodes = Annotated[int, Field(ge=1, le=MAX_NODES)]


@dataclass(frozen=True)
class WithPaths:
    """Makes the graph of a molecule, with the shortest paths between its atoms, and its descriptors."""

    descriptors: Descriptors = "none"

    def __call__(self, molecule: Molecule) -> Graph:
        pairs = np.stack(shortest_paths(molecule.edges, len(molecule)), axis=-1)
        whole = None if self.descriptors == "none" else descriptors_of(molecule.smiles, self.descriptors)
        return Graph(molecule.atoms, molecule.edges, molecule.bonds, pairs, context=whole)


@dataclass(kw_only=True, eq=False, repr=False)
class MoleculeData(SmilesData):
    """Molecules with the distance and the middle node of each pair of atoms, in 2 n^2 bytes.

    Batches contain the features of the first `num_hops` bonds of each shortest path.
    """

    max_nodes: MaxNodes = 128
    num_hops: Natural = 5

    @property
    def annotate(self) -> Callable[[Molecule], Graph]:
        return WithPaths()

    @property
    def spec(self) -> DataSpec:
        return replace(super().spec, num_hops=self.num_hops, needs_bias=True)

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        return GraphSplit(store, self.num_hops, self.plan.pairwise, rows=rows)


@dataclass(kw_only=True, eq=False, repr=False)
class MoleculeTable(MoleculeData, OwnTargets, OwnTable):
    """SMILES with numbers or labels (0 or 1) of a table; empty fields are ignored in loss and metrics.

    A column or fractions define the splits.
    """

    title = "molecule_csv"
    note = "your own table; sha256 is of its graphs and numbers"

    smiles_column: str = "smiles"
    targets: Annotated[tuple[str, ...], Field(min_length=1)]
    descriptors: Descriptors | None = "none"

    @property
    def spec(self) -> DataSpec:
        """Reads the table unless `kind` and `descriptors` say what they are. Raises DataError."""
        whole = NUM_DESCRIPTORS[self.descriptor_kind]
        return replace(super().spec, name=self.own_name, targets=self.targets_are, context_channels=whole)

    @property
    def annotate(self) -> Callable[[Molecule], Graph]:
        return WithPaths(self.descriptor_kind)

    def read_inputs(self, path: Path, column: str | None) -> Iterator[NewInput]:
        return super().read_inputs(path, column or self.smiles_column)

    def choices(self) -> list[Choice]:
        chosen = Choice("data.descriptors", self.descriptor_kind, f"{self._num_rows:,} molecules in the table")
        return [*super().choices(), *([chosen] if self.descriptors is None else [])]

    @property
    def descriptor_kind(self) -> Descriptors:
        """`descriptors`, or those that suit the size of the table. Raises DataError."""
        if self.descriptors is not None:
            return self.descriptors
        return "rdkit" if self._num_rows < MIN_FINGERPRINT_MOLECULES else "both"

    @cached_property
    def _num_rows(self) -> int:
        check_table(self.origin, "SMILES and targets")
        return sum(1 for _ in table_rows(self.origin))

    def target_values(self) -> np.ndarray:
        return GraphStore.open(self.folder).targets

    def contents(self, stage: Stage) -> Iterator[bytes]:
        """Canonical SMILES: one molecule can be written in many ways."""
        return (canonical_smiles(smiles.decode()).encode() for smiles in super().contents(stage))

    def target_names(self) -> tuple[str, ...]:
        return tuple(self.targets)

    def source(self) -> dict[str, Any]:
        check_table(self.origin, "SMILES and targets")
        columns = {"smiles": self.smiles_column, "targets": list(self.targets), "split": self.split_column}
        return {"files": by_name([self.origin]), "columns": columns, "descriptors": self.descriptor_kind}

    def samples(self) -> Iterator[GraphEntry]:
        for place, row in table_rows(self.origin):
            smiles = str(field_of(place, row, self.smiles_column, "smiles_column"))
            fields = [(column, field_of(place, row, column, "targets")) for column in self.targets]
            stage = split_of(place, row, str(self.split_column)) if self.split_column else None
            yield GraphEntry(place, smiles, tuple(number_of(place, *field) for field in fields), stage)
