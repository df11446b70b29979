"""Features of nodes and edges as numbers of their values, and as bins where there are many values."""

# No `from __future__ import annotations` in data modules; `data.base` says why.

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from sliceformer_lab.batch import Batch
from sliceformer_lab.data.graphs.store import Graph, GraphSplit
from sliceformer_lab.data.splits import Stage

MAX_VALUES = 256  # of a feature that keeps a number for each
NUM_BINS = 32  # of a feature with more different values

Bins = Mapping[int, np.ndarray]  # column of a feature with many values -> bin of each value (V,) uint8


@dataclass(frozen=True)
class Encoded:
    """Features of all nodes or all edges as numbers of their values."""

    values: tuple[int, ...]  # how many each feature has
    numbers: np.ndarray  # (n, F) uint8, or int32 if a feature has more than MAX_VALUES
    digest: str  # sha256 of the values that the numbers stand for, or one-hot

    @classmethod
    def of(cls, parts: Sequence[np.ndarray]) -> Self:
        """Those of features (n_i, F) of all graphs; a one-hot block is one feature."""
        every = np.concatenate(parts)
        one_hot = every.shape[1] > 1 and every.shape[1] <= MAX_VALUES and bool(((every == 0) | (every == 1)).all())
        if one_hot and bool((every.sum(axis=1) == 1).all()):
            return cls((every.shape[1],), every.argmax(axis=1).astype(np.uint8)[:, None], "one-hot")
        columns = [np.unique(column, return_inverse=True) for column in every.T]
        values = tuple(len(found) for found, _ in columns)
        kind = np.uint8 if max(values) <= MAX_VALUES else np.int32
        numbers = np.stack([found.reshape(-1) for _, found in columns], axis=1).astype(kind)
        return cls(values, numbers, digest_of_arrays(found.astype(np.float64) for found, _ in columns))


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """sha256 of the sizes and values of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def num_read(values: int) -> int:
    """How many different numbers a model reads of a feature with so many values."""
    return values if values <= MAX_VALUES else NUM_BINS


def bins_of(numbers: np.ndarray, values: Sequence[int]) -> Bins:
    """Bins of about equal size among numbers (n, F), for each feature with more than MAX_VALUES values."""
    ends = np.linspace(0, 1, NUM_BINS + 1)[1:-1]
    return {
        column: np.searchsorted(
            np.unique(np.quantile(numbers[:, column], ends)), np.arange(count), side="right"
        ).astype(np.uint8)
        for column, count in enumerate(values)
        if count > MAX_VALUES
    }


def binned(numbers: np.ndarray, bins: Bins) -> np.ndarray:
    """Numbers (n, F) uint8 with bins in place of many values."""
    if not bins:
        return numbers
    read = numbers.astype(np.uint8)  # wrong for the columns that follow
    for column, table in bins.items():
        read[:, column] = table[numbers[:, column]]
    return read


@dataclass
class BinnedSplit(GraphSplit):
    """Graphs whose features with many values are read as bins. Their content is the values, whatever the bins are."""

    node_bins: Bins = field(kw_only=True)
    edge_bins: Bins = field(kw_only=True)

    @property
    def digest_of_bins(self) -> str:
        """sha256 of the bin of each value."""
        return digest_of_arrays([*self.node_bins.values(), *self.edge_bins.values()])

    def collate(self, graphs: Sequence[Graph]) -> Batch:
        return super().collate([self._read(graph) for graph in graphs])

    def _read(self, graph: Graph) -> Graph:
        nodes, edges = binned(graph.nodes, self.node_bins), binned(graph.edge_features, self.edge_bins)
        return replace(graph, nodes=nodes, edge_features=edges)


def with_bins(
    splits: Mapping[Stage, GraphSplit], node_values: Sequence[int], edge_values: Sequence[int]
) -> Mapping[Stage, GraphSplit]:
    """The splits with the bins of the training graphs, where features have many values."""
    if max((*node_values, *edge_values), default=0) <= MAX_VALUES:
        return splits
    store = splits["train"].store
    trains = np.zeros(len(store.targets), dtype=bool)
    trains[splits["train"].rows] = True
    nodes = store.parts["nodes"][np.repeat(trains, np.diff(store.node_offsets))]
    edges = store.parts["edge_features"][np.repeat(trains, np.diff(store.edge_offsets))]
    node_bins, edge_bins = bins_of(nodes, node_values), bins_of(edges, edge_values)
    return {
        stage: BinnedSplit(split.store, rows=split.rows, node_bins=node_bins, edge_bins=edge_bins)
        for stage, split in splits.items()
    }
