"""The scores of single examples, whose mean is a metric of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.run_folders import summary_of

from sliceformer_lab.measures.statistics import estimate_crossed
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.runs.example_scores import example_scores
from sliceformer_lab.tasks.segmentation import class_iou


def masks(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and true masks of 5 classes that agree in most pixels of some masks; class 4 never occurs."""
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 4, (count, 6, 8))
    right = rng.random((count, 6, 8)) < rng.random((count, 1, 1))
    predicted = np.where(right, targets, rng.integers(0, 4, targets.shape)).astype(np.uint8)
    targets[rng.random(targets.shape) < 0.1] = -100
    return predicted, targets


def mean_iou(predicted: np.ndarray, targets: np.ndarray) -> float:
    return float(class_iou(torch.from_numpy(predicted), torch.from_numpy(targets), 5).nanmean())


def record(folder: Path, predicted: np.ndarray, targets: np.ndarray, value: float) -> RunRecord:
    ids = np.arange(len(targets))
    np.savez(folder / "predictions.npz", test_ids=ids, test_targets=targets, test_logits=predicted)
    return RunRecord(folder, "run", summary_of({"metrics": {"test/mean_iou": value}}), "ok")


def test_mean_iou_is_the_mean_of_the_shares_of_its_masks(tmp_path: Path) -> None:
    predicted, targets = masks()
    found = example_scores(record(tmp_path, predicted, targets, mean_iou(predicted, targets)), "test/mean_iou")
    assert found[1].shape == (60,)
    assert found[1].mean() == pytest.approx(mean_iou(predicted, targets), rel=1e-6)


def test_shares_of_mean_iou_spread_as_the_mean_iou_of_drawn_masks_does(tmp_path: Path) -> None:
    predicted, targets = masks()
    found = example_scores(record(tmp_path, predicted, targets, mean_iou(predicted, targets)), "test/mean_iou")
    interval = estimate_crossed(found[1][None]).interval()
    rng = np.random.default_rng(1)
    drawn = [mean_iou(predicted[rows], targets[rows]) for rows in rng.integers(60, size=(1000, 60))]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_predictions_that_do_not_give_the_recorded_mean_iou_have_no_shares(tmp_path: Path) -> None:
    predicted, targets = masks()
    run = record(tmp_path, predicted, targets, mean_iou(predicted, targets) + 0.01)
    assert example_scores(run, "test/mean_iou") is None
