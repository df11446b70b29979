"""Every data module says where its examples come from, what they are, and what classes and targets are called."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import task_modules
from support.plans import encoded
from test_text import TEXTS
from torch.testing import assert_close

from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import LoadPlan
from sliceformer_lab.data.splits import STAGES, Stage
from sliceformer_lab.data.strings import Strings


def everything(data: DataModule) -> dict[str, Any]:
    """The content of every example of all splits by its place."""
    found = [e for stage in STAGES for e in data.examples(stage, range(len(data.splits[stage])))]
    by_place = {example.place: example.content for example in found}
    assert len(by_place) == len(found), "two examples have one place"
    return by_place


@pytest.fixture(scope="module", params=task_modules.SMALL)
def task_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, DataModule]:
    """A task, the folder of its files, and its data."""
    folder = tmp_path_factory.mktemp("data")
    return request.param, folder, task_modules.ready(request.param, folder)


def test_every_example_has_a_place_of_its_own_and_names_fit_the_sizes(
    task_data: tuple[str, Path, DataModule],
) -> None:
    task, folder, data = task_data
    found = everything(data)
    assert all(str(folder) not in place for place in found)
    spec = data.spec
    names = set(data.class_names())
    assert len(names) == spec.num_classes or (len(names) < spec.num_classes and "imagenet" in task)
    assert len(set(data.target_names())) == spec.num_targets
    if data.content_kind == "picture" and spec.image_size is not None:
        batch = next(iter(data.train_dataloader()))
        assert batch.inputs.shape[1:] == (spec.channels, *spec.image_size) and batch.inputs.isfinite().all()
    content = next(iter(found.values()))
    match data.content_kind:
        case "text" | "smiles":
            assert isinstance(content, str) and content
        case "picture":
            assert content.dtype == np.uint8 and content.shape[2:] in ((), (3,))
        case "cloud":
            assert content.ndim == 2 and content.shape[1] in (3, 6)
        case None:
            assert content is None and (task in ("zinc", "pyg", "text_lm") or task.startswith("probe_"))


def test_a_new_content_is_encoded_as_the_same_example_is_in_evaluation(
    task_data: tuple[str, Path, DataModule],
) -> None:
    task, _, data = task_data
    stage: Stage = "test" if len(data.splits["test"]) else "val"
    rows = list(range(min(4, len(data.splits[stage]))))
    if not data.takes_new:
        generated = task.startswith("probe_") or task in ("lra_pathfinder", "lra_pathx")
        assert generated or task in ("lra_image", "lra_retrieval", "zinc", "pyg", "shapenet_part", "text_lm")
        return
    contents = [example.content for example in data.examples(stage, rows)]
    expected, found = data.splits[stage].batch(rows), encoded(data, contents)
    assert len(found) == len(rows)
    assert_close(found.inputs, expected.inputs)
    for part in ("padding", "structure"):
        given, wanted = getattr(found, part), getattr(expected, part)
        assert_close(None if given is None else vars(given), None if wanted is None else vars(wanted))


def test_texts_of_a_table_are_whole_and_named_by_their_line(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    quoted = (text.replace('"', '""').replace("\x00", "") for text in TEXTS * 4)
    path.write_text("text,label\n" + "".join(f'"{text}",{"ab"[i % 2]}\n' for i, text in enumerate(quoted)), "utf-8")
    for tokens in ("bpe", "bytes"):
        data = task_modules.ready("text_csv", tmp_path, tokens=tokens, max_len=3)
        found = everything(data)
        assert found["texts.csv, line 2"] == TEXTS[0]  # and not its first three tokens
        assert sorted(found.values()) == sorted(text.replace("\x00", "") for text in TEXTS * 4)
        assert data.class_names() == ("a", "b")


def test_pictures_are_named_by_their_files_or_numbered_in_their_published_split(tmp_path: Path) -> None:
    for name in ("own", "cifar"):
        (tmp_path / name).mkdir()
    for place, picture in everything(task_modules.ready("image_folder", tmp_path / "own")).items():
        np.testing.assert_array_equal(picture, np.asarray(Image.open(tmp_path / "own" / place).convert("RGB")))
    data = task_modules.ready("cifar10", tmp_path / "cifar")
    assert data.places("test", [3])[0] == "test picture 3"
    assert all(place.startswith("training picture ") for place in data.places("val", range(len(data.splits["val"]))))
    (example,) = data.examples("test", [3])
    assert isinstance(example.content, np.ndarray)
    np.testing.assert_array_equal(example.content, data.sources["test"].pixels[3].permute(1, 2, 0))  # type: ignore[attr-defined]


@pytest.mark.parametrize("task", ["cifar10", "lra_text", "modelnet40"])
def test_validation_examples_follow_split_seed_and_not_the_runs_seed(task: str, tmp_path: Path) -> None:
    def digest(split_seed: int, run_seed: int = 0) -> str:
        return task_modules.ready(task, tmp_path, LoadPlan(seed=run_seed), split_seed=split_seed).digests()["val"]

    assert digest(3) == digest(3, run_seed=99) != digest(4)


def test_strings_are_read_back_and_not_copied_to_workers(tmp_path: Path) -> None:
    Strings.write(tmp_path, "words", [*TEXTS, "", "last"])
    found = Strings.open(tmp_path, "words")
    assert [found[i] for i in range(len(found))] == [*TEXTS, "", "last"]
    sent = pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL)
    assert len(sent) < 300 and pickle.loads(sent)[1] == TEXTS[1]
