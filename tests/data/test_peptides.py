"""Peptides: files, positions, tokens and metrics against the official code's rules, brute force and hand cases."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import official_graphs, task_modules
from support.plans import small_task
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.data.graphs.lrgb import with_positions
from sliceformer_lab.data.graphs.node_positions import laplacian_vectors, return_probabilities, spectrum
from sliceformer_lab.data.graphs.smiles import molecule
from sliceformer_lab.data.graphs.store import GraphSplit
from sliceformer_lab.errors import DataError
from sliceformer_lab.tasks.targets import Numbers

SPLIT = Path("lrgb", "peptides-functional", "splits_random_stratified_peptide.pickle")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peptides")
    official_graphs.peptides(folder)
    return folder


def func(root: Path, **options: Any) -> Any:
    return task_modules.ready("peptides_func", root, laplacian=4, random_walk=6, **options)


def task_of(data: Any, *words: str, block: str = "vit") -> Any:
    return small_task(f"task={data.spec.name}", "encoder.position=none", f"block={block}", *words, data=data.spec)


def test_splits_and_labels_equal_those_of_the_files(root: Path) -> None:
    data = func(root)
    rows = {stage: data.splits[stage].rows for stage in ("train", "val", "test")}
    want = {"train": range(24), "val": range(24, 32), "test": range(32, 40)}
    assert {stage: sorted(part) for stage, part in rows.items()} == {s: list(part) for s, part in want.items()}
    store = data.splits["test"].store
    labels = [[float((i + j) % 4 == 0) for j in range(10)] for i in range(40)]
    np.testing.assert_array_equal(store.targets, labels)
    assert not data.fingerprint()["official"]
    with pytest.raises(DataError, match=r"is not the official file .* data.verify=false"):
        func(root, verify=True)


def test_numbers_are_read_in_the_published_order(root: Path) -> None:
    data: Any = task_modules.ready("peptides_struct", root)
    assert data.target_names() == official_graphs.FOLDS
    np.testing.assert_allclose(data.splits["test"].store.targets[8], np.full(11, -0.2), rtol=1e-6)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": np.arange(30), "val": np.arange(29, 35), "test": np.arange(35, 40)}, "rows of the table once"),
        ({"train": np.arange(40)}, "is not a file of splits: expected arrays of rows named train, val, test"),
    ],
)
def test_a_split_that_does_not_match_is_refused(tmp_path: Path, split: Any, message: str) -> None:
    official_graphs.peptides(tmp_path)
    (tmp_path / SPLIT).write_bytes(pickle.dumps(split))
    with pytest.raises(DataError, match=message):
        func(tmp_path)


def test_positions_are_laplacian_eigenvectors_and_return_probabilities() -> None:
    made = molecule(official_graphs.SMILES[0])
    assert made is not None
    size = len(made)
    adjacency = np.zeros((size, size))
    adjacency[tuple(made.edges)] = 1
    degree = adjacency.sum(1)
    laplacian = np.eye(size) - adjacency / np.sqrt(np.outer(degree, degree))
    values, vectors = spectrum(made.edges, size)
    found = laplacian_vectors(vectors, 4)
    np.testing.assert_allclose(laplacian @ found, found * (1 - values[1:5]), atol=1e-5)
    np.testing.assert_allclose((found**2).mean(0), 1, rtol=1e-5)
    np.testing.assert_allclose(1 - values[:5], np.linalg.eigvalsh(laplacian)[:5], atol=1e-9)
    walk = adjacency / degree[:, None]
    want = [np.diag(np.linalg.matrix_power(walk, steps)) for steps in range(1, 7)]
    np.testing.assert_allclose(return_probabilities(values, vectors, 6), np.transpose(want), atol=1e-6)
    for smiles in ("C", "[Na+].[Cl-]"):
        made = molecule(smiles)
        assert made is not None
        positions = with_positions(made, laplacian=4, random_walk=6).positions
        assert positions is not None and positions.shape == (len(made), 10) and np.isfinite(positions).all()
        assert not positions[:, 4:].any()  # a walk cannot leave, nor return


def test_signs_of_vectors_are_random_in_training_only(root: Path) -> None:
    data = func(root)
    train, test = data.splits["train"], data.splits["test"]

    def positions(split: GraphSplit, seed: int) -> Tensor:
        split.pass_seed = seed
        structure = split.__getitems__([0, 1, 2]).structure
        assert structure is not None and structure.positions is not None
        return structure.positions

    passes = [positions(train, seed) for seed in range(8)]
    plain = GraphSplit(train.store, rows=train.rows).batch([0, 1, 2]).structure
    assert plain is not None and plain.positions is not None
    assert_close(positions(train, 3), passes[3])  # a pass can be replayed
    for one in passes:
        assert_close(one.abs(), plain.positions.abs())
        assert_close(one[..., 4:], plain.positions[..., 4:])
        signs = torch.where(plain.positions == 0, 0.0, one / plain.positions)[..., :4]
        assert ((signs.amin(1) >= 0) | (signs.amax(1) <= 0)).all()  # one sign for all of a graph's nodes
    assert torch.stack(passes)[..., :4].flatten(0, 1).std(0).max() > 0.1
    turned = [tuple((one[0] * plain.positions[0]).sum(0)[:4].sign().tolist()) for one in passes]
    assert any({-1.0, 1.0} <= set(signs) for signs in turned), "each vector has a sign of its own"
    assert_close(positions(test, 0), positions(test, 1))
    still = func(root, flip_signs=False).splits["train"]
    assert_close(positions(still, 0), positions(still, 1))


@pytest.mark.parametrize("pool", ["mean", "cls"])
def test_edge_tokens_follow_the_nodes_of_their_graph(root: Path, pool: str) -> None:
    data = func(root)
    task = task_of(data, "task.tokens=nodes_edges", f"task.pool={pool}")
    prefix, first = int(pool == "cls"), torch.tensor([0, *data.spec.node_values[:-1]]).cumsum(0)
    split = data.splits["val"]
    batch = split.batch(list(range(8)))
    seen: list[Any] = []
    task.encoder.register_forward_pre_hook(lambda _, args: seen.append(args))
    with torch.no_grad():
        task(batch)
    tokens, padding = seen[0][:2]
    for row, place in enumerate(split.rows):
        graph = split.store[place]
        once = graph.edges[0] < graph.edges[1]
        n, e = len(graph), int(once.sum())
        assert padding.lengths[row] == prefix + n + e == padding.mask[row].sum()
        of_features = torch.from_numpy(graph.nodes).long() + first  # each feature has rows of its own in the table
        nodes = task.embedding.nodes.table.weight[of_features].sum(1)
        nodes = nodes + task.embedding.positions(torch.from_numpy(np.array(graph.positions)))
        ends = nodes[torch.from_numpy(graph.edges[:, once]).long()].mean(0)
        edges = task.embedding.edges(torch.from_numpy(graph.edge_features[once]).long()) + task.embedding.ends(ends)
        found = tokens[row, prefix : prefix + n + e]
        assert_close(found, torch.cat([nodes, edges]), atol=1e-5, rtol=1e-4)
        assert not tokens[row, prefix + n + e :].any()


@pytest.mark.parametrize(
    ("option", "block"),
    [("task.tokens=nodes", "transformer"), ("task.tokens=nodes_edges", "gps"), ("task.pool=cls", "transformer")],
)
def test_a_peptide_has_the_same_output_in_any_batch(root: Path, option: str, block: str) -> None:
    data = func(root)
    task = task_of(data, "attention=samsa", "attention.sample_size=4", option, block=block)
    split = data.splits["val"]
    with torch.no_grad():
        together = task(split.batch(list(range(8))))
        alone = torch.cat([task(split.batch([row])) for row in range(8)])
    assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_random_tokens_are_atoms_then_both_directions_of_their_bonds(root: Path) -> None:
    data = func(root)
    task = task_of(data, "task.tokens=random", "task.pool=softmax", "task.pool_over_padding=true")
    split = data.splits["val"]
    batch = split.batch(list(range(8)))
    assert batch.structure is not None
    with torch.no_grad():
        tokens, padding = task.embedding(batch.inputs, batch.structure, batch.padding)
        again, _ = task.embedding(batch.inputs, batch.structure, batch.padding)
        assert task(batch).isfinite().all()
    graphs = [split.store[place] for place in split.rows]
    assert padding.lengths.tolist() == [len(graph) + graph.edges.shape[1] for graph in graphs]
    assert not tokens[~padding.mask].any()
    assert (tokens != again).any(-1)[padding.mask].all()  # drawn in every pass, in evaluation too


def test_a_random_edge_is_left_of_its_source_minus_right_of_its_target(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = func(root)
    embedding = task_of(data, "task.tokens=random").embedding
    embedding.positions = None
    for part in ("nodes", "edges"):
        setattr(embedding, part, Zeros())
    for part in ("node_mlp", "edge_mlp"):
        setattr(embedding, part, torch.nn.Identity())
    batch = data.splits["val"].batch([3])
    graphs = batch.structure
    assert graphs is not None
    drawn = torch.randn(2, *batch.inputs.shape[:2], embedding.scales.shape[1])
    monkeypatch.setattr(torch, "randn_like", lambda like: drawn)
    with torch.no_grad():
        tokens, _ = embedding(batch.inputs, graphs, batch.padding)
    (left, right), size = drawn[:, 0] * math.log1p(math.e), batch.inputs.shape[1]
    source, target = graphs.edge_index
    assert_close(tokens[0, :size], left + right)
    assert_close(tokens[0, size:], left[source] - right[target])


class Zeros(torch.nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return torch.zeros(*ids.shape[:-1], 1)


def test_smooth_l1_is_quadratic_below_one_deviation_and_leaves_out_missing_numbers() -> None:
    output, target = torch.tensor([[2.0, 6, 9]]), torch.tensor([[1.0, 0, torch.nan]])
    loss = Numbers(form="smooth_l1").loss(output, target, torch.tensor([2.0, 2, 2]))
    assert float(loss) == pytest.approx((0.5 * 0.5**2 + (3 - 0.5)) / 2)
    assert float(Numbers().loss(output, target, torch.tensor([2.0, 2, 2]))) == pytest.approx((0.5 + 3) / 2)
