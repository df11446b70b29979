"""Graphs of different sizes: kept in memory-mapped files, padded batch by batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from sliceformer_lab.batch import Batch, Graphs, Padding
from sliceformer_lab.data.cached_data import StoredSplit
from sliceformer_lab.data.graphs.shortest_paths import UNREACHABLE, path_nodes
from sliceformer_lab.data.strings import UNKNOWN, Places, Strings

NodeLimit = Annotated[int, Field(ge=1, le=2**15 - 1)]  # of nodes, whose numbers are stored in 16 bits


@dataclass(frozen=True)
class Graph:
    """One graph with precomputed paths or positions."""

    nodes: np.ndarray  # (n, F) uint8 features, or int32 if a split reads them as bins
    edges: np.ndarray  # (2, e) int16, source and target
    edge_features: np.ndarray  # (e, G) as those of nodes
    pairs: np.ndarray | None = None  # (n, n, 2) uint8, distances and middle nodes of `shortest_paths`
    positions: np.ndarray | None = None  # (n, P) float32, encodings of each node's place
    context: np.ndarray | None = None  # (F,) float32, features of the whole graph

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class GraphStore:
    """Graphs in files of one folder that all processes map into memory, so that opening takes no time."""

    parts: dict[str, np.ndarray]  # arrays of Graph by field, concatenated over all graphs
    node_offsets: np.ndarray  # (n + 1,) int64
    edge_offsets: np.ndarray  # (n + 1,) int64
    pair_offsets: np.ndarray  # (n + 1,) int64
    targets: np.ndarray  # (n, T) float32 with NaN for missing ones, or (n,) int64 classes
    places: Places = UNKNOWN
    smiles: Strings | None = None

    def __getitem__(self, row: int) -> Graph:
        nodes = slice(*self.node_offsets[row : row + 2])
        edges = slice(*self.edge_offsets[row : row + 2])
        pairs, positions, context = (self.parts.get(name) for name in ("pairs", "positions", "context"))
        size = nodes.stop - nodes.start
        return Graph(
            nodes=self.parts["nodes"][nodes],
            edges=self.parts["edges"][edges].T,
            edge_features=self.parts["edge_features"][edges],
            pairs=None if pairs is None else pairs[slice(*self.pair_offsets[row : row + 2])].reshape(size, size, 2),
            positions=None if positions is None else positions[nodes],
            context=None if context is None else context[row],
        )

    @property
    def sizes(self) -> np.ndarray:
        """Number of nodes of each graph (n,)."""
        return np.diff(self.node_offsets)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The graphs that `write` stored in the folder."""
        names = ("nodes", "edges", "edge_features", "pairs", "positions", "context")
        files = {name: folder / f"{name}.npy" for name in names}
        # as plain arrays, because a slice of np.memmap takes six times as long
        parts = {name: np.asarray(np.load(file, mmap_mode="r")) for name, file in files.items() if file.is_file()}
        nodes, edges = np.load(folder / "node_offsets.npy"), np.load(folder / "edge_offsets.npy")
        pairs = np.cumsum([0, *np.diff(nodes) ** 2], dtype=np.int64)
        return cls(parts, nodes, edges, pairs, np.load(folder / "targets.npy", mmap_mode="r"))

    @staticmethod
    def write(folder: Path, graphs: Sequence[Graph], targets: np.ndarray) -> None:
        """Write graphs and their targets. All graphs have pairs, positions or context, or none has."""
        parts = {
            "nodes": [graph.nodes for graph in graphs],
            "edges": [graph.edges.T for graph in graphs],
            "edge_features": [graph.edge_features for graph in graphs],
            "pairs": [graph.pairs.reshape(-1, 2) for graph in graphs if graph.pairs is not None],
            "positions": [graph.positions for graph in graphs if graph.positions is not None],
            "context": [graph.context[None] for graph in graphs if graph.context is not None],
        }
        for name, arrays in parts.items():
            if arrays:
                np.save(folder / f"{name}.npy", np.concatenate(arrays))
        np.save(folder / "node_offsets.npy", np.cumsum([0, *map(len, graphs)], dtype=np.int64))
        np.save(
            folder / "edge_offsets.npy", np.cumsum([0, *(graph.edges.shape[1] for graph in graphs)], dtype=np.int64)
        )
        np.save(folder / "targets.npy", targets)


NO_GRAPHS = GraphStore({}, np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((0, 1)))


@dataclass
class GraphSplit(StoredSplit):
    """Graphs of a store. Inputs are the features of the nodes (B, N, F) int64, 0 on padding."""

    store: GraphStore
    num_hops: int = 0  # batches have the first num_hops edges of each shortest path
    pairwise: bool = True  # false: no distances and paths, even if the store has them

    def place(self, row: int) -> str:
        return self.store.places[self.rows[row]]

    def stored(self, row: int) -> str | None:
        """The SMILES of a molecule."""
        return None if self.store.smiles is None else self.store.smiles[self.rows[row]]

    def contents(self) -> Iterator[bytes]:
        if self.store.smiles is not None:
            yield from super().contents()
            return
        for graph in map(self.store.__getitem__, self.rows.tolist()):
            parts = (graph.nodes, graph.edges, graph.edge_features)
            yield b"".join(f"{part.shape}".encode() + part.tobytes() for part in parts)

    def lengths(self) -> np.ndarray:
        sizes: np.ndarray = self.store.sizes[self.rows]
        return sizes

    def targets_at(self, rows: list[int]) -> Tensor:
        return torch.from_numpy(np.array(self.store.targets[self.rows[rows]]))

    def contexts(self) -> Tensor:
        """The features (n, F) of all whole graphs."""
        return torch.from_numpy(np.array(self.store.parts["context"][self.rows]))

    def batch(self, rows: list[int]) -> Batch:
        graphs = [self.store[place] for place in self.rows[rows]]
        return replace(self.collate(graphs), target=self.targets_at(rows), ids=torch.tensor(rows))

    def collate(self, graphs: Sequence[Graph]) -> Batch:
        """A batch of graphs without targets."""
        lengths = torch.tensor([len(graph) for graph in graphs])
        width = int(lengths.max())
        inputs = torch.from_numpy(_pad_arrays([graph.nodes for graph in graphs], width)).long()
        made = Batch.unlabelled(inputs, Padding.from_lengths(lengths, width), self.structure(graphs, width))
        whole = [graph.context for graph in graphs if graph.context is not None]
        return replace(made, context=torch.from_numpy(np.stack(whole))) if whole else made

    def structure(self, graphs: Sequence[Graph], width: int) -> Graphs:
        """Edges, paths and positions of graphs whose nodes are padded to `width`."""
        starts = np.repeat(np.arange(len(graphs)) * width, [graph.edges.shape[1] for graph in graphs])
        index = np.concatenate([graph.edges for graph in graphs], axis=1) + starts
        features = np.concatenate([graph.edge_features for graph in graphs])
        edge_index, edge_features = torch.from_numpy(index), torch.from_numpy(features).long()
        positions = distances = path_edges = None
        if graphs[0].positions is not None:
            positions = torch.from_numpy(_pad_arrays([g.positions for g in graphs if g.positions is not None], width))
        if self.pairwise and graphs[0].pairs is not None:
            pairs = np.full((len(graphs), width, width, 2), UNREACHABLE, dtype=np.uint8)
            for row, graph in enumerate(graphs):
                if graph.pairs is not None:
                    pairs[row, : len(graph), : len(graph)] = graph.pairs
            distances = torch.from_numpy(pairs[..., 0].astype(np.int64))
            distances[distances == UNREACHABLE] = -1
            if self.num_hops:
                path_edges = _path_edges(pairs, index, self.num_hops)
        return Graphs(edge_index, edge_features, distances, path_edges, positions)


def _pad_arrays(parts: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Arrays (n_i, F) -> (B, width, F), 0 on padding."""
    padded = np.zeros((len(parts), width, parts[0].shape[1]), dtype=parts[0].dtype)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


def _path_edges(pairs: np.ndarray, index: np.ndarray, num_hops: int) -> Tensor:
    """The first K edges of each shortest path: (B, N, N, 2), (2, E) -> (B, N, N, K) int64, -1 beyond its end."""
    size = pairs.shape[1]
    numbers = np.full(pairs.shape[:3], -1, dtype=np.int64)
    graph, source = np.divmod(index[0], size)
    numbers[graph, source, index[1] % size] = np.arange(index.shape[1])
    nodes = path_nodes(pairs[..., 0], pairs[..., 1], num_hops)  # (B, N, N, K + 1)
    start, end = nodes[..., :-1], nodes[..., 1:]
    along = numbers[np.arange(len(pairs))[:, None, None, None], start, end]
    along[end < 0] = -1
    return torch.from_numpy(along)
