"""Sets of many files that are read again when one of them was edited."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from support import official_points, task_modules
from support.plans import prepared

from sliceformer_lab.data.sequences.pathfinder import LRAPathfinder


def _official_pathfinder(root: Path, count: int = 10) -> Path:
    """Grey pictures in the published layout; the folder of its images."""
    base = root / "pathfinder32" / "curv_baseline"
    (base / "metadata").mkdir(parents=True)
    (base / "imgs" / "0").mkdir(parents=True)
    for number in range(count):
        Image.new("L", (32, 32), number).save(base / "imgs" / "0" / f"sample_{number}.png")
    rows = [f"imgs/0 sample_{number}.png {number} {number % 2}\n" for number in range(count)]
    (base / "metadata" / "0.npy").write_text("".join(rows))
    return base / "imgs" / "0"


def test_an_edited_picture_of_the_published_pathfinder_is_read_again(tmp_path: Path) -> None:
    images = _official_pathfinder(tmp_path)
    options = {"root": str(tmp_path), "difficulty": "easy", "source": "official"}
    before = prepared(LRAPathfinder(**options))
    assert prepared(LRAPathfinder(**options)).folder == before.folder
    Image.new("L", (32, 32), 200).save(images / "sample_9.png")  # the only test picture
    after = prepared(LRAPathfinder(**options))
    greys = [int(data.splits["test"].batch([0]).inputs.max()) for data in (before, after)]
    assert greys == [9, 200]


@pytest.mark.parametrize(
    ("task", "shape"),
    [
        ("modelnet40", f"{official_points.FOLDER}/airplane/airplane_0000.txt"),
        ("shapenet_part", f"{official_points.SHAPES}/00000004/train1.txt"),
    ],
)
def test_an_edited_cloud_of_a_published_set_is_read_again(tmp_path: Path, task: str, shape: str) -> None:
    before = task_modules.ready(task, tmp_path)
    assert task_modules.ready(task, tmp_path).content_sha256() == before.content_sha256()
    rows = (tmp_path / shape).read_text().splitlines(keepends=True)
    (tmp_path / shape).write_text("".join(reversed(rows)))
    assert task_modules.ready(task, tmp_path).content_sha256() != before.content_sha256()
