"""Sets of torchvision and torch-geometric by the names of their classes, on small files in their official formats."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from support import official_graphs, official_points, task_modules
from support.task_modules import ready as library

from sliceformer_lab.data.graphs.feature_bins import Encoded
from sliceformer_lab.data.graphs.pyg_sets import PygData
from sliceformer_lab.data.graphs.store import GraphSplit
from sliceformer_lab.data.library_sets import unread_set
from sliceformer_lab.errors import DataError, MachineError


def test_a_set_of_torchvision_has_its_own_splits_classes_and_source(tmp_path: Path) -> None:
    data = library("torchvision", tmp_path, dataset="FashionMNIST")
    assert data.spec.name == "FashionMNIST" and data.class_names()[:2] == ("T-shirt/top", "Trouser")
    assert "https://github.com/zalandoresearch/fashion-mnist" in (data.about() or "")
    assert data.places("test", [0]) == ["test picture 0"] and data.fingerprint()["official"] is None
    assert {choice.option for choice in data.choices()} == {"data.image_size", "data.mirror", "data.batch_size"}
    assert data.remarks() == [], "its files in the folder are read by torchvision"
    options = {"size": 40, "num_classes": 2}
    fake = library("torchvision", tmp_path, dataset="FakeData", options=options, image_size=16)
    assert {len(split) for split in fake.splits.values()} == {4, 32}, "a set without splits is split by fractions"


def test_photographs_of_torchvision_are_turned_as_new_ones_are(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for number in range(40):
        path = tmp_path / "set" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").resize((48, 32)).convert("RGB").save(path, exif=exif, quality=100)
    data = library("torchvision", tmp_path / "set", dataset="ImageFolder", image_size=16)
    new = data.read_file(path)
    assert new.shape == (48, 32, 3)
    for row in range(len(data.splits["train"])):
        np.testing.assert_array_equal(data.splits["train"].stored(row), new)


def test_torchvision_trains_on_the_classes_that_options_ask_for(tmp_path: Path) -> None:
    lists = tmp_path / "oxford-iiit-pet" / "annotations"
    pictures = lists.with_name("images")
    lists.mkdir(parents=True)
    pictures.mkdir()
    names = [f"{breed}_{number}" for number in range(10) for breed in ("Abyssinian", "beagle", "Bengal")]
    rows = [f"{name} {1 + number % 3} {1 + (number % 3 == 1)} 1" for number, name in enumerate(names)]
    for part in ("trainval", "test"):
        (lists / f"{part}.txt").write_text("\n".join(rows))
    for name in names:
        Image.new("RGB", (20, 20)).save(pictures / f"{name}.jpg")
    found = {}
    for types in ("category", "binary-category"):
        options = {"target_types": types}
        data = library("torchvision", tmp_path, dataset="OxfordIIITPet", options=options, image_size=16)
        found[types] = data.class_names(), sorted(data.splits["test"].targets_at(list(range(30))).tolist())
    assert found == {
        "category": (("Abyssinian", "Beagle", "Bengal"), [0] * 10 + [1] * 10 + [2] * 10),
        "binary-category": (("0", "1"), [0] * 20 + [1] * 10),
    }


def test_what_a_library_cannot_give_is_one_sentence(tmp_path: Path) -> None:
    for task, options, message in (
        ("torchvision", {"dataset": "FashionMINST"}, "no class of torchvision.datasets; near it are FashionMNIST"),
        (
            "torchvision",
            {"dataset": "SVHN", "download": False},
            "cannot be downloaded or read by torchvision .* put the files of SVHN there",
        ),
        ("torchvision", {"dataset": "FashionMNIST", "options": {"colour": True}}, "data.options gives the keywords"),
        ("pyg", {"dataset": "TUDatasets"}, "no class of torch_geometric.datasets; near it are TUDataset"),
        ("pyg", {"dataset": "TUDataset", "name": None}, "data.name is its argument name"),
        ("pyg", {"dataset": "KarateClub", "name": None}, "only sets of many graphs"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            library(task, tmp_path, **options)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "options", "kind", "place"),
    [
        ("torchvision", {"dataset": "FashionMNIST"}, "torchvision.datasets.FashionMNIST", ""),
        ("pyg", {"dataset": "TUDataset", "name": "MUTAG"}, "torch_geometric.datasets.TUDataset", "TUDataset/MUTAG"),
        ("zinc", {}, "torch_geometric.datasets.ZINC", "ZINC"),
    ],
)
def test_without_network_a_library_set_says_where_its_files_belong(
    task: str, options: dict[str, str], kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = "http://127.0.0.1:9"  # a port that refuses connections
    for attribute, value in (("url", closed), ("split_url", closed), ("mirrors", [f"{closed}/"])):
        monkeypatch.setattr(f"{kind}.{attribute}", value, raising=False)
    (tmp_path / "notes.txt").touch()  # a folder with a file gets none of the set
    with pytest.raises(DataError, match=rf"^{tmp_path / place} cannot be .*; without network, put "):
        library(task, tmp_path, download=True, **options)


def test_a_full_disk_is_no_lack_of_network(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert isinstance(unread_set(full, tmp_path, "torchvision", "put it there"), MachineError)


def test_graphs_of_torch_geometric_have_a_class(tmp_path: Path) -> None:
    data = library("pyg", tmp_path, dataset="TUDataset", name="MUTAG")
    spec = data.spec
    assert (spec.name, spec.targets, spec.num_classes, spec.num_targets) == ("TUDataset-MUTAG", "class", 2, 0)
    assert spec.node_values == (7,) and spec.edge_values == (4,)  # one-hot blocks are one feature
    assert Encoded.of([np.array([[1, 0, 1], [1, 1, 0]])]).values == (1, 2, 2), "two at once are not one of three"
    assert "TU Dortmund" in (data.about() or "")
    assert library("pyg", tmp_path, dataset="TUDataset", name="MUTAG", targets=[0]).spec.num_classes == 2
    with pytest.raises(DataError, match=r"data.targets=\[3\], but a graph has the targets 0 to 0"):
        library("pyg", tmp_path, dataset="TUDataset", name="MUTAG", targets=[3])
    split = data.splits["train"]
    assert isinstance(split, GraphSplit)
    batch = split.batch([0, 1, 2])
    assert batch.target.dtype == torch.int64 and batch.structure is not None
    for row, place in enumerate(data.places("train", [0, 1, 2])):
        graph = int(place.removeprefix("graph "))
        size = 3 + graph % 3
        nodes = batch.inputs[row, :size, 0].tolist()
        assert nodes == [(graph + number) % 7 for number in range(size)] and batch.target[row] == size % 2


def test_graphs_keep_the_test_split_that_a_class_calls_not_train(tmp_path: Path) -> None:
    numbers = torch.tensor([[0.5, 1.5]] * 40)
    _superpixels(tmp_path, numbers[:25], numbers[25:])
    data = library("pyg", tmp_path, dataset="MNISTSuperpixels", name=None, val_fraction=0.2)
    assert data.sizes() == {"num_train": 20, "num_val": 5, "num_test": 15}
    assert sorted(data.places("test", [0, 14])) != sorted(data.places("train", [0, 14]))
    assert all(place.startswith("test graph") for place in data.places("test", range(15)))


def test_a_graph_may_have_more_targets_than_nodes_but_not_one_for_each_node(tmp_path: Path) -> None:
    data_of_pyg = pytest.importorskip("torch_geometric.data")
    pyg = PygData(root=str(tmp_path), dataset="QM9")

    def check(*shape: int) -> None:
        graph = data_of_pyg.Data(torch.zeros(5, 11), torch.zeros(2, 8, dtype=torch.long), y=torch.zeros(*shape))
        pyg._check([(None, number, graph) for number in range(3)])

    for of_the_graph in ((1, 19), (1, 5), (1,), (19,), (1, 1)):
        check(*of_the_graph)
    for of_nodes in ((5,), (5, 1), (5, 3)):
        with pytest.raises(DataError, match="has a target for each node"):
            check(*of_nodes)


def test_graphs_with_their_own_splits_and_numbers_equal_those_of_the_task_zinc(tmp_path: Path) -> None:
    official_graphs.zinc(tmp_path)
    ours = task_modules.ready("zinc", tmp_path)
    theirs = library("pyg", tmp_path, dataset="ZINC", name=None, options={"subset": True})
    assert theirs.spec.targets == "numbers" and theirs.sizes() == ours.sizes()
    for stage in ("val", "test"):
        first, second = ours.splits[stage], theirs.splits[stage]
        assert isinstance(first, GraphSplit) and isinstance(second, GraphSplit)
        ours_by_place = dict(zip(ours.places(stage, range(8)), first.rows.tolist(), strict=True))
        for row, place in enumerate(theirs.places(stage, range(8))):
            mine, other = first.store[ours_by_place[place]], second.store[int(second.rows[row])]
            np.testing.assert_array_equal(mine.edges, other.edges)
            np.testing.assert_array_equal(mine.nodes, other.nodes)
        assert sorted(first.targets_at(list(range(8))).flatten().tolist()) == sorted(
            second.targets_at(list(range(8))).flatten().tolist()
        )


def _superpixels(root: Path, train: torch.Tensor, test: torch.Tensor) -> PygData:
    """Graphs of two nodes with these numbers (n, 2) and their negatives, and two edges with the same, in two splits."""
    ends = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        [{"x": x, "edge_attr": x, "edge_index": ends, "y": torch.tensor([n % 2])} for n, x in enumerate(features)]
        for features in (torch.stack([train, -train], dim=2), torch.stack([test, -test], dim=2))
    ]
    file = root / "MNISTSuperpixels" / "raw" / "MNISTSuperpixels.pt"
    file.parent.mkdir(parents=True)
    torch.save(tuple(graphs), file)
    return cast(PygData, library("pyg", root, dataset="MNISTSuperpixels", name=None, val_fraction=0.0))


def _inputs(split: Any) -> torch.Tensor:
    inputs: torch.Tensor = split.batch(list(range(len(split)))).inputs
    return inputs


def test_validation_graphs_decide_no_bins_and_the_bins_change_no_test_data(tmp_path: Path) -> None:
    numbers = torch.arange(640, dtype=torch.float32).reshape(320, 2) ** 2
    tests = torch.arange(320) % 16 == 3
    _superpixels(tmp_path, numbers[~tests], numbers[tests])
    options = {"dataset": "MNISTSuperpixels", "name": None, "val_fraction": 0.2}
    first, second = (library("pyg", tmp_path, split_seed=seed, **options) for seed in (0, 1))
    for data in (first, second):
        batch = data.splits["train"].batch(list(range(240)))
        for bins in (batch.inputs.flatten(0, 1), batch.structure.edge_features):
            assert bins[:, 0].bincount(minlength=32).tolist() == [15] * 32, "480 training nodes, and as many edges"
            assert torch.equal(bins[:, 1], 31 - bins[:, 0])
    assert not torch.equal(_inputs(first.splits["test"]), _inputs(second.splits["test"]))
    assert first.digests()["test"] == second.digests()["test"] and first.digests()["val"] != second.digests()["val"]
    assert first.content_sha256() == second.content_sha256()


@pytest.mark.parametrize(
    ("task", "file", "separator"),
    [
        ("zinc", "ZINC/raw/train.index", ","),
        ("pyg", "TUDataset/MUTAG/raw/MUTAG_graph_labels.txt", "\n"),
        ("modelnet40", f"{official_points.FOLDER}/airplane/airplane_0000.txt", "\n"),
        ("shapenet_part", f"{official_points.SHAPES}/00000004/train1.txt", "\n"),
    ],
)
def test_an_edited_file_of_a_published_set_is_read_again(tmp_path: Path, task: str, file: str, separator: str) -> None:
    before = task_modules.ready(task, tmp_path)
    assert task_modules.ready(task, tmp_path).content_sha256() == before.content_sha256()
    path = tmp_path / file
    status = path.stat()
    first, *rest = path.read_text().strip().split(separator)
    path.write_text(separator.join([*rest, first]) + "\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    after = task_modules.ready(task, tmp_path)
    assert after.content_sha256() != before.content_sha256()
    assert task_modules.ready(task, tmp_path).content_sha256() == after.content_sha256()


def test_a_checkpoint_is_used_with_no_graphs_whose_numbers_stand_for_other_values(tmp_path: Path) -> None:
    numbers = torch.arange(600, dtype=torch.float32).reshape(300, 2)
    few = _superpixels(tmp_path / "few", numbers % 5, numbers % 5)
    other = _superpixels(tmp_path / "other", numbers % 5 * 2, numbers % 5)
    many = _superpixels(tmp_path / "many", numbers, numbers)
    fold = library("pyg", tmp_path / "many", dataset="MNISTSuperpixels", name=None, val_fraction=0.2)
    for data in (few, many):
        data.check_encoding(data.state_dict())
    few.check_encoding({})  # of a run of an earlier version
    for data, state in ((few, other.state_dict()), (other, few.state_dict()), (fold, many.state_dict()), (many, {})):
        with pytest.raises(DataError, match="its features have other values than those that the checkpoint was"):
            data.check_encoding(state)
