"""Peptides of the Long Range Graph Benchmark: their functions (10 labels) and their structure (11 numbers)."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from sliceformer_lab.batch import Batch, Graphs
from sliceformer_lab.config.option_types import Count, Natural
from sliceformer_lab.data.cache import by_name
from sliceformer_lab.data.download import OfficialFile, fetch, md5_of
from sliceformer_lab.data.graphs.base import GraphEntry, SmilesData
from sliceformer_lab.data.graphs.node_positions import laplacian_vectors, return_probabilities, spectrum
from sliceformer_lab.data.graphs.smiles import Molecule
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, NodeLimit
from sliceformer_lab.data.loader import Split
from sliceformer_lab.data.pickles import load_arrays
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.data.table_files import field_of, number_of, table_rows
from sliceformer_lab.errors import DataError


def with_positions(molecule: Molecule, *, laplacian: int, random_walk: int) -> Graph:
    """The graph of a molecule with encodings of its atoms (n, laplacian + random_walk)."""
    if not laplacian + random_walk:
        return Graph(molecule.atoms, molecule.edges, molecule.bonds)
    values, vectors = spectrum(molecule.edges, len(molecule))
    parts = laplacian_vectors(vectors, laplacian), return_probabilities(values, vectors, random_walk)
    positions = np.concatenate(parts, axis=1)
    return Graph(molecule.atoms, molecule.edges, molecule.bonds, positions=positions)


@dataclass
class FlippedSplit(GraphSplit):
    """Graphs whose first `num_flipped` encodings get random signs, because eigenvectors have no sign of their own."""

    num_flipped: int = 0

    def batch(self, rows: list[int]) -> Batch:
        batch = super().batch(rows)
        graphs = cast(Graphs, batch.structure)
        positions = cast(Tensor, graphs.positions)
        signs = torch.ones(len(rows), 1, positions.shape[2])
        signs[..., : self.num_flipped] -= 2 * torch.randint(2, (len(rows), 1, self.num_flipped))
        return replace(batch, structure=replace(graphs, positions=positions * signs))


@dataclass(kw_only=True, eq=False, repr=False)
class Peptides(SmilesData):
    """15,535 peptides as graphs of their atoms, in the published splits of 70, 15 and 15 %.

    Reads the table and the splits in the layout of the official code and downloads them if missing. Atoms have the
    first `laplacian` eigenvectors and `random_walk` return probabilities as encodings; with `flip_signs` the
    eigenvectors have random signs in training. A subclass defines the targets.
    Source: Dwivedi et al. 2022, Long Range Graph Benchmark, section 4.
    """

    folder_name: ClassVar[str]
    table: ClassVar[OfficialFile]
    parts: ClassVar[OfficialFile]

    max_nodes: NodeLimit = 512
    bucket: bool = True  # sizes differ by hundreds of atoms
    laplacian: Natural = 10
    random_walk: Natural = 20
    flip_signs: bool = True
    batch_size: Count = 32
    eval_batch_size: Count = 128
    download: bool = True
    verify: bool = True

    @property
    def spec(self) -> DataSpec:
        return replace(super().spec, position_channels=self.laplacian + self.random_walk)

    @cached_property  # one object, by which the process that makes graphs is known
    def annotate(self) -> Callable[[Molecule], Graph]:
        return partial(with_positions, laplacian=self.laplacian, random_walk=self.random_walk)

    @cached_property
    def _files(self) -> tuple[Path, Path]:
        """The table and the file of splits."""
        folder = self.path / "lrgb" / self.folder_name
        table = fetch(self.table, folder / "raw", download=self.download, check=self.verify)
        return table, fetch(self.parts, folder, download=self.download, check=self.verify)

    def source(self) -> dict[str, Any]:
        return {"files": by_name(list(self._files)), "positions": [self.laplacian, self.random_walk]}

    def samples(self) -> Iterator[GraphEntry]:
        table, split = self._files
        rows = list(table_rows(table))
        stages = self._stages(split, len(rows))
        for (place, row), stage in zip(rows, stages, strict=True):
            yield GraphEntry(place, str(field_of(place, row, "smiles", "root")), self.targets_of(place, row), stage)

    @abstractmethod
    def targets_of(self, place: str, row: Any) -> tuple[float, ...]:
        """The targets of a row. Raises DataError."""

    def _stages(self, file: Path, count: int) -> list[Stage]:
        """The split of each row of the table. Raises DataError unless the file names each row once."""
        split = load_arrays(file)
        if not isinstance(split, dict) or set(split) != set(STAGES):
            raise DataError(f"{file} is not a file of splits: expected arrays of rows named {', '.join(STAGES)}")
        rows = {stage: np.asarray(split[stage]).ravel() for stage in STAGES}
        order = np.concatenate([rows[stage] for stage in STAGES])
        if not np.array_equal(np.sort(order), np.arange(count)):
            raise DataError(
                f"{file} splits {len(order):,} rows up to number {order.max(initial=0):,}, expected each of the "
                f"{count:,} rows of the table once; use files of one set"
            )
        of_row: dict[int, Stage] = {int(row): stage for stage in STAGES for row in rows[stage]}
        return [of_row[row] for row in range(count)]

    def make_splits(self) -> dict[Stage, Split]:
        splits = super().make_splits()
        train = splits["train"]
        if self.flip_signs and self.laplacian and isinstance(train, GraphSplit):
            splits["train"] = FlippedSplit(train.store, rows=train.rows, num_flipped=self.laplacian)
        return splits

    def is_official(self) -> tuple[bool, str]:
        official = all(
            md5_of(path) == file.digest for path, file in zip(self._files, (self.table, self.parts), strict=True)
        )
        return official, f"md5 sums {'agree' if official else 'disagree'} with the official files"


@dataclass(kw_only=True, eq=False, repr=False)
class PeptidesFunc(Peptides):
    """Functions of peptides: ten labels; several can be true at once."""

    title = "peptides_func"
    folder_name = "peptides-functional"
    table = OfficialFile(
        "https://www.dropbox.com/s/ol2v01usvaxbsr8/peptide_multi_class_dataset.csv.gz?dl=1",
        "701eb743e899f4d793f0e13c8fa5a1b4",
        2_400_000,
    )
    parts = OfficialFile(
        "https://www.dropbox.com/s/j4zcnx2eipuo0xz/splits_random_stratified_peptide.pickle?dl=1",
        "5a0114bdadc80b94fc7ae974f13ef061",
        124_533,
    )
    num_labels: ClassVar[int] = 10

    @property
    def spec(self) -> DataSpec:
        return replace(super().spec, targets="labels")

    def target_names(self) -> tuple[str, ...]:
        return tuple(f"label_{number}" for number in range(self.num_labels))

    def targets_of(self, place: str, row: Any) -> tuple[float, ...]:
        text = field_of(place, row, "labels", "root")
        try:
            labels = json.loads(text)
        except ValueError:
            labels = None
        if not isinstance(labels, list) or len(labels) != self.num_labels or not set(labels) <= {0, 1}:
            raise DataError(f"{place}: labels is {text!r}, expected a list of {self.num_labels} zeros and ones")
        return tuple(map(float, labels))


@dataclass(kw_only=True, eq=False, repr=False)
class PeptidesStruct(Peptides):
    """Structure of peptides: eleven numbers, which are standardised in the published table."""

    title = "peptides_struct"
    folder_name = "peptides-structural"
    table = OfficialFile(
        "https://www.dropbox.com/s/0d4aalmq4b4e2nh/peptide_structure_normalized_dataset.csv.gz?dl=1",
        "c240c1c15466b5c907c63e180fa8aa89",
        4_500_000,
    )
    parts = OfficialFile(
        "https://www.dropbox.com/s/9dfifzft1hqgow6/splits_random_stratified_peptide_structure.pickle?dl=1",
        "5a0114bdadc80b94fc7ae974f13ef061",
        124_533,
    )
    columns: ClassVar[tuple[str, ...]] = (
        *(f"Inertia_{kind}_{axis}" for kind in ("mass", "valence") for axis in "abc"),
        *("length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit"),
    )

    def target_names(self) -> tuple[str, ...]:
        return self.columns

    def targets_of(self, place: str, row: Any) -> tuple[float, ...]:
        return tuple(number_of(place, column, field_of(place, row, column, "root")) for column in self.columns)
