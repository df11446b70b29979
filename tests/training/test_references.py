"""References of a run: simple models on the same split, within their time, and once per data and split."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from support.plans import run
from support.run_folders import read_summary
from support.runs import small_config
from torchmetrics import MeanAbsoluteError, PearsonCorrCoef

from sliceformer_lab.config.checked import RunPlan, check_config
from sliceformer_lab.measures.simple_models import ClassModel, TargetModel, classifiers_of, regressors_of
from sliceformer_lab.training import build
from sliceformer_lab.training.results import references as module
from sliceformer_lab.training.results.references import below_reference, difference_from, references

LONG = 1e4  # seconds of a run whose tenth is enough for any model here


def digits(folder: Path, *words: str) -> tuple[RunPlan, Any, Any, dict[str, dict[str, torch.Tensor]]]:
    """Plan, data and task of a digits run, and predictions with the ids and targets that references read."""
    sizes = ("data.limit_train=600", "data.limit_eval=null")
    plan = check_config(small_config("task=digits", *sizes, f"paths.data={folder}", *words))
    data = build.build_data(plan)
    task = build.build_task(plan, data.spec)
    data.setup()
    rows = {split: torch.arange(len(data.splits[split])) for split in ("val", "test")}
    predictions = {
        split: {"ids": ids, "targets": data.splits[split].targets_at(ids.tolist())} for split, ids in rows.items()
    }
    return plan, data, task, predictions


def test_reference_is_scored_like_a_run_and_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = digits(tmp_path)
    constant, simple = references(*arguments, LONG)
    targets = arguments[3]["test"]["targets"]
    train = arguments[1].splits["train"]
    commonest = int(train.targets_at(list(range(len(train)))).bincount().argmax())
    assert constant["name"] == "commonest class"
    assert constant["metrics"]["test/accuracy"] == pytest.approx(float((targets == commonest).float().mean()))
    assert simple["name"] == "HOG + support vectors" and simple["metrics"]["test/accuracy"] > 0.95
    assert simple["metrics"].keys() == constant["metrics"].keys() and simple["num_train"] == 600
    monkeypatch.setattr(module, "_fit_model", None)  # a second fit would fail
    assert references(*digits(tmp_path), LONG)[1] == simple
    other = digits(tmp_path, "data.split_seed=10")  # another split of the same sizes is another fit
    assert other[1].sizes() == arguments[1].sizes() and "skipped" in references(*other, LONG)[1]
    monkeypatch.setattr(type(arguments[1]), "fingerprint", lambda _: {"sha256": "of other pictures"})
    assert "skipped" in references(*arguments, LONG)[1]
    monkeypatch.undo()
    monkeypatch.setattr(module, "_fit_model", None)
    fewer = {split: {name: each[:64] for name, each in parts.items()} for split, parts in arguments[3].items()}
    assert "skipped" in references(*arguments[:3], fewer, LONG)[1]  # as after trainer.limit_val_batches=1


def test_a_reference_says_which_part_it_learned_from_and_is_scored_on_every_test_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REFERENCE_EXAMPLES", 100)  # fewer than there are test examples
    plan, data, task, predictions = digits(tmp_path)
    targets = predictions["test"]["targets"]
    predictions["test"]["logits"] = torch.nn.functional.one_hot(targets, 10).float()  # a perfect run
    _, simple = references(plan, data, task, predictions, LONG)
    assert simple["name"] == "HOG + support vectors (100 of 600 examples)"
    (kept,) = (tmp_path / "references").glob("*.npy")
    right = torch.from_numpy(np.load(kept)).argmax(dim=1) == targets
    assert len(right) == 299 and simple["metrics"]["test/accuracy"] == pytest.approx(float(right.float().mean()))
    assert simple["difference"]["value"] == pytest.approx(1 - float(right.float().mean()))


def test_each_reference_has_half_a_minute_or_a_tenth_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, limits = digits(tmp_path), []

    def fitted(model: Any, *rest: Any) -> dict[str, Any]:
        limits.append(rest[-1])
        return {"name": model.name, "skipped": "not now"}

    with monkeypatch.context() as patch:
        patch.setattr(module, "_fit_model", fitted)
        two = [ClassModel(features, 10) for features in classifiers_of("smiles", 10)]
        patch.setattr(type(arguments[2]), "simple_models", lambda *_: two)
        found = references(*arguments, 1.0)
        assert [row["name"] for row in found[1:]] == [model.name for model in two], "the strongest comes last"
        references(*arguments, 1000.0)
    assert limits == [30.0, 30.0, 100.0, 100.0]
    monkeypatch.setattr(module, "MIN_REFERENCE_S", 0.1)
    (_, late) = references(*arguments, 1.0)
    assert late["skipped"].startswith("it takes longer than 0") and not (tmp_path / "references").exists()


def test_failing_reference_is_a_line_and_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data, task, predictions = digits(tmp_path)
    monkeypatch.setattr(type(data), "examples", lambda *_: (_ for _ in ()).throw(OSError("disk gone")))
    assert references(config, data, task, predictions, LONG)[1]["skipped"] == "OSError: disk gone"


def test_a_run_below_its_references_is_warned_and_told_where_no_difference_is_shown(tmp_path: Path) -> None:
    task, metrics = digits(tmp_path)[2], {"test/accuracy": 0.9}
    ridge = {"name": "ridge", "metrics": metrics, "difference": {"place": "neither ahead nor behind"}}
    forest = {"name": "forest", "metrics": metrics, "difference": {"place": "behind"}}
    rows = [forest, ridge, {"name": "late", "skipped": "why"}]
    (warning,) = below_reference(task, {"test/accuracy": 0.85}, rows)
    assert warning.endswith("0.8500, forest 0.9000, ridge 0.9000 (no difference is shown) on the same split")
    for name, score in (("accuracy", 0.95), ("accuracy", 0.9), ("accuracy_best_test_epoch", 0.85)):
        assert below_reference(task, {f"test/{name}": score}, rows) == []


@pytest.mark.parametrize(("wrong", "place"), [(0, "ahead"), (25, "neither ahead nor behind"), (60, "behind")])
def test_a_run_is_ahead_of_a_reference_behind_it_or_neither_on_the_same_examples(
    wrong: int, place: str, tmp_path: Path
) -> None:
    _, _, task, predictions = digits(tmp_path)
    test = predictions["test"]
    right = torch.nn.functional.one_hot(test["targets"], 10).float()
    test["logits"], theirs = right.clone(), right.clone()
    test["logits"][:wrong] = 1 - right[:wrong]
    theirs[100:125] = 1 - right[100:125]
    found = difference_from(task, predictions, theirs.numpy())["difference"]
    assert found["place"] == place and found["value"] == pytest.approx((25 - wrong) / len(right))
    assert found["low"] < found["value"] < found["high"]
    deviation = ((25 + wrong) / len(right) - found["value"] ** 2) ** 0.5  # of an example's difference
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * deviation / len(right) ** 0.5, rel=0.2)


def test_an_error_is_better_where_it_is_smaller_and_missing_outputs_have_no_difference(tmp_path: Path) -> None:
    _, _, task, predictions = digits(tmp_path)
    assert difference_from(task, predictions, np.zeros((5, 10), np.float32)) == {}  # no outputs of the run
    numbers = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    errors = SimpleNamespace(build_metrics=lambda: {"mae": MeanAbsoluteError()}, monitor="mae", monitor_mode="min")
    test = {"test": {"targets": numbers, "logits": numbers + 0.1}}
    assert difference_from(errors, test, (numbers + 0.2).numpy())["difference"]["place"] == "ahead"
    one = {"test": {"targets": predictions["test"]["targets"][:1], "logits": torch.zeros(1, 10)}}
    assert difference_from(task, one, np.zeros((1, 10), np.float32)) == {}, "one example has no interval"
    errors.build_metrics = lambda: {"mae": PearsonCorrCoef()}
    test = {"test": {"targets": numbers[:, 0], "logits": numbers[:, 0]}}
    assert difference_from(errors, test, np.ones(50, np.float32)) == {}, "a constant has no correlation"


def test_a_reference_has_the_scores_of_the_splits_that_the_data_have(tmp_path: Path) -> None:
    *arguments, predictions = digits(tmp_path)
    del predictions["val"]
    row = references(*arguments, predictions, LONG)[1]
    assert {name.partition("/")[0] for name in row["metrics"]} == {"test"}


def test_a_run_has_its_references_in_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_REFERENCE_S", 600.0)
    run(small_config("reference=auto", "data.limit_train=200", f"paths.data={tmp_path}"), tmp_path / "run")
    constant, simple = read_summary(tmp_path / "run")["references"]
    assert constant["name"] == "commonest class" and simple["difference"]["place"] == "behind"


def test_words_decide_texts_and_characters_decide_names() -> None:
    rng = np.random.default_rng(0)
    fill = ["alpha", "beta", "gamma", "delta", "rho", "chi"]
    texts = [" ".join([*rng.choice(fill, 5), word]) for word in ("good", "bad") * 30]
    names = ["".join(rng.choice(list("bcdfg"), 4)) + end for end in ("ina", "ort") * 30]
    targets = np.array([0, 1] * 30)
    for contents in (texts, names):
        model = ClassModel(*classifiers_of("text", 40), 2)
        found = model.fit_and_predict(contents[:40], targets[:40], {"test": contents[40:]})["test"]
        np.testing.assert_array_equal(found.argmax(axis=1), targets[40:])


def test_labels_with_gaps_and_numbers_are_learned_column_by_column() -> None:
    smiles = ["C" * n for n in range(1, 25)] + ["C" * n + "O" for n in range(1, 25)]
    alcohol = np.array([0.0] * 24 + [1.0] * 24)
    gaps = np.where(np.arange(48) % 5 == 0, np.nan, alcohol)
    targets = np.stack([gaps, np.full(48, np.nan)], axis=1)  # nothing is known of the second label
    fingerprints, _ = classifiers_of("smiles", 48)
    logits = TargetModel(fingerprints, has_labels=True).fit_and_predict(smiles, targets, {"test": smiles})["test"]
    np.testing.assert_array_equal(logits[:, 0] > 0, alcohol > 0)
    assert logits.shape == (48, 2) and np.isfinite(logits).all()


def test_one_forest_learns_many_labels_if_all_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    smiles = [f"{'C' * n}{end}" for n in range(1, 25) for end in ("", "O", "N", "S", "Cl")]
    labels = np.array([[float(end in text) for end in ("O", "N", "S", "Cl")] for text in smiles], dtype=np.float32)
    labels = np.hstack([labels, 1 - labels[:, :1]])
    fits: list[tuple[int, ...]] = []
    whole = RandomForestClassifier.fit
    monkeypatch.setattr(RandomForestClassifier, "fit", lambda self, x, y: (fits.append(y.shape), whole(self, x, y))[1])
    model = TargetModel(classifiers_of("smiles", 120)[-1], has_labels=True)
    for number, shapes in ((5, [(120, 5)]), (4, [(120,)] * 4)):
        fits.clear()
        logits = model.fit_and_predict(smiles, labels[:, :number], {"test": smiles})["test"]
        np.testing.assert_array_equal(logits > 0, labels[:, :number] > 0)
        assert fits == shapes


@pytest.mark.parametrize("unit", [2.0**-100, 2.0**-40, 2.0**40])
def test_a_reference_of_numbers_is_the_same_in_any_unit(unit: float) -> None:
    smiles = ["C" * n for n in range(1, 25)] + ["C" * n + "O" for n in range(1, 25)]
    sizes = np.array([[float(len(text))] for text in smiles], dtype=np.float32)
    model = TargetModel(regressors_of("smiles")[-1], has_labels=False)
    numbers = model.fit_and_predict(smiles, sizes, {"test": smiles})["test"]
    assert np.abs(numbers - sizes).mean() < 2
    in_unit = model.fit_and_predict(smiles, sizes * np.float32(unit), {"test": smiles})["test"]
    np.testing.assert_array_equal(in_unit, numbers * unit)


def test_numbers_of_texts_and_pictures_are_learned() -> None:
    rng = np.random.default_rng(0)
    stars = rng.integers(1, 6, 120)
    texts = [" ".join(["good" if i < star else "bad" for i in range(5)] + ["film"]) for star in stars]
    grey = rng.integers(0, 256, 120)
    pictures = [np.full((16, 16), value, dtype=np.uint8) for value in grey]
    for contents, numbers in (("text", stars), ("picture", grey)):
        inputs, targets = (texts if contents == "text" else pictures), numbers[:, None].astype(np.float32)
        deviation = targets.std()
        for features in regressors_of(contents):
            model = TargetModel(features, has_labels=False)
            found = model.fit_and_predict(inputs[:80], targets[:80], {"test": inputs[80:]})["test"]
            assert np.abs(found - targets[80:]).mean() < 0.3 * deviation, model.name
    names = [TargetModel(each, has_labels=False).name for each in regressors_of("picture")]
    assert names == ["HOG + ridge", "HOG + forest"]


def test_class_without_training_examples_is_never_predicted() -> None:
    pictures = [np.full((8, 8), 250 * (n % 2), dtype=np.uint8) for n in range(20)]
    model = ClassModel(*classifiers_of("picture", 20), 4)
    targets = np.array([0, 2] * 10)
    logits = model.fit_and_predict(pictures, targets, {"test": pictures})["test"]
    np.testing.assert_array_equal(logits.argmax(axis=1), targets)
    assert logits.shape == (20, 4)


def test_histogram_of_a_cloud_ignores_order_place_and_scale() -> None:
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(50, 3))
    (features,) = classifiers_of("cloud", 2)
    first, second = features.matrices([cloud], [[rng.permutation(cloud) * 1.0 + 3]])
    np.testing.assert_allclose(first, second, atol=1e-6)
