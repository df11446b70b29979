"""Molecules with numbers to predict, from SMILES: your own table, QM9's gap, PCQM4M, and ZINC's graphs."""

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from sliceformer_lab.data.base import STAGES, Fraction, NonNegative, Positive, Stage
from sliceformer_lab.data.download import OfficialFile, fetch, fetch_unpacked, preparing
from sliceformer_lab.data.graphs.base import Graph, GraphSplit, GraphStore
from sliceformer_lab.data.graphs.shortest_paths import LARGEST, shortest_paths
from sliceformer_lab.data.graphs.smiles import ATOM_FEATURES, BOND_FEATURES, Molecule, values_of
from sliceformer_lab.data.graphs.store import GraphData, Made, Sample, SmilesData
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.table_files import STAGE_NAMES, check_table, field_of, number_of, stamps, table_rows
from sliceformer_lab.errors import DataError

ATOM_KINDS, BOND_KINDS = 28, 4  # of ZINC
HARTREE = 27.211386245988  # eV, CODATA 2018
MaxNodes = Annotated[int, Field(ge=1, le=LARGEST)]


def with_paths(molecule: Molecule) -> Graph:
    """The graph of a molecule and the shortest paths between its atoms."""
    pairs = np.stack(shortest_paths(molecule.edges, len(molecule)), axis=-1)
    return Graph(molecule.atoms, molecule.edges, molecule.bonds, pairs)


@dataclass(kw_only=True, eq=False, repr=False)
class MoleculeData(SmilesData):
    """Molecules with a byte of distance and one of middle node for each pair of atoms (2 n^2 bytes).

    Features of the first `num_hops` bonds of every shortest path are looked up batch by batch.
    """

    max_nodes: MaxNodes = 128
    num_hops: NonNegative = 5

    @property
    def annotate(self) -> Callable[[Molecule], Graph]:
        return with_paths

    @property
    def spec(self) -> DataSpec:
        return DataSpec(
            name=self.title,
            num_targets=len(self.target_names()),
            channels=len(ATOM_FEATURES),
            node_values=values_of(ATOM_FEATURES),
            max_len=self.max_nodes,
            ragged=True,
            has_edges=True,
            edge_channels=len(BOND_FEATURES),
            edge_values=values_of(BOND_FEATURES),
            num_hops=self.num_hops,
            needs_bias=True,
        )

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        return GraphSplit(store, rows, self.num_hops)


@dataclass(kw_only=True, eq=False, repr=False)
class MoleculeTable(MoleculeData):
    """SMILES and numbers of a table. Empty fields are missing numbers, which neither train nor score.

    Which rows are for training, validation and testing is said by a column or by fractions.
    """

    title = "molecule_csv"

    file: str
    smiles_column: str = "smiles"
    targets: Annotated[tuple[str, ...], Field(min_length=1)]
    split_column: str | None = None
    test_fraction: Fraction = 0.1

    @property
    def table(self) -> Path:
        return Path(self.file).expanduser()

    @property
    def test_share(self) -> float:
        return self.test_fraction

    def target_names(self) -> tuple[str, ...]:
        return tuple(self.targets)

    def source(self) -> dict[str, Any]:
        check_table(self.table, "SMILES and numbers")
        columns = {"smiles": self.smiles_column, "targets": list(self.targets), "split": self.split_column}
        return {"files": stamps([self.table]), "columns": columns}

    def samples(self) -> Iterator[Sample]:
        return starmap(self._sample, table_rows(self.table))

    def _sample(self, place: str, row: Any) -> Sample:
        smiles = str(field_of(place, row, self.smiles_column, "smiles_column"))
        targets = tuple(number_of(place, column, field_of(place, row, column, "targets")) for column in self.targets)
        return Sample(place, smiles, targets, self._stage(place, row))

    def _stage(self, place: str, row: Any) -> Stage | None:
        if self.split_column is None:
            return None
        name = str(field_of(place, row, self.split_column, "split_column"))
        if name.lower() not in STAGE_NAMES:
            known = ", ".join(STAGE_NAMES)
            raise DataError(f"{place}: {self.split_column} is {name!r}, which names no part; use {known}")
        return STAGE_NAMES[name.lower()]

    def is_official(self) -> tuple[bool, str]:
        return False, "your own table; sha256 is of its graphs and numbers"


@dataclass(kw_only=True, eq=False, repr=False)
class QM9Gap(MoleculeData):
    """The HOMO-LUMO gap in eV of QM9's 133,885 small molecules, from MoleculeNet's table or a part of it.

    Read is root/molecules/qm9_gap.csv.gz (SMILES, gap in eV) where it exists, else root/qm9/qm9.csv, which is fetched
    and holds the gap in Hartree. The set has no parts: `split_seed` draws them.
    """

    title = "qm9_gap"
    published: ClassVar[OfficialFile] = OfficialFile(
        "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/qm9.csv", "", 29_900_000
    )
    published_count: ClassVar[int] = 133_885

    max_nodes: MaxNodes = 32
    download: bool = True
    test_fraction: Fraction = 0.1

    @property
    def test_share(self) -> float:
        return self.test_fraction

    @property
    def part(self) -> Path:
        return self.path / "molecules" / "qm9_gap.csv.gz"

    def target_names(self) -> tuple[str, ...]:
        return ("gap",)

    def source(self) -> dict[str, Any]:
        return {"files": stamps([self._table])}

    @cached_property
    def _table(self) -> Path:
        if self.part.is_file():
            return self.part
        folder = self.path / "qm9"
        with preparing(folder):
            return fetch(self.published, folder, download=self.download, check=False)

    def samples(self) -> Iterator[Sample]:
        smiles, unit = ("SMILES", 1.0) if self._table == self.part else ("smiles", HARTREE)
        for place, row in table_rows(self._table):
            gap = number_of(place, "gap", field_of(place, row, "gap", "root"))
            yield Sample(place, str(field_of(place, row, smiles, "root")), (gap * unit,))

    def is_official(self) -> tuple[bool, str]:
        return _by_count(self._table, self.num_read(), self.published_count)


@dataclass(kw_only=True, eq=False, repr=False)
class PCQM4M(MoleculeData):
    """The HOMO-LUMO gap in eV of PCQM4Mv2's 3.7 million molecules, or of the first version's.

    Read is root/pcqm4m-v2 (fetched) or, with version=1, root/pcqm4m_kddcup2021, which is no longer given out: in both
    raw/data.csv.gz and split_dict.pt. The gaps of the test molecules are secret and these left out, so validation is
    what is reported, of the epoch that it chose itself.
    """

    title = "pcqm4m"
    published: ClassVar[OfficialFile] = OfficialFile(
        "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip", "", 59_000_000
    )
    folders: ClassVar[dict[int, str]] = {1: "pcqm4m_kddcup2021", 2: "pcqm4m-v2"}
    published_counts: ClassVar[dict[int, int]] = {1: 3_045_360 + 380_670, 2: 3_378_606 + 73_545}  # with a known gap

    version: Literal[1, 2] = 2
    batch_size: Positive = 256
    num_workers: NonNegative = 4
    download: bool = True

    def target_names(self) -> tuple[str, ...]:
        return ("homolumogap",)

    @cached_property
    def _files(self) -> tuple[Path, Path]:
        """The table and the split."""
        folder = self.path / self.folders[self.version]
        if self.version == 2:
            fetch_unpacked(self.published, self.path, folder.name, download=self.download, check=False)
        files = folder / "raw" / "data.csv.gz", folder / "split_dict.pt"
        for file in files:
            if not file.is_file():
                raise DataError(f"{file} is missing; put the folder {folder.name} of the official archive there")
        return files

    def source(self) -> dict[str, Any]:
        return {"files": stamps(list(self._files))}

    def samples(self) -> Iterator[Sample]:
        table, split = self._files
        stages = self._stages(split)
        last = -1
        for last, (place, row) in enumerate(table_rows(table)):
            if stage := stages.get(last):
                gap = number_of(place, "homolumogap", field_of(place, row, "homolumogap", "root"))
                yield Sample(place, str(field_of(place, row, "smiles", "root")), (gap,), stage)
        if stages and last < max(stages):
            raise DataError(
                f"{split} names molecule {max(stages)}, but {table} has {last + 1}; they are not of one set"
            )

    def _stages(self, file: Path) -> dict[int, Stage]:
        """Which part each row of the table is of. Raises DataError unless the file holds arrays of positions."""
        arrays: list[Any] = [np.empty(0).__reduce__()[0], np.ndarray, np.dtype, type(np.dtype(np.int64))]
        try:
            with torch.serialization.safe_globals(arrays):
                split = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise DataError(f"{file} is damaged or holds more than arrays; nothing of it was run") from error
        parts: dict[str, Stage] = {"train": "train", "valid": "val"}
        if not isinstance(split, Mapping) or not set(parts) <= set(split):
            raise DataError(f"{file} holds no split: expected arrays of positions named {', '.join(parts)}")
        return {int(row): stage for name, stage in parts.items() for row in np.asarray(split[name]).ravel()}

    def is_official(self) -> tuple[bool, str]:
        return _by_count(self._files[0], self.num_read(), self.published_counts[self.version])


@dataclass(kw_only=True, eq=False, repr=False)
class ZINC(GraphData):
    """Penalised logP of ZINC molecules with one number an atom and a bond, as torch-geometric fetches and reads them.

    `subset` takes the 10,000, 1,000 and 1,000 molecules of benchmarks instead of all 249,456.
    Source: Dwivedi et al. 2020, section on ZINC.
    """

    title = "zinc"

    max_nodes: MaxNodes = 64
    num_hops: NonNegative = 5
    subset: bool = True
    batch_size: Positive = 128

    def target_names(self) -> tuple[str, ...]:
        return ("penalised_logp",)

    @property
    def spec(self) -> DataSpec:
        return DataSpec(
            name=self.title if self.subset else f"{self.title}_full",
            num_targets=1,
            channels=1,
            node_values=(ATOM_KINDS,),
            max_len=self.max_nodes,
            ragged=True,
            has_edges=True,
            edge_channels=1,
            edge_values=(BOND_KINDS,),
            num_hops=self.num_hops,
            needs_bias=True,
        )

    def split(self, store: GraphStore, rows: np.ndarray) -> GraphSplit:
        return GraphSplit(store, rows, self.num_hops)

    def source(self) -> dict[str, Any]:
        return {"subset": self.subset}

    def make(self) -> Iterator[Made]:
        from torch_geometric import datasets  # seconds to import

        for stage in STAGES:
            try:
                part = datasets.ZINC(str(self.path / "ZINC"), subset=self.subset, split=stage)
            except (OSError, HTTPException, RuntimeError) as error:
                raise DataError(
                    f"{self.path / 'ZINC'} cannot be had by torch-geometric ({error}); without network, put its folder "
                    "raw there"
                ) from error
            for number, graph in enumerate(part):
                edges, bonds = graph.edge_index.numpy().astype(np.int16), graph.edge_attr.numpy().astype(np.uint8)
                pairs = np.stack(shortest_paths(edges, graph.num_nodes), axis=-1)
                made = Graph(graph.x.numpy().astype(np.uint8), edges, bonds[:, None], pairs)
                yield Sample(f"{stage} graph {number}", "", (float(graph.y),), stage), made

    def is_official(self) -> tuple[bool, str]:
        return _by_count(self.path / "ZINC", self.num_read(), 12_000 if self.subset else 249_456)


def _by_count(source: Path, found: int, published: int) -> tuple[bool, str]:
    if found == published:
        return True, f"as many as published ({published:,}); no checksum of it is known"
    return False, f"{source.name} has {found:,} of the published {published:,}"
