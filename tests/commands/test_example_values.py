"""Values of examples that give a metric its variance, from saved predictions."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.run_folders import summary_of, write_run

from sliceformer_lab.commands.compare.compare_options import CompareOptions
from sliceformer_lab.commands.compare.compare_rows import checked_rows
from sliceformer_lab.commands.compare.examples import ExampleScores, paired_estimate
from sliceformer_lab.commands.compare.search import Point, Trial
from sliceformer_lab.commands.compare.trials_of_rows import _has_learned
from sliceformer_lab.config.checked import check_config
from sliceformer_lab.config.explain import job_config
from sliceformer_lab.measures.statistics import estimate_crossed, estimate_over_splits
from sliceformer_lab.runs.collect import RunRecord
from sliceformer_lab.training.goal import Goal

CLASSES, EXAMPLES = 10, 400


@pytest.fixture(scope="module")
def scores() -> ExampleScores:
    return ExampleScores(check_config(job_config(["task=digits", "attention=identity"])))


def run(
    folder: Path, scores: ExampleScores, skill: float, seed: int, classes: int = CLASSES, count: int = EXAMPLES
) -> RunRecord:
    """A run whose logits favour the true class by `skill`; the same examples are hard for all seeds."""
    folder.mkdir()
    shared, own = np.random.default_rng(99), np.random.default_rng(seed)
    targets = shared.integers(0, classes, count)
    logits = shared.normal(size=(count, CLASSES)) + 0.5 * own.normal(size=(count, CLASSES))
    logits[np.arange(count), targets] += skill
    parts = {"ids": np.arange(count), "targets": targets, "logits": logits.astype(np.float32)}
    np.savez(folder / "predictions.npz", **{f"{split}_{k}": v for split in ("val", "test") for k, v in parts.items()})
    metrics = scores._task.build_metrics()
    metrics.update(torch.from_numpy(parts["logits"]), torch.from_numpy(targets))
    values = {f"{split}/{k}": float(v) for split in ("val", "test") for k, v in metrics.compute().items()}
    facts = {"metrics": values, "protocol": {"num_train": 800, "num_test": 400}}
    return RunRecord(folder, folder.name, summary_of(facts), "ok")


def test_a_metric_that_is_no_mean_gets_the_variance_of_its_resampled_examples(
    tmp_path: Path, scores: ExampleScores
) -> None:
    one = run(tmp_path / "a", scores, 1.5, 0)
    values = scores.of(one, "test/auc")
    recorded = one.metric("test/auc")
    assert values[1].mean() == pytest.approx(recorded, abs=0.01)
    with np.load(one.folder / "predictions.npz") as arrays:
        targets, logits = torch.from_numpy(arrays["test_targets"]), torch.from_numpy(arrays["test_logits"])
    generator = np.random.default_rng(0)
    drawn = [torch.from_numpy(generator.integers(EXAMPLES, size=EXAMPLES)) for _ in range(100)]
    metric = scores._task.build_metrics()["auc"]
    spread = np.std([float(metric(logits[rows], targets[rows])) for rows in drawn])
    assert estimate_crossed(values[1][None]).variance ** 0.5 == pytest.approx(spread, rel=0.3)


def test_paired_differences_have_a_variance_over_seeds_and_examples_or_say_that_they_have_not(
    tmp_path: Path, scores: ExampleScores
) -> None:
    ours = {seed: run(tmp_path / f"a{seed}", scores, 1.5, seed) for seed in range(3)}
    theirs = {seed: run(tmp_path / f"b{seed}", scores, 1.0, 10 + seed) for seed in range(3)}
    for metric in ("test/auc", "test/accuracy"):
        pairs = {seed: float(ours[seed].metric(metric) or 0) - float(theirs[seed].metric(metric) or 0) for seed in ours}
        estimate = paired_estimate(scores, ours, theirs, pairs, metric)
        assert estimate.over == "seeds and examples"
        assert estimate.mean == pytest.approx(np.mean(list(pairs.values())), abs=1e-6)
    (theirs[1].folder / "predictions.npz").unlink()
    alone = paired_estimate(ExampleScores(scores._plan), ours, theirs, pairs, metric)
    assert alone.over == "seeds"
    splits = estimate_over_splits([*pairs.values()], [*pairs], ours[0].size_per_train("test"))
    assert splits.variance == pytest.approx(alone.variance * (1 + 3 * 400 / 800))
    folds = {
        seed: replace(one, summary=one.summary.model_copy(update={"split_seed": seed})) for seed, one in ours.items()
    }
    assert paired_estimate(scores, folds, theirs, pairs, metric) == splits
    shared = {"digests": {"test": "published"}}  # the split seed chooses only validation examples
    folds = {seed: replace(one, summary=one.summary.model_copy(update=shared)) for seed, one in folds.items()}
    assert paired_estimate(scores, folds, theirs, pairs, metric) == estimate


def test_above_the_constant_prediction_needs_more_than_a_lucky_sample(tmp_path: Path, scores: ExampleScores) -> None:
    commonest, skilled = (
        [run(tmp_path / f"{name}{seed}", scores, skill, seed, classes=2, count=100) for seed in range(2)]
        for name, skill in (("c", 1.7), ("s", 4.0))
    )
    for runs, has_learned in ((commonest, False), (skilled, True)):
        estimate = scores.above_constant(runs, "val/accuracy", 1.0, 2)
        assert (estimate.lower_limit() > 0) == has_learned, estimate
    single = [run(tmp_path / f"one{seed}", scores, 4.0, seed, count=1) for seed in range(2)]
    assert scores.above_constant(single, "val/accuracy", 1.0, 2) is None
    one_diverged = scores.above_constant(skilled[:1], "val/accuracy", 1.0, 2)
    assert one_diverged.mean == pytest.approx(scores.above_constant(skilled[:1], "val/accuracy", 1.0, 1).mean / 2)
    assert one_diverged.lower_limit() < 0 < scores.above_constant(skilled[:1], "val/accuracy", 1.0, 1).lower_limit()


def test_a_diverged_run_does_not_show_that_a_row_of_numbers_has_learned(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["text,size", *(f"{'ab' * number},{number}" for number in range(1, 61))]))
    words = ("task=text_csv", f"data.file={table}", "data.targets=[size]")
    options = CompareOptions(subject="csp", against=("identity",), folder=str(tmp_path), words=words)
    (row, _), _ = checked_rows(options)
    point = Point(1e-3)
    known, diverged = (tmp_path / row.trial(point, seed).name for seed in options.tuning_seeds)
    targets = np.arange(40, dtype=np.float32)[:, None]
    for skill, has_learned in ((0.0, False), (0.9, True)):
        outputs = 19.5 + skill * (targets - 19.5)  # without skill the best constant
        error = float(np.abs(outputs - targets).mean())
        write_run(known, "csp", 0, metrics={"val/mae": error})
        np.savez(known / "predictions.npz", val_ids=np.arange(40), val_targets=targets, val_logits=outputs)
        write_run(diverged, "csp", 1, 0.9 if has_learned else None, metrics={"val/mae": error})
        if has_learned:
            shutil.copy(known / "predictions.npz", diverged)
        trial = Trial(point, (error, error), lost=int(not has_learned))
        assert _has_learned(tmp_path, row, [trial], Goal("mae", "min"), ExampleScores(row.plan)) == has_learned
