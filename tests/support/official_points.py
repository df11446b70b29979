"""Writes miniature sets of point clouds in their official formats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sliceformer_lab.data.points.shapenet import PARTS

FOLDER = "modelnet40_normal_resampled"
SHAPES = "shapenetcore_partanno_segmentation_benchmark_v0_normal"


def cloud(seed: int, count: int = 60, stretch: float = 1.0) -> np.ndarray:
    """Points of an ellipsoid and their normals, (count, 6)."""
    normals = np.random.default_rng(seed).normal(size=(count, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.concatenate([normals * [1, stretch, 1], normals], axis=1).astype(np.float32)


def rows(points: np.ndarray, separator: str = ",") -> str:
    return "".join(separator.join(f"{value:.6f}" for value in row) + "\n" for row in points)


def modelnet40(root: Path) -> None:
    """Two of the forty classes, as text files with their lists."""
    names = ["airplane", "night_stand", *(f"kind{i}" for i in range(38))]
    (root / FOLDER).mkdir(parents=True)
    (root / FOLDER / "modelnet40_shape_names.txt").write_text("\n".join(names) + "\n")
    for stage, count in (("train", 10), ("test", 4)):
        listed = []
        for kind, stretch in (("airplane", 0.2), ("night_stand", 1.0)):
            (root / FOLDER / kind).mkdir(exist_ok=True)
            for i in range(count):
                name = f"{kind}_{i + (0 if stage == 'train' else 100):04d}"
                (root / FOLDER / kind / f"{name}.txt").write_text(rows(cloud(i, stretch=stretch)))
                listed.append(name)
        (root / FOLDER / f"modelnet40_{stage}.txt").write_text("\n".join(listed) + "\n")


def modelnet40_hdf5(root: Path) -> None:
    """The HDF5 release, with normals, in two training files."""
    import h5py

    folder = root / "modelnet40_ply_hdf5_2048"
    folder.mkdir(parents=True)
    (folder / "shape_names.txt").write_text("\n".join(f"kind{i}" for i in range(40)) + "\n")
    for stage, files in (("train", 2), ("test", 1)):
        names = [f"ply_data_{stage}{i}.h5" for i in range(files)]
        (folder / f"{stage}_files.txt").write_text("".join(f"data/modelnet40_ply_hdf5_2048/{name}\n" for name in names))
        for number, name in enumerate(names):
            points = np.stack([cloud(10 * number + i) for i in range(6)])
            with h5py.File(folder / name, "w") as file:
                file["data"], file["normal"] = points[..., :3], points[..., 3:]
                file["label"] = np.arange(6, dtype=np.uint8)[:, None] % 3


def shapenet_part(root: Path) -> None:
    """Four shapes per split of two of the sixteen categories; one shape has few points."""
    folder = root / SHAPES
    (folder / "train_test_split").mkdir(parents=True)
    numbers = {name: f"{i:08d}" for i, name in enumerate(PARTS)}
    (folder / "synsetoffset2category.txt").write_text("".join(f"{name}\t{n}\n" for name, n in numbers.items()))
    for offset, stage in enumerate(("train", "val", "test")):
        listed = []
        for kind in ("Mug", "Chair"):
            (folder / numbers[kind]).mkdir(exist_ok=True)
            for i in range(4):
                points = cloud(i, count=20 if (i, stage) == (0, "test") else 60)
                part = np.where(points[:, :1] > 0, PARTS[kind].start, PARTS[kind].start + 1)
                name = f"{stage}{i + 10 * offset}"
                (folder / numbers[kind] / f"{name}.txt").write_text(rows(np.concatenate([points, part], axis=1), " "))
                listed.append(f"shape_data/{numbers[kind]}/{name}")
        (folder / "train_test_split" / f"shuffled_{stage}_file_list.json").write_text(json.dumps(listed))


def point_folder(root: Path) -> None:
    """Class folders with clouds in two formats."""
    for kind, stretch in (("flat", 0.2), ("round", 1.0)):
        (root / kind).mkdir(parents=True)
        for i in range(12):
            points = cloud(i, stretch=stretch)[:, :3]
            if i % 2:
                np.save(root / kind / f"{i}.npy", points)
            else:
                (root / kind / f"{i}.txt").write_text(rows(points, " "))


TETRAHEDRON = "OFF\n4 4 0\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 2 1\n3 0 1 3\n3 0 3 2\n3 1 2 3\n"
PLY = (
    "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    "end_header\n0 0 0\n1 2 3\n-1 0 5\n"
)
