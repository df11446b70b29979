"""Numbers or labels, one or several, in the columns of a user's table of texts, pictures, molecules or series."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from support import official_files
from support.plans import built_data

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.images.base import ImageSplit
from sliceformer_lab.data.own_targets import TableTargets
from sliceformer_lab.data.rounding import check_targets
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.errors import ConfigError, DataError
from sliceformer_lab.tasks.targets import Classes, Labels

ROWS = [(f"text {number}", number % 7 / 2, number % 2, ";".join(["ab", "c"][: number % 3])) for number in range(60)]
CLASSES = {"text": "texts.csv", "image": "images.csv"}


def text_table(root: Path, rows: list[tuple[Any, ...]] | None = None) -> Path:
    lines = ["text,stars,seen,tags", *(",".join(map(str, row)) for row in rows or ROWS)]
    (path := root / "texts.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def texts(root: Path, **options: Any) -> DataModule:
    """The data module of a table that exists in `root`."""
    places = {"file": str(root / "texts.csv"), "root": str(root / "cache")}
    return built_data("sequences.text_csv.TextCSV", **(places | {"vocab_size": 300} | options))


def images(folder: Path, **options: Any) -> DataModule:
    given = {"file": str(folder / "images.csv"), "root": ".", "image_size": 16} | options
    return built_data("images.image_table.ImageTable", **given)


def targets_by_place(data: DataModule) -> dict[str, list[float]]:
    found = {}
    for stage, split in data.splits.items():
        rows = list(range(len(split)))
        found |= dict(zip(data.places(stage, rows), split.targets_at(rows).tolist(), strict=True))
    return found


def test_columns_of_numbers_are_targets_of_texts(tmp_path: Path) -> None:
    text_table(tmp_path)
    data = texts(tmp_path, targets=["stars", "seen"])
    assert data.spec.targets == "numbers" and (data.spec.num_targets, data.spec.num_classes) == (2, 0)
    assert data.target_names() == ("stars", "seen") and data.class_names() == ()
    assert "data.kind=regression (stars has values other than 0 and 1, such as 0.5)" in map(str, data.choices())
    found = targets_by_place(data)
    assert found == {f"texts.csv, line {line}": list(row[1:3]) for line, row in enumerate(ROWS, start=2)}
    mean, deviation = data.target_statistics()
    training = data.training_targets().numpy()
    np.testing.assert_allclose(mean, training.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation, training.std(axis=0), rtol=1e-6)
    text_table(tmp_path, [("a text", "", 1, ""), *ROWS])
    found = targets_by_place(texts(tmp_path, targets=["stars"]))
    assert np.isnan(found["texts.csv, line 2"]).all() and np.isfinite(list(found.values())).sum() == len(ROWS)


def test_columns_of_zeros_and_ones_are_labels_unless_kind_says_otherwise(tmp_path: Path) -> None:
    text_table(tmp_path)
    assert texts(tmp_path, targets=["seen"]).spec.targets == "labels"
    numbers = texts(tmp_path, targets=["seen"], kind="regression")
    assert numbers.spec.targets == "numbers" and "data.kind" not in [one.option for one in numbers.choices()]
    assert texts(tmp_path, label_column="seen", kind="classification").class_names() == ("0", "1")
    assert len(texts(tmp_path, label_column="stars").class_names()) == 7, "no cache of another column"
    with pytest.raises(DataError, match=r"stars has the value 0.5, but labels are 0, 1 or empty"):
        texts(tmp_path, targets=["stars"], kind="classification")
    for options in ({"targets": ["stars"], "labels_separator": ";"}, {"targets": []}):
        with pytest.raises(ConfigError, match="set the columns of numbers or labels"):
            texts(tmp_path, **options)


@pytest.mark.parametrize("targets", [["stars"], ["seen"]])
def test_a_split_without_a_known_target_is_refused_and_one_target_that_it_lacks_is_named(
    targets: list[str], tmp_path: Path
) -> None:
    rows = [(*row[:3], ("train", "val", "test")[number % 3]) for number, row in enumerate(ROWS)]
    place = 1 if targets == ["stars"] else 2
    text_table(tmp_path, [(*row[:place], "" if row[3] == "val" else row[place], *row[place + 1 :]) for row in rows])
    with pytest.raises(DataError, match=f"no val example has {targets[0]}; add some"):
        texts(tmp_path, targets=targets, split_column="tags")
    other = "seen" if targets == ["stars"] else "stars"
    data = texts(tmp_path, targets=[*targets, other], split_column="tags")
    assert data.remarks() == [f"no val example has {targets[0]}, so its scores are those of the others"]


def test_a_target_with_one_value_in_training_is_named(tmp_path: Path) -> None:
    rows = [(*row[:3], ("train", "val", "test")[number % 3]) for number, row in enumerate(ROWS)]
    rows = [(*row[:1], "3" if row[3] == "train" else row[1], 1000 * row[2], row[3]) for row in rows]
    text_table(tmp_path, [("a text without it", "", 1000, "train"), *rows])
    for targets in (["stars"], ["stars", "seen"]):
        (remark,) = texts(tmp_path, targets=targets, split_column="tags", kind="regression").remarks()
        assert remark == "stars is 3 in every training example that has it, so nothing can be learned of it"


def test_a_number_whose_error_outweighs_that_of_another_is_named(tmp_path: Path) -> None:
    for scale, remarks in ((3, 0), (1000, 1)):
        text_table(tmp_path, [(text, scale * stars, seen, tags) for text, stars, seen, tags in ROWS])
        found = texts(tmp_path, targets=["stars", "seen"]).remarks()
        assert len(found) == remarks and all("is mostly that of stars, and it selects" in one for one in found)


def test_a_field_with_a_separator_holds_any_number_of_labels(tmp_path: Path) -> None:
    text_table(tmp_path)
    data = texts(tmp_path, label_column="tags", labels_separator=";")
    assert data.spec.targets == "labels" and data.target_names() == ("ab", "c")
    assert "data.kind=classification (2 labels in the fields of tags)" in map(str, data.choices())
    found = targets_by_place(data)
    for line, row in enumerate(ROWS, start=2):
        assert found[f"texts.csv, line {line}"] == [float(name in row[3].split(";")) for name in ("ab", "c")]


@pytest.mark.parametrize(
    ("options", "trained", "column", "absent"),
    [
        ({"label_column": "tags", "labels_separator": ";"}, ("c", "new", "ab"), [2, 0], 0.0),
        ({"targets": ["stars", "seen"]}, ("seen", "new", "stars"), [2, 0], float("nan")),
    ],
)
def test_targets_stand_in_the_columns_of_the_model_that_is_scored(
    options: dict[str, Any], trained: tuple[str, ...], column: list[int], absent: float, tmp_path: Path
) -> None:
    text_table(tmp_path)
    data = texts(tmp_path, **options)
    batch = data.splits["val"].batch([0, 1, 2])
    scored = replace(data, plan=LoadPlan(targets=trained))  # type: ignore[type-var]
    scored.setup()
    target = scored.transfer_batch_to_device(batch, torch.device("cpu"), 0).target
    torch.testing.assert_close(target[:, column], batch.target)
    torch.testing.assert_close(target[:, 1], torch.full((3,), absent), equal_nan=True)


@pytest.mark.parametrize("options", [{"label_column": "seen"}, {"label_column": "tags", "labels_separator": ";"}])
def test_the_same_examples_with_other_names_of_classes_or_labels_are_other_data(
    options: dict[str, Any], tmp_path: Path
) -> None:
    text_table(tmp_path)
    before = texts(tmp_path, **options).digests()
    text_table(tmp_path, [(text, stars, 2 * seen, tags.replace("ab", "aa")) for text, stars, seen, tags in ROWS])
    assert not before.items() & texts(tmp_path, **options).digests().items()


def test_json_lists_are_labels(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"text {number}", "label": ["x"] * (number % 2)}) for number in range(40)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    file = str(tmp_path / "texts.jsonl")
    data = texts(tmp_path, file=file, labels_separator=",")
    assert data.target_names() == ("x",) and sum(map(sum, targets_by_place(data).values())) == 20
    with pytest.raises(DataError, match=r"line 1: label is \[\].*for several labels a row, set data.labels_separator"):
        texts(tmp_path, file=file)


@pytest.mark.parametrize("missing", [None, float("nan"), "", []])
def test_a_missing_field_of_labels_is_no_label(missing: Any, tmp_path: Path) -> None:
    text_table(tmp_path)
    data = cast(TableTargets, texts(tmp_path, label_column="tags", labels_separator=";"))
    assert data.target_of("line 2", {"tags": missing}) == ()


def test_fields_that_name_no_class_or_label_are_refused(tmp_path: Path) -> None:
    text_table(tmp_path)
    classes = cast(TableTargets, texts(tmp_path, label_column="seen"))
    for missing in ("", " NaN", None):
        with pytest.raises(DataError, match=r"seen is .*, expected a word or a whole number; add it or delete the row"):
            classes.target_of("line 2", {"seen": missing})
    labels = cast(TableTargets, texts(tmp_path, label_column="tags", labels_separator=";"))
    with pytest.raises(DataError, match=r"tags is \[1.5\], expected words or a list of words"):
        labels.target_of("line 2", {"tags": [1.5]})
    text_table(tmp_path, [(*row[:3], "") for row in ROWS])
    with pytest.raises(DataError, match=r"no row has a label; choose another data.label_column"):
        texts(tmp_path, label_column="tags", labels_separator=";")


def test_images_of_a_table_have_its_classes_labels_or_numbers(tmp_path: Path) -> None:
    official_files.image_table(tmp_path)
    classes = images(tmp_path)
    assert classes.class_names() == ("a", "b") and targets_by_place(classes)["3.png"] == 1
    labels = images(tmp_path, label_column="tags", labels_separator=";")
    assert labels.target_names() == ("dark", "even") and targets_by_place(labels)["4.png"] == [1.0, 1.0]
    numbers = images(tmp_path, targets=["brightness"])
    found = targets_by_place(numbers)
    assert np.isnan(found["0.png"]).all() and found["39.png"] == [205.0]
    assert {len(split) for split in numbers.splits.values()} == {4, 32}
    split = numbers.splits["test"]
    assert isinstance(split, ImageSplit)
    grey = [5 * int(split.place(row).removesuffix(".png")) + 10.0 for row in range(4)]
    assert split.batch([0, 1, 2, 3]).inputs.mean(dim=(1, 2, 3)).argsort().tolist() == np.argsort(grey).tolist()


def test_images_with_numbers_are_not_augmented_unless_that_is_asked_for(tmp_path: Path) -> None:
    official_files.image_table(tmp_path)
    chosen = {choice.option: choice.value for choice in images(tmp_path, targets=["brightness"]).choices()}
    assert chosen["data.augment"] == "none" and "data.mirror" not in chosen
    training, evaluation = images(tmp_path, targets=["brightness"]).transforms()  # type: ignore[attr-defined]
    assert training is evaluation
    training, evaluation = images(tmp_path, targets=["brightness"], augment="crop").transforms()  # type: ignore[attr-defined]
    assert training is not evaluation


def test_a_split_column_says_which_images_test_and_wrong_rows_are_named(tmp_path: Path) -> None:
    table = official_files.image_table(tmp_path)
    head, *rows = table.read_text().splitlines()
    parts = [f"{row},{'test' if number > 29 else 'train'}" for number, row in enumerate(rows)]
    table.write_text("\n".join([f"{head},part", *parts]))
    data = images(tmp_path, split_column="part")
    assert set(data.places("test", range(10))) == {f"{number}.png" for number in range(30, 40)}
    parts = (images(tmp_path, targets=["brightness"], **column) for column in ({"split_column": "part"}, {}))
    np.testing.assert_equal(*map(targets_by_place, parts))
    table.write_text(table.read_text().replace("39.png,b", "39.png,c"))
    with pytest.raises(DataError, match="line 41 has the class 'c', which only the test split has"):
        images(tmp_path, split_column="part")
    (tmp_path / "7.png").unlink()
    with pytest.raises(DataError, match=r"images.csv, line 9: image is '7.png', but .* has no such file"):
        images(tmp_path)
    with pytest.raises(DataError, match=r"line 2: image is '0.png', but .*elsewhere has no such file"):
        images(tmp_path, root="elsewhere")


def test_every_class_weighs_the_same_when_weights_are_balanced(tmp_path: Path) -> None:
    targets = torch.tensor([0] * 9 + [1])
    weights = Classes(3).balanced_weights(targets)
    each = torch.nn.functional.one_hot(targets, 3).sum(dim=0) * weights
    torch.testing.assert_close(each[:2], torch.full((2,), 10 / 3))
    labels = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, torch.nan], [0.0, 0.0]])
    assert Labels().balanced_weights(labels).tolist() == [3.0, 1.0]
    outputs = torch.zeros(4, 2)
    plain = Labels().loss(outputs, labels, torch.ones(2))
    weighted = Labels().loss(outputs, labels, torch.ones(2), torch.tensor([3.0, 1.0]))
    torch.testing.assert_close(weighted / plain, torch.tensor(9 / 7))  # one of seven known labels counts three times


SECONDS = [1_700_000_000 + number for number in range(60)]  # of Unix time, within one minute
OF_KIND: dict[str, dict[str, Any]] = {
    "sequences.text_csv.TextCSV": {"root": "cache", "vocab_size": 300, "targets": ["t"]},
    "images.image_table.ImageTable": {"root": ".", "image_size": 16, "image_column": "text", "targets": ["t"]},
    "graphs.molecule.MoleculeTable": {"root": "cache", "smiles_column": "smiles", "targets": ["t"]},
    "series.series_csv.SeriesTable": {"root": "cache", "label_column": "t", "value_columns": ["x", "y"]},
}


def data_with_targets(folder: Path, kind: str, targets: list[int]) -> DataModule:
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(folder / "a.png")
    rows = [f"a.png,{'C' * (1 + number)},{number},{number % 7},{target}" for number, target in enumerate(targets)]
    (folder / "table.csv").write_text("\n".join(["text,smiles,x,y,t", *rows]))
    options = OF_KIND[kind] | {"file": str(folder / "table.csv")}
    options["root"] = str(folder / options["root"])
    return built_data(kind, **options)


@pytest.mark.parametrize("kind", OF_KIND)
def test_numbers_to_learn_that_32_bits_would_make_equal_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(t|target 1) has values from 1700000000 to 1700000059, .*subtract an offset"):
        data_with_targets(tmp_path, kind, SECONDS)
    learned = data_with_targets(tmp_path, kind, [second - SECONDS[0] for second in SECONDS]).training_targets()
    assert len(learned.unique()) == len(learned)


def test_constant_missing_and_no_numbers_to_learn_are_all_right() -> None:
    check_targets("table", [(1_700_000_000.0, 0.1), (np.nan, 0.1)])
    check_targets("table", [(np.nan,)])
    check_targets("table", [])
    with pytest.raises(DataError, match=r"^table: seconds has values"):
        check_targets("table", [(0.0, second) for second in SECONDS], ("none", "seconds"))
