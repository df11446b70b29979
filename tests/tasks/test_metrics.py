"""Metrics equal those of scikit-learn and scipy, target by target, without the missing values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from sliceformer_lab.tasks.metrics import (
    BatchPrecision,
    KnownAccuracy,
    KnownMeanAbsoluteError,
    MeanClassAccuracy,
    MeanLoss,
    MeanOverTargets,
    OneVsRestAUC,
    Score,
    auc,
    average_precision,
    best_thresholds,
    f1_scores,
    log_odds,
    r2,
    rmse,
    spearman,
)
from sliceformer_lab.tasks.targets import Labels
from sliceformer_lab.training.results.predicted import Names


def with_gaps(targets: np.ndarray, random: np.random.Generator) -> np.ndarray:
    found = targets.astype(np.float32)
    found[random.random(targets.shape) < 0.2] = np.nan
    return found


def in_parts(score: Score, outputs: np.ndarray, targets: np.ndarray) -> float:
    """The metric of a split that comes in four batches."""
    metric = MeanOverTargets(score)
    for rows in np.array_split(np.arange(len(outputs)), 4):
        metric.update(torch.from_numpy(outputs[rows]), torch.from_numpy(targets[rows]))
    return float(metric.compute())


def each_known(score: Callable[..., float], outputs: np.ndarray, targets: np.ndarray) -> float:
    """The mean over targets of another library's score of (targets, outputs)."""
    known = ~np.isnan(targets)
    return float(np.mean([score(targets[k, i], outputs[k, i]) for i, k in enumerate(known.T)]))


@pytest.mark.parametrize(
    ("score", "wanted"),
    [
        (rmse, root_mean_squared_error),
        (r2, r2_score),
        (spearman, lambda targets, outputs: spearmanr(targets, outputs).statistic),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e-22, 1e18])
def test_scores_of_numbers(score: Score, wanted: Callable[..., float], unit: float) -> None:
    random = np.random.default_rng(0)
    targets = with_gaps(random.normal(size=(70, 3)), random)
    outputs = (np.nan_to_num(targets) + random.normal(size=(70, 3))).round(1).astype(np.float32)  # with ties
    targets, outputs = np.float32(unit) * targets, np.float32(unit) * outputs
    exact = each_known(wanted, outputs.astype(np.float64), targets.astype(np.float64))
    assert in_parts(score, outputs, targets) == pytest.approx(exact, rel=1e-4, abs=0)


@pytest.mark.parametrize(("score", "wanted"), [(auc, roc_auc_score), (average_precision, average_precision_score)])
@pytest.mark.parametrize("scale", [1.0, 0.01, 40.0])  # torchmetrics treats numbers between 0 and 1 as probabilities
def test_scores_of_labels(score: Score, wanted: Callable[..., float], scale: float) -> None:
    random = np.random.default_rng(0)
    targets = with_gaps(random.random((70, 3)) < 0.3, random)
    outputs = np.float32(scale) * (np.nan_to_num(targets) + random.normal(size=(70, 3))).round(1).astype(np.float32)
    found = in_parts(score, outputs, targets)
    assert found == pytest.approx(each_known(wanted, outputs, targets), abs=1e-6)
    one_sided = np.concatenate([targets, np.full((70, 3), [0, 1, np.nan], np.float32)], axis=1)
    assert in_parts(score, np.pad(outputs, ((0, 0), (0, 3))), one_sided) == pytest.approx(found)


def test_precision_of_batches_takes_all_labels_at_five_thresholds() -> None:
    random = np.random.default_rng(0)
    metric, wanted = BatchPrecision(), []
    for _ in range(3):
        targets = with_gaps(random.random((16, 3)) < 0.4, random)
        logits = torch.from_numpy(random.normal(size=(16, 3)).astype(np.float32))
        metric.update(logits, torch.from_numpy(targets))
        known = ~np.isnan(targets)
        scores, labels = logits.sigmoid().numpy()[known], targets[known]
        steps = np.floor(scores * 4) / 4  # the largest threshold of 0, 1/4, ... 1 that a score reaches
        wanted.append(average_precision_score(labels, steps))
    metric.update(torch.zeros(2, 3), torch.zeros(2, 3))  # no true label
    assert float(metric.compute()) == pytest.approx(np.mean(wanted), abs=1e-6)


def test_numbers_that_are_all_equal_have_no_score() -> None:
    equal = torch.ones(5)
    assert r2(torch.randn(5), equal).isnan() and spearman(torch.randn(5), equal).isnan()
    assert r2(equal[:0], equal[:0]).isnan() and spearman(equal[:0], equal[:0]).isnan()


def test_accuracy_of_labels_counts_the_known_ones() -> None:
    metric = KnownAccuracy()
    metric.update(torch.tensor([[3.0, 0.0], [0.2, 0.2]]), torch.tensor([[1.0, 1.0], [0.0, torch.nan]]))
    assert float(metric.compute()) == pytest.approx(1 / 3)


def test_a_batch_without_a_known_target_scores_nothing() -> None:
    known, unknown, outputs = torch.tensor([[1.0], [0.0]]), torch.full((2, 1), torch.nan), torch.ones(2, 1)
    for metric in (KnownAccuracy(), KnownMeanAbsoluteError()):
        metric.update(outputs, unknown)
        metric.update(outputs, known)
        assert float(metric.compute()) == 0.5


def test_a_loss_is_the_mean_over_the_known_targets_of_all_batches() -> None:
    metric = MeanLoss()
    for loss, known in ((2.0, [1] * 7), (5.0, [1, 0]), (torch.nan, [0])):
        metric.update(torch.tensor(loss), torch.tensor(known, dtype=torch.bool))
    assert float(metric.compute()) == (7 * 2 + 5) / 8
    metric.update(torch.tensor(torch.nan), torch.tensor([True]))
    assert metric.compute().isnan()


@pytest.mark.parametrize("classes", [2, 4])
def test_auc_of_classes(classes: int) -> None:
    random = np.random.default_rng(0)
    target = random.integers(classes, size=90)
    logits = random.normal(size=(90, classes)).astype(np.float32)
    logits[np.arange(90), target] += 1
    metric = OneVsRestAUC()
    for rows in np.array_split(np.arange(90), 4):
        metric.update(torch.from_numpy(logits[rows]), torch.from_numpy(target[rows]))
    shares = torch.from_numpy(logits).softmax(1).numpy()
    ranked = shares if classes > 2 else shares[:, 1]
    assert float(metric.compute()) == pytest.approx(roc_auc_score(target, ranked, multi_class="ovr"), abs=1e-6)


def test_auc_of_classes_tells_apart_what_rounds_to_one() -> None:
    logits = torch.tensor([[60.0, 0.0], [50.0, 0.0], [40.0, 0.0], [0.0, 30.0]])
    metric = OneVsRestAUC()
    metric.update(logits, torch.tensor([0, 0, 1, 1]))
    assert float(metric.compute()) == 1.0
    torch.testing.assert_close(log_odds(logits), logits.double() - logits.double().flip(1))


def test_class_accuracy_is_that_of_the_classes_that_occur() -> None:
    metric = MeanClassAccuracy(4)
    predicted, target = torch.tensor([0, 0, 1, 0, 3]), torch.tensor([0, 0, 1, 1, 2])
    for rows in (slice(0, 2), slice(2, 5)):
        metric.update(predicted[rows], target[rows])
    assert float(metric.compute()) == pytest.approx(balanced_accuracy_score(target, predicted))


def test_chance_of_average_precision_is_that_of_the_labels_that_have_one() -> None:
    targets = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, torch.nan]])
    assert Labels(monitor="average_precision").chance(targets) == pytest.approx((1 / 4 + 1 / 3) / 2)


def test_thresholds_have_the_best_f1_of_all() -> None:
    random = np.random.default_rng(1)
    labels = with_gaps(random.random((60, 9)) < np.linspace(0.5, 0.0, 9), random)
    logits = (np.nan_to_num(labels) + random.normal(size=(60, 9))).round(1).astype(np.float32)  # with ties
    found = best_thresholds(torch.from_numpy(logits), torch.from_numpy(labels)).numpy()
    assert found[8] == 0.5  # never true
    for label in range(8):
        known = ~np.isnan(labels[:, label])
        truth, chances = labels[known, label], 1 / (1 + np.exp(-logits[known, label].astype(np.float64)))
        of_all = [f1_score(truth, chances > threshold, zero_division=0) for threshold in (0, *chances)]
        assert f1_score(truth, chances > found[label]) == pytest.approx(max(of_all))


def test_a_label_is_predicted_if_its_probability_is_above_its_own_threshold() -> None:
    for thresholds, predicted in (((0.9, 0.1, 0.5), [0, 1, 0]), ((), [0, 0, 0])):
        (row,) = Labels().outcomes(torch.zeros(1, 3), Names((), ("a", "b", "c"), thresholds))
        assert [row[f"prediction_{name}"] for name in "abc"] == predicted


def test_f1_of_labels_equals_that_of_scikit_learn() -> None:
    random = np.random.default_rng(2)
    labels, logits = random.random((80, 4)) < 0.3, random.normal(size=(80, 4))
    labels[:, 3] = np.arange(80) == 7  # true once
    thresholds = np.array([0.3, 0.5, 0.6, 0.9])
    predicted = 1 / (1 + np.exp(-logits)) > thresholds
    found = f1_scores(torch.from_numpy(logits), torch.from_numpy(labels).float(), torch.from_numpy(thresholds))
    for name in ("micro", "macro"):
        assert found[f"f1_{name}"] == pytest.approx(f1_score(labels, predicted, average=name), rel=1e-6)
    gaps = torch.from_numpy(labels).float()
    gaps[:, 0] = torch.nan  # nothing is known: the others count
    alone = f1_scores(torch.from_numpy(logits), gaps, torch.from_numpy(thresholds))
    assert alone["f1_macro"] == pytest.approx(f1_score(labels[:, 1:], predicted[:, 1:], average="macro"), rel=1e-6)
