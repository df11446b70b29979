"""A user's own data have a name in summaries, reports and folder names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import task_modules
from support.plans import prepared

from sliceformer_lab.config.compose import preset_root
from sliceformer_lab.config.schema import build_object
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.errors import ConfigError
from sliceformer_lab.runs.names import task_folder

OWN = {"text_csv": "texts", "molecule_csv": "molecules", "image_csv": "images", "series_csv": "series"} | dict.fromkeys(
    ("image_folder", "mask_folder", "point_folder", "series_folder"), "mine.v2"
)


def own_data(task: str, folder: Path, **options: Any) -> DataModule:
    """The small data of a task in the folder mine.v2."""
    root = folder / "mine.v2"
    root.mkdir(exist_ok=True)
    return task_modules.ready(task, root, **options)


@pytest.mark.parametrize(("task", "name"), OWN.items())
def test_own_data_have_the_name_of_their_file_or_folder_and_can_do_without_a_test_split(
    task: str, name: str, tmp_path: Path
) -> None:
    data = own_data(task, tmp_path, test_fraction=0.0)
    found, sizes = data.fingerprint(), data.sizes()
    assert data.spec.name == found["name"] == name
    assert found["official"] is None and found["note"].startswith("your own "), "no copy of a published set"
    assert sizes["num_test"] == 0 < sizes["num_val"] < sizes["num_train"] and data.test_dataloader() == []
    assert own_data(task, tmp_path, name="trial 3").spec.name == "trial 3"


@pytest.mark.parametrize("task", OWN)
def test_the_folds_of_own_data_are_other_examples_of_the_same_data(task: str, tmp_path: Path) -> None:
    folds = [own_data(task, tmp_path, test_fraction=0.3, split_seed=seed) for seed in (0, 1)]
    assert len({data.fingerprint()["sha256"] for data in folds}) == 1, "a report gives them one table"
    assert len({data.digests()["test"] for data in folds}) == 2


def test_a_name_that_cannot_be_part_of_a_folder_name_is_refused(tmp_path: Path) -> None:
    node = preset_root("task=text_csv")["data"]
    for name in ("", "a/b", "a\\b", " a", "a\nb"):
        with pytest.raises(ConfigError, match=r"data\.name"):
            build_object(node | {"name": name}, where="data")


def test_the_folder_of_runs_contains_the_name_of_own_data_only(tmp_path: Path) -> None:
    def folder(task: str, **options: str) -> str:
        return task_folder(task, preset_root(f"task={task}")["data"] | options)

    assert folder("digits") == "digits"
    assert folder("imdb", root="/texts") == "imdb"
    assert folder("text_csv", file="texts/a.b.csv.gz") == "text_csv-a.b"
    assert folder("text_csv", file="a.csv", name="b") == "text_csv-b"
    (tmp_path / "cats.v2").mkdir()
    assert folder("image_folder", root=str(tmp_path / "cats.v2")) == "image_folder-cats.v2"


def write_picture(file: Path, number: int) -> Path:
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path := file.with_suffix(".png"))
    return path


def write_cloud(file: Path, number: int) -> Path:
    np.save(path := file.with_suffix(".npy"), np.random.default_rng(number).normal(size=(40, 3)))
    return path


@pytest.mark.parametrize(
    ("task", "kind", "write"), [("image_folder", "pictures", write_picture), ("point_folder", "clouds", write_cloud)]
)
def test_pictures_and_clouds_of_two_splits_are_counted_in_a_remark(
    task: str, kind: str, write: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    root = tmp_path / "mine.v2"
    for number in range(40):
        place = root / ("train" if number < 24 else "test") / "ab"[number % 2] / str(number)
        place.parent.mkdir(parents=True, exist_ok=True)
        write(place, number)
    (root / "train" / "a" / "Thumbs.db").write_text("of Windows")
    (root / "README.txt").write_text("of the set")
    data = own_data(task, tmp_path)
    assert data.remarks() == []
    for number in (30, 32):
        write(root / "test" / "a" / str(number), number - 30)
    (root / "train" / "b" / "phone.heic").write_text("an ending that is not read")
    (root / "train" / "b" / "nested").mkdir()
    write(root / "loose", 1)
    write(root / "train" / "b" / "nested" / "1", 1)
    remark, unread = prepared(replace(data)).remarks()
    assert unread.startswith(f"{root} has 3 files more that no split reads, such as loose.")
    size = len(data.splits["val"]) + 16
    assert remark.startswith(f"2 of {size} validation and test {kind} are also training {kind}")


@pytest.mark.parametrize(
    ("rare", "found"),
    [
        ({"val": "ab", "test": "abc"}, ["no val example has the class 'c', so scores say nothing of what is missing"]),
        ({"val": "a", "test": "a"}, ["no val or test example has 2 of the 3 classes, such as 'b', so scores say noth"]),
        ({"val": "bc", "test": "ab"}, ["no val example has the class 'a'", "no test example has the class 'c'"]),
    ],
)
def test_a_class_that_no_split_scores_is_named_in_a_remark(
    rare: dict[str, str], found: list[str], tmp_path: Path
) -> None:
    parts = {"train": "abc", **rare}
    rows = [f"{part} {name} {i},{name},{part}" for part, names in parts.items() for name in names for i in range(9)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label,split", *rows]))
    remarks = task_modules.ready("text_csv", tmp_path, split_column="split").remarks()
    assert len(remarks) == len(found)
    assert all(remark.startswith(start) for remark, start in zip(remarks, found, strict=True))


def test_molecules_of_two_splits_are_counted_in_a_remark_however_they_are_written(tmp_path: Path) -> None:
    rows = ["CCO,1,train", "c1ccccc1,2,train", "CCC,3,val", "c1ccccc1,2,val", "C(O)C,7,test", "N,1,test"]
    (tmp_path / "molecules.csv").write_text("\n".join(["smiles,target,split", *rows]))
    (remark,) = task_modules.ready("molecule_csv", tmp_path, split_column="split", targets=["target"]).remarks()
    assert remark.startswith(
        "2 of 4 validation and test molecules are also training molecules (1 of 2 val, 1 of 2 test)"
    )
