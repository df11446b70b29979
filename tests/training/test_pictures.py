"""A run's pictures suit what its task predicts, and one that cannot be drawn is a warning."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from support import task_modules
from support.plans import build_task
from torch import Tensor

from sliceformer_lab.config.compose import compose_root
from sliceformer_lab.data.base import DataModule
from sliceformer_lab.data.spec import Example
from sliceformer_lab.measures import drawing, result_plots
from sliceformer_lab.runs.folder import pictures_in
from sliceformer_lab.tasks.targets import Classes
from sliceformer_lab.training.interfaces import TaskModule
from sliceformer_lab.training.results.predicted import ScoredSplit
from sliceformer_lab.training.results.record import draw_pictures

CLASSES, NUMBERS = {"confusion.png", "mistakes.png"}, {"predicted.png", "mistakes.png"}
EXPECTED = {
    **dict.fromkeys(("digits", "text_csv", "point_folder", "series_csv"), CLASSES),
    "molecule_csv": NUMBERS,
    "peptides_func": {"roc.png"},
    "mask_folder": {"masks.png"},
    "shapenet_part": set(),
}


def model(task: str, data: DataModule) -> TaskModule:
    """The task for these data, with a small encoder."""
    return build_task(compose_root([f"task={task}", "attention=mha", "encoder=tiny"]), data.spec)


def predictions(data: DataModule) -> dict[str, dict[str, Tensor]]:
    """Predictions of the test split as a task keeps them: random, so most classes are wrong."""
    generator = torch.Generator().manual_seed(0)
    (loader,) = data.test_dataloader()
    targets = torch.cat([batch.target for batch in loader])
    kept = torch.randint(2, targets.shape, generator=generator, dtype=torch.uint8)  # parts of points
    if targets.is_floating_point():
        kept = torch.randn(targets.shape, generator=generator)
    elif targets.ndim == 1:
        kept = torch.randn(len(targets), data.spec.num_classes, generator=generator)
    return {"test": {"ids": torch.arange(len(targets)), "targets": targets, "logits": kept}}


@pytest.mark.parametrize("task", EXPECTED)
def test_every_kind_of_task_gets_the_pictures_that_make_sense_with_names_that_can_be_written(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(drawing, "names_in_picture", lambda names: (asked.append(names) or names, ""))
    (tmp_path / "data").mkdir()
    data = task_modules.ready(task, tmp_path / "data")
    write_log(tmp_path)
    draw_pictures(tmp_path, model(task, data), data, predictions(data))
    assert [file.name for file in pictures_in(tmp_path)] == [*sorted(EXPECTED[task]), "curves.png"]
    assert caplog.messages == [] and len(asked) == len(EXPECTED[task])


def test_a_model_without_mistakes_has_no_picture_of_them(tmp_path: Path) -> None:
    data = task_modules.ready("digits", tmp_path)
    write_log(tmp_path)
    (tmp_path / "mistakes.png").write_bytes(b"of an earlier scoring")
    targets = predictions(data)["test"]["targets"]
    right = {"ids": torch.arange(len(targets)), "targets": targets, "logits": torch.eye(10)[targets]}
    draw_pictures(tmp_path, model("digits", data), data, {"val": right})
    assert not (tmp_path / "mistakes.png").exists() and (tmp_path / "confusion.png").is_file()


def test_examples_that_cannot_be_read_cost_one_picture_and_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = task_modules.ready("digits", tmp_path)
    write_log(tmp_path)

    def vanished(stage: str, rows: list[int]) -> list[Example]:
        raise FileNotFoundError("the disk is gone")

    monkeypatch.setattr(data, "examples", vanished)
    with caplog.at_level(logging.WARNING):
        draw_pictures(tmp_path, model("digits", data), data, predictions(data))
    assert [file.name for file in sorted(tmp_path.glob("*.png"))] == ["confusion.png", "curves.png"]
    assert caplog.messages == ["mistakes.png stopped (FileNotFoundError: the disk is gone); the run goes on without it"]


def test_the_mistakes_are_the_surest_wrong_answers_and_their_own_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = task_modules.ready("digits", tmp_path)
    write_log(tmp_path)
    found = predictions(data)
    found["test"]["ids"] = torch.arange(len(found["test"]["ids"])).flip(0)  # not the order of the split
    asked: list[int] = []
    whole = data.examples
    monkeypatch.setattr(data, "examples", lambda stage, rows: (asked.extend(rows), whole(stage, rows))[1])
    draw_pictures(tmp_path, model("digits", data), data, found)
    chances, answers = found["test"]["logits"].softmax(dim=1).max(dim=1)
    wrong = np.flatnonzero((answers != found["test"]["targets"]).numpy())
    surest = wrong[np.argsort(-chances.numpy()[wrong])][:12]
    assert asked == found["test"]["ids"][surest].tolist()


def test_a_mistake_names_the_probability_of_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = task_modules.ready("digits", tmp_path)
    ids, targets, logits = (found.numpy() for found in predictions(data)["test"].values())
    drawn: list[result_plots.Mistake] = []
    monkeypatch.setattr(result_plots, "plot_mistakes", lambda mistakes, *_: drawn.extend(mistakes))
    Classes(10).pictures(ScoredSplit(data, "test", ids, targets, logits))["mistakes.png"](tmp_path / "mistakes.png")
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    surest = np.sort(chances.max(axis=1)[chances.argmax(axis=1) != targets])[::-1][:12]
    assert [mistake.answer.split()[-1] for mistake in drawn] == [f"({chance:.0%})" for chance in surest]


def write_log(folder: Path) -> None:
    (folder / "csv" / "version_0").mkdir(parents=True)
    (folder / "csv" / "version_0" / "metrics.csv").write_text("epoch,step,train/loss\n0,1,2.0\n1,2,1.0\n")
