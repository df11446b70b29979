"""Segmentation of images: metrics, the head, training, references and prediction."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.metrics import jaccard_score
from support import official_files
from support.plans import small_task
from support.run_folders import read_summary

from sliceformer_lab.__main__ import main
from sliceformer_lab.batch import NO_CLASS, Batch
from sliceformer_lab.commands.predict.mask_files import MaskFiles
from sliceformer_lab.data.spec import DataSpec
from sliceformer_lab.errors import ConfigError, Interrupted
from sliceformer_lab.tasks.segmentation import ImageSegmentation, class_iou, commonest_class
from sliceformer_lab.training.saved.saved_run import load_run

SPEC = DataSpec(name="mine", num_classes=3, image_size=(16, 24), channels=3, targets="pixels")


def task(*words: str, spec: DataSpec = SPEC) -> ImageSegmentation:
    built: ImageSegmentation = small_task("task=mask_folder", *words, data=spec)
    return built


def drawn(*shape: int, classes: int = 5, unknown: float = 0.2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    found = torch.randint(classes, shape, generator=generator)
    return found.masked_fill(torch.rand(shape, generator=generator) < unknown, NO_CLASS)


def test_mean_iou_of_batches_is_that_of_the_whole_split() -> None:
    target, predicted = drawn(7, 4, 6), drawn(7, 4, 6, unknown=0).flip(0).clamp(max=3)
    target[target == 3] = 2  # class 3 is predicted and never true, class 5 of six is neither
    known = target != NO_CLASS
    ious = jaccard_score(target[known], predicted[known], labels=range(5), average=None)
    metric = task(spec=replace(SPEC, num_classes=6)).build_metrics()["mean_iou"]
    for part in (slice(0, 1), slice(1, 5), slice(5, 7)):
        metric.update(predicted[part], target[part])
    assert float(metric.compute()) == pytest.approx(ious.mean())
    by_class = class_iou(predicted, target, 6)
    assert by_class[:5].tolist() == pytest.approx(ious) and bool(by_class[5].isnan())


def test_accuracy_counts_pixels_with_a_class_only() -> None:
    target, predicted = drawn(3, 16, 24, classes=3), drawn(3, 16, 24, classes=3, unknown=0).flip(1)
    metrics = task().build_metrics()
    metrics.update(predicted, target)
    known = target != NO_CLASS
    assert float(metrics.compute()["accuracy"]) == pytest.approx(float((predicted == target)[known].float().mean()))


def test_the_loss_is_the_mean_over_known_pixels_and_zero_without_any() -> None:
    model, target = task(), drawn(2, 16, 24, classes=3)
    logits = torch.randn(2, 3, 16, 24)
    each = -logits.log_softmax(1).movedim(1, -1)
    known = target != NO_CLASS
    by_hand = each[known].gather(1, target[known][:, None]).mean()
    torch.testing.assert_close(model.loss(logits, target), by_hand)
    assert model.loss(logits, torch.full_like(target, NO_CLASS)) == 0


def test_the_place_with_no_mask_has_the_commonest_class_of_all() -> None:
    masks = torch.tensor([[[0, 2, NO_CLASS]], [[1, 2, NO_CLASS]], [[1, 0, NO_CLASS]]])
    assert commonest_class(masks).tolist() == [[1, 2, 0]]  # 0 and 1 and 2 occur twice each: the first


@pytest.mark.parametrize("order", ["raster", "hilbert", "random_fixed"])
def test_a_pixel_reads_its_own_patch_whatever_the_order_of_the_tokens(order: str) -> None:
    model = task("attention=identity", "task.patch_size=4", "task.stem=patch", spec=replace(SPEC, token_order=order))
    images = torch.zeros(1, 3, 16, 24, requires_grad=True)
    model(Batch.unlabelled(images))[0, 0, 9, 14].backward()
    assert images.grad is not None
    rows, columns = images.grad.abs().sum(dim=(0, 1)).nonzero().T
    # bilinear interpolation reads the nearest two patches of each axis
    assert {8, 11} <= set(rows.tolist()) <= set(range(4, 12)) and {12, 15} <= set(columns.tolist()) <= set(
        range(12, 20)
    )


def test_data_of_another_kind_are_refused() -> None:
    whole = DataSpec(name="digits", num_classes=10, image_size=(8, 8), channels=1)
    with pytest.raises(ConfigError, match="digits has no images with a class for each pixel; choose another task"):
        task(spec=whole)
    with pytest.raises(ConfigError, match="mine has no images with a class, numbers or labels each; choose another"):
        small_task("task=digits", data=SPEC)


def test_a_forest_of_pixels_learns_bright_and_dark() -> None:
    rng = np.random.default_rng(0)
    truth = rng.random((6, 12, 16)) < 0.5
    pictures = [(150 * mask[..., None] + rng.integers(60, size=(12, 16, 3))).astype(np.uint8) for mask in truth]
    masks = np.where(rng.random(truth.shape) < 0.1, NO_CLASS, truth)
    (forest,) = task().simple_models(None, 4)  # type: ignore[arg-type]  # it reads neither
    found = forest.fit_and_predict(pictures[:4], masks[:4], {"test": pictures[4:]})["test"]
    assert found.shape == (2, 12, 16) and (found == truth[4:]).mean() > 0.95


def test_a_run_trains_scores_draws_and_predicts_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "halves"
    official_files.mask_folder(data)
    words = [f"data.root={data}", "data.processes=1", "reference=null", "data.batch_size=8", "data.pad=0"]
    words += ["task=mask_folder", "attention=csp", "data.mirror=false", "optim.lr=1e-2", "optim.steps=60"]
    assert main([*words, "optim.val_every=30", "callbacks=minimal", f"paths.outputs={tmp_path / 'outputs'}"]) == 0
    (folder,) = (tmp_path / "outputs").glob("*/*/*")
    summary = read_summary(folder)
    assert summary["best"]["metric"] == "val/mean_iou" and summary["metrics"]["test/mean_iou"] > 0.8
    assert summary["chance"] < 0.8 and set(summary["iou_by_class"]) == {"dark", "bright"}
    assert (folder / "masks.png").is_file() and not (folder / "predictions.csv").exists()
    run = load_run(folder)
    saved = {name: torch.from_numpy(run.predictions[f"test_{name}"]) for name in ("targets", "logits")}
    iou = class_iou(saved["logits"], saved["targets"], 2).nanmean()
    assert float(iou) == pytest.approx(summary["metrics"]["test/mean_iou"])

    for file in (data / "masks").iterdir():  # the classes in another order: pixels without one stay without
        mask = np.asarray(Image.open(file))
        swapped = np.where(mask == 255, mask, 1 - mask)
        swapped[:, -1] = 255  # dark ones, in a picture whose first class is bright
        Image.fromarray(swapped).save(file)
    (data / "classes.txt").write_text("bright\ndark\n")
    assert main(["mode=eval", f"resume={folder}"]) == 0
    again = json.loads((folder / "eval.json").read_text())["metrics"]["test/mean_iou"]
    assert again == pytest.approx(summary["metrics"]["test/mean_iou"], abs=0.01)

    official_files.mask_folder(tmp_path / "new", count=2, size=(48, 64))
    assert main(["predict", f"resume={folder}", f"input={tmp_path / 'new' / 'images'}"]) == 0
    table = pd.read_csv("predictions.csv")
    assert table["mask"].tolist() == ["predictions_masks/0.png", "predictions_masks/1.png"]
    np.testing.assert_allclose(table["share_dark"] + table["share_bright"], 1, atol=1e-6)
    for file in table["mask"]:
        mask = np.asarray(Image.open(file))
        truth = np.asarray(Image.open(tmp_path / "new" / "masks" / Path(file).name))
        assert mask.shape == (48, 64) and (mask == truth)[truth != 255].mean() > 0.8
    assert main(["predict", f"resume={folder}", f"input={tmp_path / 'new' / 'images'}", "output=again.csv"]) == 0
    assert main(["predict", f"resume={folder}", f"input={tmp_path / 'new' / 'images'}"]) == 1
    (masks,) = run.predict([np.zeros((30, 20, 3), np.uint8)])["mask"]
    assert masks.shape == (30, 20)

    words = ["predict", f"resume={folder}", f"input={tmp_path / 'new' / 'images'}", "output=stopped.csv"]
    for owner, method in ((MaskFiles, "write"), (os, "fsync")):  # after a mask, and before the table has its name
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, stopped_after(getattr(owner, method)))
            assert main(words) == 143
    assert main(words) == 0 and not list(tmp_path.glob("*.unfinished")), "it can be started again"
    assert sorted(file.name for file in Path("stopped_masks").iterdir()) == ["0.png", "1.png"]
    words[2] = f"input={tmp_path / 'stopped_masks'}"
    assert main([*words, "overwrite=true"]) == 1


def stopped_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function after which a stop signal arrives."""

    def stop(*arguments: Any) -> None:
        function(*arguments)
        raise Interrupted("stopped by SIGTERM", signal.SIGTERM)

    return stop
