"""Graphs in memory-mapped files, and shortest paths that equal Graphormer's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support import golden_files
from torch.testing import assert_close

from sliceformer_lab.data.graphs.shortest_paths import UNREACHABLE, path_nodes, shortest_paths
from sliceformer_lab.data.graphs.smiles import ATOM_FEATURES, BOND_FEATURES, molecule
from sliceformer_lab.data.graphs.store import Graph, GraphSplit, GraphStore

SMILES = ("CC(=O)Oc1ccccc1C(=O)O", "C", "C/C=C\\C#N", "[Na+].[Cl-]", "C1CC1N")


def as_graph(smiles: str) -> Graph:
    made = molecule(smiles)
    assert made is not None
    distances, middle = shortest_paths(made.edges, len(made))
    return Graph(made.atoms, made.edges, made.bonds, np.stack([distances, middle], axis=-1))


@pytest.fixture
def split(tmp_path: Path) -> GraphSplit:
    targets = np.arange(len(SMILES), dtype=np.float32)[:, None]
    GraphStore.write(tmp_path, [as_graph(smiles) for smiles in SMILES], targets)
    return GraphSplit(GraphStore.open(tmp_path), rows=np.arange(len(SMILES)), num_hops=5)


@pytest.mark.parametrize("name", golden_files.file_names("graphormer", "preprocess"))
def test_paths_equal_those_of_the_published_code(name: str) -> None:
    for graph in golden_files.numbered(golden_files.load(name)[1], "g"):
        golden = {key: array.numpy() for key, array in graph.items()}
        distances, middle = shortest_paths(golden["edge_index"], len(golden["x"]))
        spatial = golden["spatial_pos"]
        np.testing.assert_array_equal(distances, np.where(spatial == 510, UNREACHABLE, spatial))
        want = golden["edge_input"]  # (n, n, hops, 3), -1 beyond
        nodes = path_nodes(distances[None], middle[None], want.shape[2])[0]
        found = golden["attn_edge_type"][nodes[..., :-1], nodes[..., 1:]]
        found[nodes[..., 1:] < 0] = -1
        np.testing.assert_array_equal(found, want)


def test_a_batch_holds_every_graph_as_it_was(split: GraphSplit) -> None:
    batch = split.batch([4, 0, 2])
    graphs = [as_graph(SMILES[row]) for row in (4, 0, 2)]
    assert batch.padding is not None and batch.padding.lengths.tolist() == [len(g) for g in graphs]
    width = max(map(len, graphs))
    assert_close(batch.target, torch.tensor([[4.0], [0.0], [2.0]]))
    edges = batch.structure
    assert edges is not None and edges.distances is not None and edges.path_edges is not None
    row = edges.edge_index[0] // width
    assert (row == edges.edge_index[1] // width).all()
    for i, graph in enumerate(graphs):
        n = len(graph)
        assert_close(batch.inputs[i, :n], torch.from_numpy(graph.nodes).long())
        assert not batch.inputs[i, n:].any()
        assert_close(edges.edge_index[:, row == i] - i * width, torch.from_numpy(graph.edges).long())
        assert_close(edges.edge_features[row == i], torch.from_numpy(graph.edge_features).long())
        assert (edges.distances[i, n:] == -1).all() and (edges.distances[i, :, n:] == -1).all()
        assert_close(edges.distances[i, :n, :n].diagonal(), torch.zeros(n, dtype=torch.long))
        assert int((edges.distances[i] == 1).sum()) == graph.edges.shape[1]
        for start, end in np.ndindex(n, n):  # the edges of a path lead from its start to its end
            distance, path = int(edges.distances[i, start, end]), edges.path_edges[i, start, end]
            known = path[path >= 0]
            assert len(known) == max(0, min(distance, len(path))) and (path[len(known) :] == -1).all()
            nodes = edges.edge_index[:, known] - i * width
            assert nodes[0].tolist() == [start, *nodes[1, :-1].tolist()][: len(known)]
            if 0 < distance <= len(path):
                assert nodes[1, -1] == end


def test_single_and_unconnected_nodes_have_no_paths(split: GraphSplit) -> None:
    structure = split.batch([3]).structure
    assert structure is not None and structure.distances is not None and structure.path_edges is not None
    assert structure.distances[0].tolist() == [[0, -1], [-1, 0]]
    assert (structure.path_edges == -1).all() and structure.edge_index.shape == (2, 0)
    single = split.batch([1])
    assert single.padding is None and single.inputs.shape == (1, 1, len(ATOM_FEATURES))


def test_every_feature_of_atoms_and_bonds_is_found() -> None:
    made = molecule("C[N+](C)(C)[C@@H](/C=C/C#N)c1ccccc1.[Na+].[CH3].F[P](F)(F)(F)F.FS(F)(F)(F)(F)F")
    assert made is not None
    columns = {name: set(made.atoms[:, i].tolist()) for i, name in enumerate(ATOM_FEATURES)}
    assert {5, 6, 8, 10, 14, 15} <= columns["atomic_number"]
    assert columns["chirality"] & {1, 2}
    assert columns["degree"] >= {0, 2, 3, 4, 5, 6}
    assert columns["formal_charge"] == {5, 6}
    assert columns["radical_electrons"] == {0, 1}
    assert columns["hybridization"] >= {0, 1, 2, 3, 4}
    assert columns["aromatic"] == columns["in_ring"] == {0, 1}
    bonds = {name: set(made.bonds[:, i].tolist()) for i, name in enumerate(BOND_FEATURES)}
    assert bonds["type"] == {0, 1, 2, 3} and bonds["conjugated"] == {0, 1} and bonds["stereo"] >= {0, 2}
    methanol, bare, dative = molecule("CO"), molecule("*"), molecule("[NH3]->[Cu]")
    assert methanol is not None and bare is not None and dative is not None
    assert methanol.atoms.tolist() == [[5, 0, 4, 5, 3, 0, 2, 0, 0], [7, 0, 2, 5, 1, 0, 2, 0, 0]]  # hydrogens are bonds
    assert bare.atoms[0, 0] == len(ATOM_FEATURES["atomic_number"]), "no element is the last number"
    assert dative.bonds.tolist() == [[len(BOND_FEATURES["type"]), 0, 0]] * 2
