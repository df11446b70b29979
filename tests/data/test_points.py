"""Point clouds from every format, their scaling, augmentation and order, and the effect of the order on attentions."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import official_points, task_modules
from support.plans import small_task
from torch import Tensor
from torch.testing import assert_close

from sliceformer_lab.data.points.base import CloudOptions
from sliceformer_lab.data.points.clouds import choose_points, curve_order, farthest_points, read_cloud
from sliceformer_lab.data.points.point_folder import PointFolder
from sliceformer_lab.data.points.shapenet import PARTS, ShapeNetPart
from sliceformer_lab.errors import DataError
from sliceformer_lab.tasks.points import PartIoU, PointSegmentation


def brute_force_farthest(points: Tensor, count: int) -> list[int]:
    chosen = [0]
    while len(chosen) < count:
        distances = torch.cdist(points.double(), points[chosen].double()).amin(dim=1)
        chosen.append(int(distances.argmax()))
    return chosen


def test_farthest_points_equal_those_of_a_search() -> None:
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    assert farthest_points(points, 12).tolist() == brute_force_farthest(points, 12)
    assert sorted(farthest_points(points.repeat(2, 1), 80).tolist()) == list(range(80)), "none twice, at one place too"


def grid(side: int) -> Tensor:
    return torch.tensor(list(itertools.product(range(side), repeat=3)), dtype=torch.float32)[None]


def test_hilbert_visits_neighbours_and_morton_jumps() -> None:
    points = grid(8)
    steps = {}
    for order in ("morton", "hilbert"):
        path = points[0][curve_order(points, order)[0]]  # type: ignore[arg-type]
        assert len(path.unique(dim=0)) == 512
        steps[order] = (path[1:] - path[:-1]).abs().sum(dim=1)
    assert steps["hilbert"].max() == 1 and steps["morton"].max() > 1
    assert curve_order(points, "none")[0].tolist() == list(range(512))


@pytest.mark.parametrize("order", ["morton", "hilbert"])
def test_the_order_depends_on_the_points_not_on_their_file(order: Any) -> None:
    points = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))
    shuffled = points[:, torch.randperm(50, generator=torch.Generator().manual_seed(1))]
    options = CloudOptions("unit_sphere", "none", order)
    assert_close(options.features(points, training=False)[0], options.features(shuffled, training=False)[0])


def test_clouds_are_scaled_about_their_mean() -> None:
    points = 5 + 3 * torch.randn(4, 30, 6, generator=torch.Generator().manual_seed(0))
    for scale, size in (
        ("unit_sphere", lambda x: x.norm(dim=2).amax(dim=1)),
        ("standardise", lambda x: x.std(dim=(1, 2), correction=0)),
    ):
        features, _ = CloudOptions(scale, "none", "none").features(points, training=False)  # type: ignore[arg-type]
        assert_close(features[..., :3].mean(dim=1), torch.zeros(4, 3), atol=1e-5, rtol=0)
        assert_close(size(features[..., :3]), torch.ones(4))
        assert_close(features[..., 3:], points[..., 3:])
    assert_close(CloudOptions("none", "none", "none").features(points, training=False)[0], points)


def test_colours_are_no_normals(tmp_path: Path) -> None:
    for kind in ("flat", "round"):
        (tmp_path / kind).mkdir()
        for number in range(8):
            colours = np.random.default_rng(number).uniform(0, 255, (20, 6))
            np.savetxt(tmp_path / kind / f"{number}.txt", colours)
    assert task_modules.ready("point_folder", tmp_path, num_points=16).splits["train"].batch([0]).inputs.shape[2] == 27
    with pytest.raises(DataError, match=r"columns 4 to 6 of a cloud have the length .*set data.normals=false"):
        task_modules.ready("point_folder", tmp_path, num_points=16, normals=True)


def test_a_new_cloud_is_refused_for_what_a_file_is_refused_for(tmp_path: Path) -> None:
    official_points.modelnet40(tmp_path)
    data = task_modules.ready("modelnet40", tmp_path, num_points=16)
    cloud = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    near, far = data.encode_one(cloud), data.encode_one(cloud + 100)
    torch.testing.assert_close(far - far.mean(dim=0), near - near.mean(dim=0), atol=1e-4, rtol=0)
    for wrong, message in (
        (cloud + 5e6, r"the cloud has coordinates up to 5,000,001 in a cloud of the size 1\.9"),
        (np.ones((40, 3)), "the cloud has all its points at one place"),
        (np.concatenate([cloud, [[0, 1e30, 0]]]), r"has the number 1e\+30 in point 41, expected up to 1e\+18"),
        (cloud.astype(str), r"the cloud is <U32 \(40, 3\), expected rows of x y z"),
        (cloud[:0], r"the cloud is float64 \(0, 3\), expected rows of x y z"),
        ("a text", "the cloud is str, expected an array with rows of x y z"),
    ):
        with pytest.raises(DataError, match=message):
            data.encode_one(wrong)


@pytest.mark.parametrize("augment", ["rotate", "rotate_jitter", "scale_shift"])
def test_only_training_is_augmented_and_normals_are_rotated_too(augment: Any) -> None:
    torch.manual_seed(0)
    points = torch.from_numpy(np.stack([official_points.cloud(i) for i in range(3)]))
    options = CloudOptions("none", augment, "none")
    assert_close(options.features(points, training=False)[0], points)
    changed = options.features(points, training=True)[0]
    assert not torch.allclose(changed[..., :3], points[..., :3])
    if augment == "rotate":  # about y, as a rigid motion: a point's height and its angle to its normal stay
        assert_close(changed[..., 1], points[..., 1])
        assert_close((changed[..., :3] * changed[..., 3:]).sum(2), (points[..., :3] * points[..., 3:]).sum(2))
        assert_close(changed[..., :3].norm(dim=2), points[..., :3].norm(dim=2))


def test_text_and_hdf5_hold_the_same_set(tmp_path: Path) -> None:
    official_points.modelnet40(tmp_path)
    official_points.modelnet40_hdf5(tmp_path)
    text = task_modules.ready("modelnet40", tmp_path, num_points=16, normals=True)
    packed = task_modules.ready("modelnet40", tmp_path, num_points=16, normals=True, form="hdf5", val_fraction=0.0)
    assert [len(text.splits[s]) for s in ("train", "val", "test")] == [18, 2, 8]
    assert [len(packed.splits[s]) for s in ("train", "val", "test")] == [12, 0, 6]
    for data in (text, packed):
        batch = next(iter(data.train_dataloader()))
        assert batch.inputs.shape[1:] == (16, 6) and batch.padding is None
        assert not data.fingerprint()["official"]


def test_a_cloud_with_too_few_points_keeps_all_and_repeats_points_that_its_bytes_choose() -> None:
    points = official_points.cloud(0, count=20)
    kept, few = choose_points(points, 80)
    assert few and sorted(map(tuple, kept[:20].tolist())) == sorted(map(tuple, points.tolist()))
    repeated = np.random.default_rng(zlib.crc32(points[:, :3].tobytes())).integers(20, size=60)
    np.testing.assert_array_equal(kept[20:], points[repeated])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "1,2,3\n1,nan,3\n", "has the number nan in point 2"),
        ("a.txt", "1,2\n3,4\n", "expected rows of x y z"),
        ("a.txt", "", "cannot be read as a point cloud"),
        ("a.npy", "no array", "cannot be read as a point cloud"),
        ("a.off", "OFF\n", "cannot be read as a point cloud"),
        ("a.txt", "1 2 3 4 5 6 7 8 9 10 11 12 13\n" * 3, r"has 3 rows of 13 numbers, but a row is a point; transpose"),
    ],
)
def test_a_file_without_a_cloud_is_named_in_one_sentence(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_cloud(tmp_path / name)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_meshes_give_points_of_their_surface_and_clouds_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.off").write_text(official_points.TETRAHEDRON)
    points = read_cloud(tmp_path / "a.off")
    assert points.shape == (10_000, 6)
    x = points[:, :3]
    assert (x > -1e-6).all() and (x.sum(axis=1) < 1 + 1e-6).all()
    on_a_face = np.minimum(np.abs(x).min(axis=1), np.abs(1 - x.sum(axis=1)))
    np.testing.assert_allclose(on_a_face, 0, atol=1e-6)
    np.testing.assert_array_equal(points, read_cloud(tmp_path / "a.off"))
    (tmp_path / "a.ply").write_text(official_points.PLY)
    np.testing.assert_array_equal(read_cloud(tmp_path / "a.ply"), [[0, 0, 0], [1, 2, 3], [-1, 0, 5]])


def own_clouds(folder: Path, **options: Any) -> PointFolder:
    """Twelve flat and twelve round clouds of 60 points in folder/shapes."""
    if not (folder / "shapes").is_dir():
        official_points.point_folder(folder / "shapes")
    return PointFolder(root=str(folder / "shapes"), cache=str(folder / "cache"), processes=1, **options)


def test_the_number_of_points_is_the_median_of_the_clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = own_clouds(tmp_path)
    (tmp_path / "shapes" / "flat" / "0.txt").write_text("0 0 0\n1 2 3\n")  # one small cloud changes nothing
    assert data.spec.max_len == 60
    size, *_ = data.choices()
    assert (size.option, size.value) == ("data.num_points", 60) and "median training cloud has 60" in size.reason
    data.setup()
    assert data.splits["train"].batch([0]).inputs.shape == (1, 60, 27)  # type: ignore[attr-defined]
    monkeypatch.setattr("sliceformer_lab.data.points.base.MAX_POINTS", 20)
    size, *_ = own_clouds(tmp_path).choices()
    assert size.value == 20 and "more than 20 take long" in size.reason
    assert "data.num_points" not in {choice.option for choice in own_clouds(tmp_path, num_points=16).choices()}


def test_waves_are_features_of_the_scaled_and_augmented_points(tmp_path: Path) -> None:
    data = own_clouds(tmp_path, num_points=16, frequencies=2, augment="scale_shift", order="hilbert")
    data.setup()
    assert data.spec.channels == 15
    x = data.splits["train"].batch([0, 1]).inputs  # type: ignore[attr-defined]
    angles = torch.pi * x[..., :3]
    assert_close(x[..., 3:], torch.cat([angles.sin(), angles.cos(), (2 * angles).sin(), (2 * angles).cos()], dim=2))


MODELNET = official_points.FOLDER


@pytest.mark.parametrize(
    ("task", "spoil", "message"),
    [
        ("point_folder", lambda root: (root / "empty").mkdir(), "empty holds no clouds"),
        (
            "point_folder",
            lambda root: (root / "flat" / "x.txt").write_text("1,2,3,0,0,1\n4,2,3,0,0,1\n"),
            "only one of .* has normals",
        ),
        (
            "modelnet40",
            lambda root: (root / MODELNET / "airplane" / "airplane_0003.txt").unlink(),
            r"airplane_0003.txt is missing, as are 1 of the 20 clouds",
        ),
        (
            "modelnet40",
            lambda root: (root / MODELNET / "modelnet40_train.txt").write_text("chair_0001\n"),
            "chair_0001, which belongs to no class",
        ),
    ],
)
def test_an_unusable_folder_is_reported_in_one_sentence(
    task: str, spoil: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    write = task_modules.SMALL[task].write
    assert write is not None
    write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message) as error:
        task_modules.ready(task, tmp_path)
    assert "\n" not in str(error.value)


def test_parts_stay_with_their_points(tmp_path: Path) -> None:
    data = task_modules.ready("shapenet_part", tmp_path, num_points=32, order="hilbert")
    assert [len(data.splits[stage]) for stage in ("train", "val", "test")] == [8, 8, 8]
    batch = next(iter(data.train_dataloader()))
    assert batch.target.shape == batch.inputs.shape[:2] and batch.context is not None
    first = torch.tensor([parts.start for parts in PARTS.values()])[batch.context.argmax(dim=1)]
    normals = batch.inputs[..., 3:]  # of an ellipsoid that is round in x: of the sign of x
    assert_close(batch.target, first[:, None] + (normals[..., 0] <= 0).long())
    assert "; 2 clouds repeat points" in data.fingerprint()["note"]
    every = data.splits["test"].batch(list(range(8))).inputs
    assert sorted(len(points.unique(dim=0)) for points in every) == [20, 20, *[32] * 6]


def test_wrong_shapes_are_named_and_a_subset_keeps_the_name_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShapeNetPart, "published_sizes", {"train": 8, "val": 8, "test": 8})
    data = task_modules.ready("shapenet_part", tmp_path, num_points=16, limit_train=2)
    assert len(data.splits["train"]) == 2 and data.fingerprint()["name"] == "shapenet_part"
    folder = tmp_path / official_points.SHAPES
    name = json.loads((folder / "train_test_split" / "shuffled_val_file_list.json").read_text())[0]
    file = folder / (name.removeprefix("shape_data/") + ".txt")
    for row, message in (
        ("0 0 0 0 0 1 3\n", r"parts outside 36\.\.37, the"),
        ("0 0 0 1\n", "has 4 columns, expected 7"),
    ):
        file.write_text(row * 20)
        with pytest.raises(DataError, match=message):
            task_modules.ready("shapenet_part", tmp_path, num_points=20)


def test_part_iou_by_hand() -> None:
    parts = list(PARTS.values())
    mug, chair = PARTS["Mug"].start, PARTS["Chair"].start
    target = torch.tensor([[mug, mug, mug, mug + 1], [chair, chair, chair + 1, chair + 1], [mug, mug, mug, mug]])
    ours = torch.tensor([[mug, mug, mug + 1, mug + 1], [chair, chair + 1, chair + 1, chair + 1], [mug, mug, mug, mug]])
    mug_1 = (2 / 3 + 1 / 2) / 2
    chair_1 = (1 / 2 + 2 / 3 + 1 + 1) / 4  # two parts that neither has count 1
    found = {}
    for mean in ("instance", "class"):
        metric = PartIoU(parts, mean)
        metric.update(ours[:2], target[:2])
        metric.update(ours[2:], target[2:])
        found[mean] = float(metric.compute())
    assert found["instance"] == pytest.approx((mug_1 + chair_1 + 1) / 3)
    assert found["class"] == pytest.approx(((mug_1 + 1) / 2 + chair_1) / 2)


def test_predicted_parts_are_of_the_shapes_own_category(tmp_path: Path) -> None:
    data = task_modules.ready("shapenet_part", tmp_path, num_points=16)
    task: PointSegmentation = small_task("task=shapenet_part", data=data.spec)
    batch = next(iter(data.train_dataloader()))
    kept = task.kept(task(batch), batch)
    for row, category in zip(kept, batch.context.argmax(dim=1).tolist(), strict=True):
        assert set(row.tolist()) <= set(list(PARTS.values())[category])
    assert 0 < task.chance(batch.target) <= 1
